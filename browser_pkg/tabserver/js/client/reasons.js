/**
 * Reasons why a page does not serve: one table of codes with the sentences for the console, the panel, `State` and the guide.
 *
 * Each code has what happened and what to do, with values in braces. The relay and the worker state some reasons with more facts;
 * their own text then replaces the first sentence. The module has no imports and touches no document, so that the guide's table is
 * made from it. It neither logs nor shows anything: see `problem_reporter.js`.
 *
 * @import { ReasonCode, Why } from "../client.js"
 * @typedef {"retry" | "ask" | "reload" | "none"} Remedy the button of the panel
 * @typedef {{ help: string, why: Why, happened: string, todo: string, remedy?: Remedy }} Reason `help`: code of the reference
 * @typedef {Record<string, unknown>} Values
 */

const LOADER = "Fetch the relay's loader: curl -O {relay}/-/tabrelay.js.";
const AGAIN = "The page tries again by itself.";

/** In the order of the guide. @type {Record<ReasonCode, Reason>} */
export const REASONS = {
  // -- connect() ---------------------------------------------------------------------------------------------------------
  server_missing: {
    help: "TR401",
    why: "misconfigured",
    happened: "connect() needs the name of a server.",
    todo: 'Name the MCP server that this page offers: connect({ server: "notes" }).',
  },
  server_invalid: {
    help: "TR402",
    why: "misconfigured",
    happened: '"{server}" can\'t be the name of a server.',
    todo: 'Use 1 to 64 letters, digits, "-", "_" and ".", and begin with a letter or digit, such as: notes.',
  },
  relay_missing: {
    help: "TR403",
    why: "misconfigured",
    happened: "This app has its own copy of client.js, so connect() needs the relay's address.",
    todo: 'Pass it: connect({ server, relay: "http://127.0.0.1:4747" }).',
  },
  relay_invalid: {
    help: "TR404",
    why: "misconfigured",
    happened: '"{relay}" is not the address of a relay.',
    todo: 'Pass its http or https address: connect({ server, relay: "http://127.0.0.1:4747" }).',
  },
  option_unknown: {
    help: "TR405",
    why: "misconfigured",
    happened: 'connect() does not know the option "{option}".',
    todo: "{advice}",
    remedy: "none",
  },
  option_invalid: {
    help: "TR406",
    why: "misconfigured",
    happened: 'The option "{option}" of connect() is {type}.',
    todo: "{advice}",
    remedy: "none",
  },
  worker_option_missing: {
    help: "TR407",
    why: "misconfigured",
    happened: "connect() got no worker file, but the page's origin {origin} is not the relay's.",
    todo: `${LOADER} Put it beside the page, and pass its address: connect({ server, worker: "/tabrelay.js" }).`,
  },
  worker_other_origin: {
    help: "TR408",
    why: "misconfigured",
    happened: "The worker file {file} is not on this page's origin, and browsers start a shared worker only from there.",
    todo: `${LOADER} Put it on {origin}, and pass that address as the option "worker".`,
  },
  // -- the page and the browser ------------------------------------------------------------------------------------------
  file_page: {
    help: "TR411",
    why: "unsupported",
    happened: "This page was opened as a file, and browsers start no worker for files.",
    todo: "Serve its folder, for example with: python3 -m http.server 5173. Then open http://localhost:5173.",
    remedy: "none",
  },
  no_origin: {
    help: "TR412",
    why: "unsupported",
    happened: "This page is in a sandboxed frame, so it has no origin, no storage and no worker.",
    todo: "Add allow-same-origin to the frame's sandbox, or open the page by itself.",
    remedy: "none",
  },
  insecure_page: {
    help: "TR413",
    why: "unsupported",
    happened: "{origin} is not a secure address, and browsers give such a page no Web Locks.",
    todo: "Serve the page with https, or open it on the computer that serves it: http://localhost:{port}",
    remedy: "none",
  },
  unsupported: {
    help: "TR414",
    why: "unsupported",
    happened: "This browser has no Web Locks or no BroadcastChannel.",
    todo: "Update the browser, or use another one.",
    remedy: "none",
  },
  storage_blocked: {
    help: "TR415",
    why: "not_paired",
    happened: "The browser blocks storage for {origin}, so the page can't keep the keys of a pairing.",
    todo: "Allow cookies and site data for this site, or pass a token: connect({ server, token }).",
  },
  mixed_content: {
    help: "TR416",
    why: "blocked",
    happened: "This page came over https, and browsers block its requests to {relay}, which is http.",
    todo: "Use a relay on this computer, or give the relay an https address.",
    remedy: "none",
  },
  policy_blocks_relay: {
    help: "TR417",
    why: "blocked",
    happened: "The page's content security policy ({directive}) blocks the relay at {relay}.",
    todo: "Add {relay} to script-src, and {relay} and {socket} to connect-src.",
    remedy: "reload",
  },
  policy_blocks_worker: {
    help: "TR418",
    why: "blocked",
    happened: "The page's content security policy ({directive}) blocks the worker file {file}.",
    todo: "Add 'self' to worker-src.",
    remedy: "reload",
  },
  network_denied: {
    help: "TR419",
    why: "blocked",
    happened: "The browser does not let {origin} reach the relay at {relay}.",
    todo: "Open the site's settings (the icon beside the address), allow access to apps on this device, and reload.",
    remedy: "reload",
  },
  network_prompt: {
    help: "TR420",
    why: "blocked",
    happened: "The browser waits for permission: {origin} wants to reach the relay at {relay}, on this computer.",
    todo: "Allow it, and try again. If the browser does not ask, check that the relay runs.",
  },
  // -- the relay -----------------------------------------------------------------------------------------------------------
  relay_down: {
    help: "TR421",
    why: "relay_down",
    happened: "No relay answers at {relay}.",
    todo: `Start it with: tabrelay serve. ${AGAIN}`,
  },
  not_a_relay: {
    help: "TR422",
    why: "unproven",
    happened: "A program answers at {relay}, but it is not a relay.",
    todo: 'Stop that program and start the relay, or pass the relay\'s address: connect({ server, relay: "…" }).',
  },
  unproven: {
    help: "TR423",
    why: "unproven",
    happened: "The program at {relay} has not proved that it is your relay.",
    todo: `Stop that program, or update and restart the relay. ${AGAIN}`,
  },
  timeout: { help: "TR424", why: "timeout", happened: "The relay at {relay} did not answer in time.", todo: AGAIN },
  lost: { help: "TR425", why: "lost", happened: "The connection to the relay was lost.", todo: AGAIN },
  restarting: { help: "TR426", why: "restarting", happened: "The relay is restarting.", todo: AGAIN },
  closed: { help: "TR427", why: "closed", happened: "A page closed the connection.", todo: "Call connection.retry() to open it again." },
  not_paired: {
    help: "TR428",
    why: "not_paired",
    happened: "This page is not paired with the relay.",
    todo: "Run: tabrelay pair. Open the address that it prints in this browser.",
  },
  pairing: {
    help: "TR429",
    why: "pairing",
    happened: "This page waits for your approval, with code {code}.",
    todo: "Approve it: tabrelay pairs approve {code}",
  },
  pairing_refused: {
    help: "TR430",
    why: "not_paired",
    happened: 'The request of {origin} to offer "{server}" was refused.',
    todo: "Ask again, and approve the code in the relay's terminal or on its page.",
    remedy: "ask",
  },
  pairing_expired: {
    help: "TR431",
    why: "not_paired",
    happened: 'The request of {origin} to offer "{server}" was not approved in time.',
    todo: "Ask again, and approve the code in the relay's terminal or on its page.",
    remedy: "ask",
  },
  pairing_failed: {
    help: "TR432",
    why: "not_paired",
    happened: "The page could not be paired: {detail}",
    todo: "Ask again.",
    remedy: "ask",
  },
  token_needs_https: {
    help: "TR433",
    why: "not_paired",
    happened: "A token of an authorization server is sent over https only.",
    todo: "Pass the relay's https address, or a token that `tabrelay token new` prints.",
  },
  unauthorized: {
    help: "TR434",
    why: "unauthorized",
    happened: "The relay does not know the token or the pairing of this page: it was revoked, or the relay has another home.",
    todo: "Ask again, or pass a valid token: connect({ server, token }).",
    remedy: "ask",
  },
  forbidden: {
    help: "TR435",
    why: "forbidden",
    happened: 'The relay does not let pages of {origin} offer "{server}".',
    todo: "Start it with: tabrelay serve {server} --allow-origin {origin}",
    remedy: "ask",
  },
  taken: {
    help: "TR436",
    why: "taken",
    happened: 'A page of another origin, or with another token, offers "{server}".',
    todo: "Close that page: this one tries again by itself. localhost, 127.0.0.1 and [::1] are three origins: open one of them.",
  },
  replaced: {
    help: "TR437",
    why: "replaced",
    happened: 'Another browser offers "{server}" now.',
    todo: "Try again to take it back.",
  },
  version: {
    help: "TR438",
    why: "version",
    happened: "The relay and this page have different versions.",
    todo: "Reload the page.",
    remedy: "reload",
  },
  client_outdated: {
    help: "TR439",
    why: "version",
    happened: "This app's copy of the client and the relay have different versions.",
    todo: "Update it: npm install {relay}/-/tabrelay.tgz",
    remedy: "none",
  },
  // -- the worker ----------------------------------------------------------------------------------------------------------
  worker_missing: {
    help: "TR451",
    why: "boot_failed",
    happened: "There is no worker file at {file}: the server answered {status}.",
    todo: `${LOADER} Save it there.`,
  },
  worker_is_html: {
    help: "TR452",
    why: "boot_failed",
    happened: "The server answered {file} with an HTML page, not with the worker file.",
    todo: `${LOADER} Save it there, for example in the folder "public" of the app.`,
  },
  worker_type: {
    help: "TR453",
    why: "boot_failed",
    happened: "The server sent the worker file {file} as {type}, and browsers run only JavaScript.",
    todo: "Have it sent as text/javascript.",
  },
  worker_unreachable: {
    help: "TR454",
    why: "boot_failed",
    happened: "The worker file {file} could not be loaded.",
    todo: "Check that the server of the app runs, and that the address leads to the file without a redirect.",
  },
  worker_import: {
    help: "TR455",
    why: "boot_failed",
    happened: "The worker file {file} does not start the relay's worker: it {other}.",
    todo: `${LOADER} Save it there.`,
  },
  relay_mismatch: {
    help: "TR456",
    why: "boot_failed",
    happened: "The worker file {file} is for the relay at {other}, and this page for the one at {relay}.",
    todo: `${LOADER} Save it there, or pass the other address: connect({ server, relay: "{other}" }).`,
  },
  worker_policy: {
    help: "TR457",
    why: "boot_failed",
    happened: "The content security policy of the worker file {file} ({directive}) blocks the relay at {relay}.",
    todo: "Send it with: script-src 'self' 'wasm-unsafe-eval' {relay}; connect-src 'self' {relay} {socket}",
  },
  worker_failed: {
    help: "TR458",
    why: "boot_failed",
    happened: "The worker file {file} did not start.",
    todo: `Open that address to see what is there. ${LOADER}`,
  },
  worker_silent: {
    help: "TR459",
    why: "boot_failed",
    happened: "The worker does not answer.",
    todo: "Try again. If that does not help, close all tabs of this site and open it again.",
  },
  worker_ended: { help: "TR460", why: "lost", happened: "The worker ended.", todo: "It is being started again." },
  python_download: {
    help: "TR461",
    why: "boot_failed",
    happened: "Python could not be downloaded into the worker: {detail}",
    todo: "Check that the relay runs. The page tries again by itself.",
  },
  wasm_blocked: {
    help: "TR462",
    why: "boot_failed",
    happened: "A content security policy keeps Python from starting in the worker.",
    todo: "Send the worker file with: script-src 'self' 'wasm-unsafe-eval' {relay}",
    remedy: "reload",
  },
  boot_failed: {
    help: "TR463",
    why: "boot_failed",
    happened: "Python could not start in the worker: {detail}",
    todo: "Try again. The console of the worker has the details.",
  },
  start_failed: {
    help: "TR464",
    why: "boot_failed",
    happened: "The page could not start the worker: {detail}",
    todo: "Try again.",
  },
};

/** One reason with its values. */
export class Problem extends Error {
  /**
   * @param {ReasonCode} code
   * @param {Values} [values]
   */
  constructor(code, values = {}) {
    const { help, why, happened, todo, remedy } = REASONS[code];
    const facts = { happened: fill(happened, values), todo: fill(todo, values) };
    if (code === "relay_down" && values.start) facts.todo = facts.todo.replace("tabrelay serve", String(values.start));
    super(`${facts.happened} ${facts.todo}`);
    this.code = code;
    /** The code of the entry in the reference, also for `tabrelay help`. */
    this.help = help;
    this.why = why;
    this.happened = facts.happened;
    this.todo = facts.todo;
    this.remedy = remedy ?? "retry";
  }

  /**
   * A reason that the worker or the relay has stated. Its own text has facts that the table can't have, such as which page holds
   * the name; without any, the table's text is used. A text of one sentence gets the table's advice.
   * @param {Why} why
   * @param {string | null} message
   * @param {Values} values
   */
  static stated(why, message, values) {
    const problem = new Problem(Object.hasOwn(REASONS, why) ? /** @type {ReasonCode} */ (why) : "start_failed", values);
    problem.why = why;
    const text = message?.trim();
    if (!text || SAME_TEXT.includes(why)) return problem;
    const [happened = "", ...rest] = text.split(/(?<=[.!?]) (?=[A-Z(])/);
    problem.happened = /[.!?…]$/.test(happened) ? happened : `${happened}.`;
    problem.todo = rest.length ? rest.join(" ") : problem.todo;
    problem.message = `${problem.happened} ${problem.todo}`;
    return problem;
  }
}

/**
 * Why Python did not start.
 * @param {string} detail the last line of the worker's error
 * @param {string} relay
 */
export function bootProblem(detail, relay) {
  const code = /Content Security Policy|unsafe-eval|CompileError/i.test(detail) ? "wasm_blocked"
    : /^(Error: |TypeError: )?(Could not load|Failed to fetch|error loading|.*no progress)/i.test(detail) ? "python_download" : "boot_failed";
  return new Problem(code, { detail: /[.!?]$/.test(detail) ? detail : `${detail}.`, relay });
}

/** Reasons of the worker whose text has no more facts than the table's. */
const SAME_TEXT = ["relay_down", "closed", "replaced", "restarting", "timeout"];

/**
 * @param {string} text
 * @param {Values} values
 */
function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (braces, name) => (name in values ? sentence(String(values[name])) : braces)).trim();
}

/** Text of another program on one line, of bounded length. @param {string} text */
function sentence(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > 300 ? `${line.slice(0, 300)}…` : line;
}
