/**
 * Pairing requests and paired origins on the relay's page, with the code to compare.
 *
 * It shows origins and names that the relay has checked, as text nodes. A request's row is never changed: a request that replaces
 * another has another code and another row, so that a user approves only what they have read. It sends decisions; the relay
 * checks them.
 */

import { byId, duration, element, setText } from "./element.js";

/**
 * @typedef {{ code: string, origin: string, server: string, since_s: number, others: string[] }} Asking
 * @typedef {{ id: string, origin: string, servers: string[] | null, since_s: number, own: boolean }} Paired
 * @typedef {{ asking: Asking[], paired: Paired[] }} Pairs
 * @typedef {{ approve: string } | { refuse: string } | { revoke: string }} Decision
 */

/** A button works this long after its request appears: a click that was meant for something else decides nothing. */
const ENABLE_DELAY_MS = 600;

/**
 * @param {(decision: Decision) => Promise<string | undefined>} decide sends a decision to the relay; returns the problem, if any
 */
export function pairsPanel(decide) {
  const section = byId("pairs", HTMLElement);
  const pairedSection = byId("paired-section", HTMLElement);
  const askingList = byId("asking", HTMLElement);
  const pairedList = byId("paired", HTMLElement);
  /** @type {Map<string, HTMLElement>} */
  const asking = new Map();
  /** @type {Map<string, ReturnType<typeof pairedRow>>} */
  const paired = new Map();

  /** @param {Decision} decision */
  const send = async (decision) => {
    const problem = await decide(decision);
    const note = byId("pairs-problem", HTMLElement);
    note.hidden = !problem;
    setText(note, problem ?? "");
  };

  return {
    hide() {
      section.hidden = pairedSection.hidden = true;
    },

    /** @param {Pairs} pairs */
    update(pairs) {
      const others = pairs.paired.filter(({ own }) => !own);
      section.hidden = pairs.asking.length === 0;
      pairedSection.hidden = others.length === 0;
      prune(asking, new Set(pairs.asking.map(key)), (row) => row);
      for (const request of pairs.asking) {
        if (asking.has(key(request))) continue;
        const row = askingRow(request, send);
        asking.set(key(request), row);
        askingList.append(row);
      }
      prune(paired, new Set(others.map(({ id }) => id)), ({ root }) => root);
      for (const page of others) {
        const row = paired.get(page.id) ?? pairedRow(page, send);
        if (!paired.has(page.id)) pairedList.append(row.root);
        paired.set(page.id, row);
        row.update(page);
      }
    },
  };
}

/** @param {Asking} request */
function key({ code, origin, server }) {
  return `${code} ${origin} ${server}`;
}

/**
 * @template Row
 * @param {Map<string, Row>} rows
 * @param {Set<string>} wanted
 * @param {(row: Row) => HTMLElement} root
 */
function prune(rows, wanted, root) {
  for (const [id, row] of rows) {
    if (wanted.has(id)) continue;
    root(row).remove();
    rows.delete(id);
  }
}

/**
 * @param {Asking} request
 * @param {(decision: Decision) => Promise<void>} send
 */
function askingRow({ code, origin, server, others }, send) {
  const approve = button("Approve", "button is-primary", () => send({ approve: code }));
  const refuse = button("Refuse", "button", () => send({ refuse: code }));
  approve.disabled = true;
  setTimeout(() => (approve.disabled = false), ENABLE_DELAY_MS);
  const also = others.length ? `“${server}” is offered by ${others.join(", ")} too.` : "";
  return element(
    "li",
    { class: "asking", "data-origin": origin },
    element(
      "div",
      {},
      element("p", { class: "name" }, origin),
      element("p", { class: "about" }, `wants to offer tools as “${server}”. Approve it only if you opened this page and it shows the same code.`),
      also ? element("p", { class: "about" }, also) : null,
    ),
    element("p", {}, element("span", { class: "hint" }, "Code "), element("span", { class: "pairing-code" }, code)),
    element("div", { class: "decide row" }, approve, refuse),
  );
}

/**
 * @param {Paired} page
 * @param {(decision: Decision) => Promise<void>} send
 */
function pairedRow({ id, origin }, send) {
  const about = element("p", { class: "about" });
  const root = element(
    "li",
    { class: "pairing", "data-origin": origin },
    element("div", {}, element("p", { class: "name" }, origin), about),
    button("Revoke", "button is-danger", () => send({ revoke: id })),
  );
  return {
    root,
    /** @param {Paired} now */
    update({ servers, since_s }) {
      const names = servers ? servers.map((name) => `“${name}”`).join(", ") : "any server";
      setText(about, `may offer ${names}, paired ${duration(Math.floor(since_s) * 1000 || 1000)} ago`);
    },
  };
}

/**
 * @param {string} label
 * @param {string} look
 * @param {() => void} run
 */
function button(label, look, run) {
  const button = element("button", { type: "button", class: look }, label);
  button.addEventListener("click", run);
  return button;
}
