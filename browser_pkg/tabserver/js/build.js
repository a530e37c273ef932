/**
 * Which build of the relay this copy of the client came with. Empty for what the relay serves, which is its own; the npm
 * package has it filled in.
 */
export const BUILD = "";
