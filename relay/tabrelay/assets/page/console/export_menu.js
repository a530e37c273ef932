/**
 * Menu that exports the shown calls and opens a session file.
 *
 * Details are read from the relay in one go, for the calls that it still keeps, at most `MAX_CALLS` and the newest first. Files are
 * made in the page; nothing is sent anywhere.
 */

import { element, setText } from "../element.js";
import { harOf, otlpOf, readSession, sessionOf } from "./exports.js";

/**
 * @typedef {import("./relay_api.js").Detail} Detail
 *
 * @typedef {object} ExportContext
 * @property {() => readonly import("./rows.js").Row[]} rows that are shown, the oldest first
 * @property {(ids: string[]) => Promise<Detail[]>} details
 * @property {() => { version: string, base: string }} about
 * @property {(name: string, session: { relay: string, saved: string, calls: Detail[] }) => void} opened
 */

const MAX_CALLS = 2000;
const MAX_FILE = 256 * 1024 * 1024;

/** @type {[id: string, label: string, suffix: string, make: (details: Detail[], about: { version: string, base: string }) => unknown][]} */
const KINDS = [
  ["har", "HAR", "har", harOf],
  ["otlp", "OTLP JSON", "otlp.json", otlpOf],
  ["session", "Session file", "session.json", sessionOf],
];

/** @param {ExportContext} context */
export function exportMenu(context) {
  const status = element("p", { class: "hint", role: "status" });
  const buttons = KINDS.map(([id, label, suffix, make]) => {
    const button = element("button", { type: "button", class: "button is-small", "data-export": id }, label);
    button.addEventListener("click", async () => {
      const rows = context.rows().filter(({ is_log }) => !is_log).slice(-MAX_CALLS);
      setText(status, "Reading.");
      try {
        const details = await context.details(rows.map((row) => row.id));
        save(`tabrelay-${new Date().toISOString().replaceAll(/[:.]/gu, "-")}.${suffix}`, JSON.stringify(make(details, context.about()), null, 1));
        const missing = rows.length - details.length;
        setText(status, `${details.length} calls saved.${missing ? ` The relay no longer keeps ${missing}.` : ""}`);
      } catch (error) {
        setText(status, error instanceof Error ? error.message : String(error));
      }
    });
    return button;
  });
  const file = element("input", { type: "file", accept: ".json,application/json", "aria-label": "Open a session file", "data-testid": "session-file" });
  file.addEventListener("change", async () => {
    const chosen = file.files?.[0];
    if (!chosen) return;
    try {
      if (chosen.size > MAX_FILE) throw new Error("The file is too large.");
      context.opened(chosen.name, readSession(await chosen.text()));
      setText(status, "");
    } catch (error) {
      setText(status, error instanceof Error ? error.message : String(error));
    }
    file.value = "";
  });
  const body = element(
    "div",
    { class: "menu-body stack is-close" },
    element("p", { class: "hint" }, "The calls that the filter shows, without secrets."),
    element("div", { class: "row" }, ...buttons),
    element("label", { class: "field" }, element("span", {}, "Open a session file"), file),
    status,
  );
  return element("details", { class: "menu", id: "export" }, element("summary", { class: "button is-small" }, "Export"), body);
}

/** @param {string} name @param {string} text */
function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = element("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
