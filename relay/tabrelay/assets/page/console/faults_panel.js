/**
 * Buttons that inject faults: cut a server's link, or delay what is sent to its browsers. Only for a relay that allows it.
 *
 * The relay offers faults on loopback addresses only, and only if its setting `faults` is on; the stream's first event states that.
 */

import { element, setText } from "../element.js";
import { ask } from "./relay_api.js";

const DELAY_S = 30;

/** @param {() => readonly import("./server_texts.js").Server[]} servers */
export function faultsPanel(servers) {
  const found = servers().filter(({ kind, connection }) => !connection && (kind === undefined || kind === "browser"));
  const server = element("select", {}, ...found.map(({ name }) => element("option", { value: name }, name)));
  const ms = element("input", { type: "number", min: 0, max: 10_000, value: 500 });
  const status = element("p", { class: "hint", role: "status" });
  /** @param {string} label @param {() => object} body @param {string} done */
  const button = (label, body, done) => {
    const made = element("button", { type: "button", class: "button" }, label);
    made.addEventListener("click", async () => {
      try {
        await ask("/-/console/faults", { body: { server: server.value, ...body() } });
        setText(status, done);
      } catch (error) {
        setText(status, error instanceof Error ? error.message : String(error));
      }
    });
    return made;
  };
  return element(
    "div",
    { class: "stack", "data-testid": "faults" },
    element("p", { class: "hint" }, "Faults are real: calls of all clients meet them. A delay is of each message to the browser."),
    element("label", { class: "field" }, element("span", {}, "Server"), server),
    element("label", { class: "field" }, element("span", {}, "Milliseconds"), ms),
    element(
      "div",
      { class: "row" },
      button("Cut the link", () => ({ kind: "cut" }), "The link was cut."),
      button(`Delay for ${DELAY_S} s`, () => ({ kind: "delay", ms: Number(ms.value), for_s: DELAY_S }), `Messages are delayed for ${DELAY_S} s.`),
      button("End the delay", () => ({ kind: "delay", ms: 0, for_s: 0 }), "Messages are not delayed."),
    ),
    status,
  );
}
