/**
 * MCP method names that the relay's pages use.
 *
 * One definition for all scripts of the page; nothing here depends on the relay's code.
 */

export const TOOLS_CALL = "tools/call";
export const TOOLS_LIST = "tools/list";
