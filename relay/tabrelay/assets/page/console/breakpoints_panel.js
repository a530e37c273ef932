/**
 * Breakpoints: patterns of calls that the relay holds, and the held calls with their bodies, to release, edit or refuse.
 *
 * The relay releases everything at the deadline of the call, and when the last console is closed. The panel shows how long that is.
 * Breakpoints are sent again when the stream is connected again, because the relay forgets them with the last stream.
 */

import { duration, element, setText } from "../element.js";
import { toast } from "../toast.js";
import { ask } from "./relay_api.js";

/**
 * @typedef {{ at: "call" | "result" | "both", server?: string, method?: string, name?: string, client?: string }} Breakpoint
 * @typedef {{ id: string, call: string, at: "call" | "result", since: number, until: number, server: string, method: string, name: string | null }} Held
 */

const KEYS = /** @type {const} */ (["server", "name", "method", "client"]);
const MAX = 32;

export class BreakpointsPanel extends EventTarget {
  root;
  /** @type {Breakpoint[]} */
  #breakpoints = [];
  /** @type {Map<string, { root: HTMLElement, timer: ReturnType<typeof setInterval> }>} */
  #held = new Map();
  #list = element("ul", { class: "list" });
  #heldList = element("ul", { class: "list", "data-testid": "held" });
  #status = element("p", { class: "hint", role: "status" });
  #open;

  /** @param {(id: string) => void} open a call */
  constructor(open) {
    super();
    this.#open = open;
    const all = element("button", { type: "button", class: "button is-small" }, "Release all");
    all.addEventListener("click", () => void this.#send("/-/console/release"));
    this.root = element(
      "div",
      { class: "stack", "data-testid": "breakpoints" },
      element("p", { class: "hint" }, "Calls or results that match are held until you release them, at most until their deadline. Patterns are names; * stands for anything."),
      this.#form(),
      this.#list,
      element("div", { class: "row" }, element("h3", {}, "Held"), all),
      element("div", { role: "status", "aria-live": "polite" }, this.#heldList),
      this.#status,
    );
  }

  get count() {
    return this.#held.size;
  }

  get hasBreakpoints() {
    return this.#breakpoints.length > 0;
  }

  /** Read breakpoints and held calls; called when the stream says that they have changed. */
  async read() {
    const { breakpoints, held } = await ask("/-/console/breakpoints").catch(() => ({ breakpoints: [], held: [] }));
    this.#breakpoints = breakpoints;
    this.#drawBreakpoints();
    await this.#drawHeld(held);
    this.dispatchEvent(new Event("change"));
  }

  /** The stream is connected again: the relay may have none of them. */
  async restore() {
    const own = this.#breakpoints;
    await this.read();
    if (own.length && !this.#breakpoints.length) await this.#put(own);
  }

  #form() {
    const at = element("select", {}, ...["call", "result", "both"].map((value) => element("option", { value }, value)));
    const inputs = KEYS.map((key) => /** @type {const} */ ([key, element("input", { type: "text", placeholder: "*", autocomplete: "off", spellcheck: "false", name: key })]));
    const add = element("button", { type: "submit", class: "button" }, "Hold");
    const form = element(
      "form",
      { class: "row breakpoint-form" },
      element("label", { class: "field" }, element("span", {}, "at"), at),
      ...inputs.map(([key, input]) => element("label", { class: "field" }, element("span", {}, key === "name" ? "tool" : key), input)),
      add,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const given = inputs.filter(([, input]) => input.value.trim()).map(([key, input]) => [key, input.value.trim()]);
      const made = /** @type {Breakpoint} */ ({ at: at.value, ...Object.fromEntries(given) });
      void this.#put([...this.#breakpoints, made].slice(-MAX));
    });
    return form;
  }

  /** @param {Breakpoint[]} breakpoints */
  async #put(breakpoints) {
    await this.#send("/-/console/breakpoints", { breakpoints }, "PUT");
    await this.read();
  }

  /** @param {string} path @param {unknown} [body] @param {string} [method] */
  async #send(path, body, method = "POST") {
    try {
      await ask(path, { method, ...(body === undefined ? {} : { body }) });
      setText(this.#status, "");
      return true;
    } catch (error) {
      setText(this.#status, error instanceof Error ? error.message : String(error));
      return false;
    }
  }

  #drawBreakpoints() {
    this.#list.replaceChildren(
      ...this.#breakpoints.map((each, index) => {
        const remove = element("button", { type: "button", class: "button is-small", "aria-label": `Remove breakpoint ${index + 1}` }, "Remove");
        remove.addEventListener("click", () => void this.#put(this.#breakpoints.filter((_, at) => at !== index)));
        const text = KEYS.filter((key) => each[key]).map((key) => `${key === "name" ? "tool" : key}:${each[key]}`);
        return element("li", { class: "row" }, element("span", { class: "badge" }, each.at), element("span", { class: "mono" }, text.join(" ") || "every call"), remove);
      }),
    );
  }

  /** @param {Held[]} held */
  async #drawHeld(held) {
    const ids = new Set(held.map(({ id }) => id));
    for (const [id, { root, timer }] of this.#held) {
      if (ids.has(id)) continue;
      clearInterval(timer);
      root.remove();
      this.#held.delete(id);
    }
    for (const each of held) {
      if (this.#held.has(each.id)) continue;
      const entry = { root: element("li", { class: "stack is-close", "data-held": each.id }), timer: setInterval(() => undefined, 1 << 30) };
      this.#held.set(each.id, entry);
      this.#heldList.append(entry.root);
      const body = await ask(`/-/console/held/${encodeURIComponent(each.id)}`).catch(() => null);
      if (body) this.#fillHeld(entry, each, body);
    }
  }

  /**
   * @param {{ root: HTMLElement, timer: ReturnType<typeof setInterval> }} entry
   * @param {Held} held
   * @param {Record<string, unknown>} body
   */
  #fillHeld(entry, { id, call, at, until, server, name, method }, body) {
    const isLong = body.truncated === true;
    const kind = "params" in body || (isLong && at === "call") ? "params" : "result" in body || isLong ? "result" : "error";
    const text = element("textarea", { class: "mono", rows: isLong ? 1 : 8, spellcheck: "false" });
    const first = isLong ? "It is too long to be edited. Release or refuse it." : JSON.stringify(body[kind] ?? null, null, 2);
    text.value = first;
    text.readOnly = isLong;
    const left = element("span", { class: "hint" });
    const tick = () => setText(left, `released in ${duration(Math.max(0, until - Date.now()))}`);
    tick();
    clearInterval(entry.timer);
    entry.timer = setInterval(tick, 1000);
    const release = element("button", { type: "button", class: "button is-primary is-small" }, "Release");
    const refuse = element("button", { type: "button", class: "button is-danger is-small" }, "Refuse");
    const show = element("button", { type: "button", class: "button is-small" }, "Open the call");
    const decide = async (/** @type {Record<string, unknown>} */ decision) => {
      await this.#send(`/-/console/held/${encodeURIComponent(id)}`, decision);
      await this.read();
    };
    release.addEventListener("click", () => {
      try {
        void decide(text.value === first ? { do: "release" } : { do: "release", [kind]: JSON.parse(text.value) });
      } catch (error) {
        toast(`This is not JSON: ${error instanceof Error ? error.message : error}`);
      }
    });
    refuse.addEventListener("click", () => void decide({ do: "refuse" }));
    show.addEventListener("click", () => this.#open(call));
    entry.root.replaceChildren(
      element("div", { class: "row" }, element("span", { class: "badge is-warn" }, at), element("span", { class: "name" }, `${name ?? method}`), element("span", { class: "hint" }, server), left),
      element("label", { class: "field" }, element("span", {}, kind === "params" ? "Parameters" : kind === "result" ? "Result" : "Error"), text),
      element("div", { class: "row" }, release, refuse, show),
    );
  }
}
