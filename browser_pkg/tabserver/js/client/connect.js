/**
 * `connect()`: one connection per relay and server of a page, and the checks of its options.
 *
 * A mistake that leaves no connection is thrown, and also logged and shown, because an app may catch it. Other mistakes are logged
 * and shown; the connection then works as far as it can. It starts nothing itself: see `connection.js`.
 *
 * @import { ConnectOptions, ReasonCode } from "../client.js"
 * @import { Values } from "./reasons.js"
 */

import { Connection } from "./connection.js";
import { checkOptions } from "./options.js";
import { addConnection, connections } from "./page_connections.js";
import { logProblem, mayShowPanel, showProblem } from "./problem_reporter.js";
import { Problem } from "./reasons.js";

/**
 * Attach this tab to a server. Called again for the same server, it returns the same connection.
 * @param {ConnectOptions} options
 * @returns {Connection}
 */
export function connect(options) {
  if (!options?.server) throw refusal("server_missing", {}, options);
  const problems = checkOptions(options);
  for (const problem of problems) logProblem(problem);
  const relay = relayOf(options);
  const address = `${relay}/${options.server}`;
  const existing = connections.get(address);
  if (existing && !existing.isClosed) {
    existing.extend(options);
    showAll(problems, options);
    return existing;
  }
  const connection = new Connection(relay, options);
  addConnection(address, connection);
  showAll(problems, options);
  return connection;
}

/**
 * The relay of the options, or the one that served this file. A copy in an app's bundle was not served by a relay.
 * @param {ConnectOptions} options
 */
function relayOf(options) {
  const isServed = new URL(import.meta.url).pathname.startsWith("/-/");
  if (!options.relay && !isServed) throw refusal("relay_missing", {}, options);
  const given = options.relay ?? import.meta.url;
  const hasNoScheme = /^[^/:?#]+:\d/.test(`${given}`); // 127.0.0.1:4747 would be a path on the page's own origin
  const url = !hasNoScheme && URL.canParse(given, document.baseURI) ? new URL(given, document.baseURI) : undefined;
  if (!url || !/^https?:$/.test(url.protocol)) throw refusal("relay_invalid", { relay: given }, options);
  return url.origin;
}

/**
 * @param {ReasonCode} code
 * @param {Values} values
 * @param {ConnectOptions | undefined} options
 */
function refusal(code, values, options) {
  const problem = new Problem(code, values);
  problem.remedy = "none";
  logProblem(problem);
  showAll([problem], options);
  return new TypeError(problem.message);
}

/**
 * @param {Problem[]} problems
 * @param {ConnectOptions | undefined} options
 */
function showAll(problems, options) {
  if (!mayShowPanel(options?.panel, false)) return;
  for (const problem of problems) showProblem(problem, () => {});
}
