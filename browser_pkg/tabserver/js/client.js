/**
 * Entry point for pages: attach this tab to the shared worker and offer its functions to MCP clients.
 *
 *     import { connect } from "/-/client.js";
 *     const connection = connect({ server: "notes" });
 *     connection.offerTool({ name: "title", description: "The page's title", execute: () => document.title });
 *
 * A page on another origin gets this file through `tabrelay.js`. It exports only the public names; client.d.ts documents them.
 */

export { connect } from "./client/connect.js";
export { Connection } from "./client/connection.js";
export { McpError, ResourceNotFound } from "./client/errors.js";
export { pair } from "./client/redeem_code.js";
export { InputRequired } from "./client/running_calls.js";
export { toResult } from "./client/results.js";
