/**
 * Build id of the relay that this copy of the client belongs to.
 *
 * Empty in the files that the relay serves, which always match it; the npm package has it filled in. `tabrelay dev` serves another
 * version of this file on the app's origin. Nothing else belongs here.
 */
export const BUILD = "";
/** Is the origin that serves this file the app's, although the relay answers there too? Then it has none of the relay's own pages. */
export const SERVES_APP = false;
