/**
 * Build id of the relay that this copy of the client belongs to.
 *
 * Empty in the files that the relay serves, which always match it; the npm package has it filled in. Nothing else belongs here.
 */
export const BUILD = "";
