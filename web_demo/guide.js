/**
 * The guide of the demo page: five steps, the text and the buttons of the chosen one, and what to do after the last.
 *
 * It shows what guide_progress.js has found out. Its buttons do what the visitor could do with other parts of the page; no step is
 * marked as done because a button was pressed.
 */

import { installCommand, oneClickLinks } from "/-/page/clients.js";
import { codeBlock } from "/-/page/code_block.js";
import { byId, element, setText } from "/-/page/element.js";
import { STEPS } from "./guide_progress.js";

/**
 * @typedef {import("./guide_progress.js").GuideProgress} GuideProgress
 * @typedef {import("./guide_progress.js").StepId} StepId
 * @typedef {{ url: string, tokenCommand: string, server: string }} Place
 *
 * @typedef {object} Actions what the buttons do
 * @property {(tool: string) => unknown} run
 * @property {() => unknown} cut run a long call and cut the connection while it runs
 */

/** @type {Record<StepId, { title: string, text: string, done: string }>} */
const TEXTS = {
  run: {
    title: "Run a tool",
    text: "This page sends a call to the relay, as an AI client does. The relay passes it to this tab, which draws and answers.",
    done: "The call went to the relay, to this tab and back. Every tool in the list has a Run button.",
  },
  connect: {
    title: "Connect your agent",
    text: "Add this tab to your AI client by a button, or by the command below. Then ask it: “Look at my drawing on demo, and add a tree.”",
    done: "Your client called a tool of this tab.",
  },
  tab: {
    title: "Open a second tab",
    text: "Tabs share one connection and this drawing. A call goes to the tab that you used last, and you can close either.",
    done: "Two tabs offered their tools under one address.",
  },
  cut: {
    title: "Cut the connection",
    text: "A spiral takes five seconds. Meanwhile the page’s worker closes its own socket. The call goes on, and its result arrives once.",
    done: "The call outlived its connection: the worker connected again and sent the result.",
  },
  approve: {
    title: "Approve a tool",
    text: "clear_drawing deletes everything, so this page asks you first, whichever client calls. Undo brings the drawing back.",
    done: "The tool ran because you approved it. If you refuse, the client gets an error with that reason.",
  },
};

export class Guide {
  #progress;
  #actions;
  #list = byId("guide-steps", HTMLOListElement);
  #body = byId("guide-step", HTMLElement);
  #count = byId("guide-count", HTMLElement);
  #reset = byId("guide-reset", HTMLButtonElement);
  /** @type {StepId} */
  #chosen;
  /** @type {Place | null} */
  #place = null;
  #isCutting = false;
  /** The label of the button that has the focus, or gets it back when it is enabled again. */
  #focusedLabel = "";
  /** @type {Map<StepId, HTMLButtonElement>} */
  #tabs = new Map();

  /** @param {GuideProgress} progress @param {Actions} actions */
  constructor(progress, actions) {
    this.#progress = progress;
    this.#actions = actions;
    this.#chosen = progress.next ?? "run";
    STEPS.forEach((step, index) => this.#list.append(this.#tab(step, index + 1)));
    this.#reset.addEventListener("click", () => {
      this.#progress.reset();
      this.#choose("run");
    });
    progress.addEventListener("change", () => this.#show());
    this.#show();
  }

  /** @param {Place} place */
  setPlace(place) {
    this.#place = place;
    this.#show();
  }

  /** @param {StepId} step @param {number} number */
  #tab(step, number) {
    const mark = element("span", { class: "mark", "aria-hidden": "true" }, String(number));
    const said = element("span", { class: "visually-hidden" });
    const button = element("button", { type: "button", "data-step": step }, mark, element("span", {}, TEXTS[step].title), said);
    button.addEventListener("click", () => this.#choose(step));
    this.#tabs.set(step, button);
    return element("li", {}, button);
  }

  /** @param {StepId} step */
  #choose(step) {
    this.#chosen = step;
    this.#show();
  }

  #show() {
    const done = STEPS.filter((step) => this.#progress.isDone(step)).length;
    setText(this.#count, done === STEPS.length ? "All steps done" : `${done} of ${STEPS.length} done`);
    this.#reset.hidden = done === 0;
    for (const [step, button] of this.#tabs) {
      const isDone = this.#progress.isDone(step);
      button.dataset.done = String(isDone);
      button.setAttribute("aria-current", step === this.#chosen ? "step" : "false");
      const [mark, , said] = button.children;
      if (mark) setText(mark, isDone ? "✓" : String(STEPS.indexOf(step) + 1));
      if (said) setText(said, isDone ? " (done)" : "");
    }
    this.#showStep();
  }

  #showStep() {
    const step = this.#chosen;
    const isDone = this.#progress.isDone(step);
    const key = JSON.stringify([step, isDone, this.#progress.next, this.#place, this.#isCutting]);
    if (this.#body.dataset.key === key) return;
    this.#body.dataset.key = key;
    this.#body.dataset.shown = step;
    const focused = document.activeElement;
    const hadFocus = this.#body.contains(focused);
    const text = element("p", {}, isDone ? TEXTS[step].done : TEXTS[step].text);
    const buttons = this.#buttons(step, isDone);
    this.#body.replaceChildren(text, element("div", { class: "row actions" }, ...buttons), ...this.#more(step));
    if (!hadFocus) return;
    // The focus stays: on the same button, or on the step while its button is disabled.
    if (focused !== this.#body) this.#focusedLabel = focused?.textContent ?? "";
    const same = buttons.find(({ textContent }) => textContent === this.#focusedLabel) ?? buttons[0];
    (same?.matches(":disabled") ? this.#body : (same ?? this.#body)).focus({ preventScroll: true });
  }

  /** @param {StepId} step @param {boolean} isDone */
  #buttons(step, isDone) {
    const again = this.#action(step, isDone);
    const next = this.#progress.next;
    if (!isDone) return again;
    if (next) return [button(`Next: ${TEXTS[next].title.toLowerCase()}`, () => this.#choose(next), true), ...again];
    const links = /** @type {const} */ ([["Write your own tool", "playground/"], ["See examples", "examples/"]]);
    return [...links.map(([label, href], n) => element("a", { class: n ? "button" : "button is-primary", href }, label)), ...again];
  }

  /** @param {StepId} step @param {boolean} isDone @returns {HTMLElement[]} */
  #action(step, isDone) {
    switch (step) {
      case "run":
        return [button("Run draw_circle", () => this.#actions.run("draw_circle"), !isDone), button("Run add(2, 3)", () => this.#actions.run("add"))];
      case "connect":
        return this.#clientLinks(isDone);
      case "tab":
        return [element("a", { class: isDone ? "button" : "button is-primary", href: "./", target: "_blank" }, "Open a second tab")];
      case "cut":
        return [button("Run draw_spiral and cut the connection", () => void this.#cut(), !isDone, this.#isCutting)];
      case "approve":
        return [button("Run clear_drawing", () => this.#actions.run("clear_drawing"), !isDone)];
    }
  }

  /** @param {boolean} isDone */
  #clientLinks(isDone) {
    const links = this.#place ? Object.values(oneClickLinks({ ...this.#place, name: this.#place.server })) : [];
    return [
      ...links.map(({ label, href }, n) => element("a", { class: n || isDone ? "button" : "button is-primary", href }, label)),
      element("a", { class: "button", href: "#connect" }, "Other ways"),
    ];
  }

  /** @param {StepId} step @returns {HTMLElement[]} */
  #more(step) {
    if (step !== "connect" || !this.#place) return [];
    const { tokenCommand, server } = this.#place;
    return [codeBlock(installCommand({ name: server, tokenCommand }, "claude-code"), "shell")];
  }

  async #cut() {
    this.#isCutting = true;
    this.#show();
    try {
      await this.#actions.cut();
    } finally {
      this.#isCutting = false;
      this.#show();
    }
  }
}

/** @param {string} label @param {() => unknown} act @param {boolean} [isPrimary] @param {boolean} [isDisabled] */
function button(label, act, isPrimary = false, isDisabled = false) {
  const made = element("button", { type: "button", class: isPrimary ? "button is-primary" : "button", disabled: isDisabled }, label);
  made.addEventListener("click", () => act());
  return made;
}
