/**
 * The page's side: attach this tab to the shared worker and offer its functions as tools.
 *
 *     import { connect } from "http://localhost:4747/-/client.js";
 *     const connection = connect({ server: "notes" });
 *     connection.offerTool({ name: "title", description: "The page's title", execute: () => document.title });
 *
 * Only the names that pages use; what is behind them is in `connection.js`.
 */

export { connect, Connection } from "./connection.js";
export { pair } from "./pairing.js";
export { toResult } from "./result.js";
