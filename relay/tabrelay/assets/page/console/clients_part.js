/**
 * Clients of a server: the sessions that the relay has of it, and the clients of the calls that the console has.
 *
 * Both are read when the part is opened, with each status of the server while the part is visible, and with its button. Clients of
 * 2026-07-28 have no session.
 */

import { duration, element } from "../element.js";
import { ask } from "./relay_api.js";
import { isOpen } from "./rows.js";

/**
 * @typedef {object} Session
 * @property {{ name: string | null, version: string | null }} client
 * @property {string} era
 * @property {string} principal
 * @property {number} age_s
 * @property {number} idle_s
 * @property {number} open calls
 * @property {boolean} is_listening
 *
 * @typedef {{ cells: string[], calls: number, open: number, last: number }} Caller
 */

/** @param {import("./server_texts.js").Server} server @param {EventTarget} updates @param {import("./server_parts.js").PartContext} context */
export function clientsPart({ name }, updates, context) {
  const sessions = sessionsTable(name);
  const callers = callersTable(name, context);
  const again = element("button", { type: "button", class: "button is-small" }, "Read again");
  const read = () => {
    callers.draw();
    void sessions.read();
  };
  again.addEventListener("click", read);
  read();
  const root = element(
    "div",
    { class: "stack is-close" },
    element("h3", {}, "Sessions"),
    sessions.root,
    element("h3", {}, "Clients of the calls shown here"),
    callers.root,
    element("div", { class: "row" }, again),
  );
  updates.addEventListener("update", () => root.offsetParent && read());
  return root;
}

/** @param {string} label @param {string[]} heads @param {HTMLElement} body */
function table(label, heads, body) {
  const head = element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text))));
  return element("div", { class: "table", tabindex: 0, role: "group", "aria-label": label, hidden: true }, element("table", {}, head, body));
}

/** @param {string} server */
function sessionsTable(server) {
  const body = element("tbody");
  const status = element("p", { class: "hint", role: "status" }, "Reading.");
  const frame = table("Sessions", ["Client", "Era", "Token", "Opened", "Last used", "Open calls"], body);
  const read = async () => {
    try {
      const { sessions, total } = await ask(`/-/console/sessions?server=${encodeURIComponent(server)}`);
      body.replaceChildren(...sessions.map(sessionRow));
      frame.hidden = sessions.length === 0;
      status.textContent = textOf(sessions.length, total);
    } catch (error) {
      status.textContent = `Sessions could not be read: ${error instanceof Error ? error.message : error}`;
    }
  };
  return { root: element("div", { class: "stack is-close", "data-testid": "sessions" }, status, frame), read };
}

/** @param {number} shown @param {number} total */
function textOf(shown, total) {
  if (total > shown) return `The ${shown} sessions that were used last, of ${total}.`;
  return total ? "" : "No client has a session. Clients of 2026-07-28 need none.";
}

/** @param {Session} session */
function sessionRow({ client, era, principal, age_s, idle_s, open, is_listening }) {
  const badge = is_listening ? element("span", { class: "badge is-ok", title: "It has an open stream for messages of the server" }, "listening") : null;
  return element(
    "tr",
    { "data-session": client.name ?? "" },
    element("td", {}, nameOf(client), badge ? " " : null, badge),
    element("td", {}, era),
    element("td", {}, principal),
    element("td", {}, `${duration(age_s * 1000)} ago`),
    element("td", {}, `${duration(idle_s * 1000)} ago`),
    element("td", { class: "number" }, String(open)),
  );
}

/** @param {{ name: string | null, version: string | null }} client */
function nameOf({ name, version }) {
  return `${name || "unknown"} ${version ?? ""}`.trim();
}

/** Clients that have called this server, from the calls that the console has. @param {string} server @param {import("./server_parts.js").PartContext} context */
function callersTable(server, context) {
  const body = element("tbody");
  const none = element("p", { class: "hint" }, "No client has called this server since the console was opened.");
  const frame = table("Clients", ["Client", "Era", "Token", "Calls", "Open", "Last"], body);
  const draw = () => {
    const found = callersOf(context.store.rows.filter((row) => row.server === server));
    none.hidden = found.length > 0;
    frame.hidden = found.length === 0;
    body.replaceChildren(
      ...found.map(({ cells, calls, open, last }) =>
        element("tr", {}, ...cells.map((text) => element("td", {}, text)), element("td", { class: "number" }, String(calls)), element("td", { class: "number" }, String(open)), element("td", {}, `${duration(Math.max(0, Date.now() - last))} ago`)),
      ),
    );
  };
  return { root: element("div", {}, none, frame), draw };
}

/** @param {readonly import("./rows.js").Row[]} rows */
function callersOf(rows) {
  /** @type {Map<string, Caller>} */
  const found = new Map();
  for (const row of rows) {
    const client = row.by === "console" ? { ...row.client, name: "Tabrelay console" } : row.client;
    const cells = [nameOf(client), row.era ?? "", row.principal ?? ""];
    const entry = found.get(cells.join("\n")) ?? { cells, calls: 0, open: 0, last: 0 };
    entry.calls++;
    entry.last = Math.max(entry.last, row.started);
    if (isOpen(row)) entry.open++;
    found.set(cells.join("\n"), entry);
  }
  return [...found.values()];
}
