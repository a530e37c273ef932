/**
 * Status panel of the demo page: lamp, title, text, what to do, and the progress of the first boot.
 *
 * `state.js` turns a state into texts; this file puts them into the document. It decides no text.
 */

import { command } from "/-/page/clients.js";
import { byId, setText } from "/-/page/element.js";
import { ACTIONS, bootNotice, noticeOf } from "./state.js";

/**
 * @typedef {import("./state.js").Notice} Notice
 * @typedef {import("./state.js").Place} Place
 * @typedef {import("./state.js").StateMessage} StateMessage
 * @typedef {import("./state.js").BootMessage} BootMessage
 */

const SECOND_MS = 1000;

export class StatusText {
  #section = byId("state", HTMLElement);
  #title = byId("state-title", HTMLElement);
  #text = byId("state-text", HTMLElement);
  #detail = byId("state-detail", HTMLElement);
  #button = byId("state-action", HTMLButtonElement);
  #next = byId("state-next", HTMLElement);
  #todo = byId("state-todo", HTMLElement);
  #boot = byId("boot", HTMLElement);
  #bar = byId("boot-bar", HTMLProgressElement);
  /** @type {Notice["action"]} */
  #action;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #countdown;

  /** @param {(action: NonNullable<Notice["action"]>) => void} onAction */
  constructor(onAction) {
    this.#button.addEventListener("click", () => this.#action && onAction(this.#action));
  }

  /** @param {StateMessage} state @param {Place} place @returns {Notice["lamp"]} */
  show(state, place) {
    this.#section.dataset.state = state.state;
    this.#section.dataset.why = state.why ?? "";
    this.#boot.hidden = true;
    const notice = noticeOf(state, place);
    this.#showNotice(notice, state.message);
    this.#count(state.state === "waiting" ? state.retry_in_ms : null);
    return notice.lamp;
  }

  /** @param {BootMessage} message */
  boot(message) {
    if (message.stage === "ready" || message.stage === "failed") {
      this.#boot.hidden = true;
      return;
    }
    this.#showNotice(bootNotice(message), null);
    this.#boot.hidden = false;
    const label = this.#boot.querySelector("label");
    const { loaded, total } = message;
    if (message.stage === "download" && loaded !== undefined && total) {
      this.#bar.value = Math.min(1, loaded / total);
      if (label) setText(label, `${megabytes(loaded)} of ${megabytes(total)} MB`);
    } else {
      this.#bar.removeAttribute("value");
      if (label) setText(label, message.stage === "download" ? "Downloading" : "Almost there");
    }
  }

  /** @param {Notice} notice @param {string | null} message */
  #showNotice(notice, message) {
    this.#title.dataset.lamp = notice.lamp;
    setText(this.#title, notice.title);
    setText(this.#text, notice.text);
    const isDetailShown = notice.hasDetail && message;
    this.#detail.hidden = !isDetailShown;
    setText(this.#detail, isDetailShown ? message : "");
    this.#action = notice.action;
    this.#button.hidden = !notice.action;
    if (notice.action) setText(this.#button, ACTIONS[notice.action]);
    this.#showTodo(notice);
  }

  /** @param {Notice} notice */
  #showTodo(notice) {
    this.#todo.hidden = !notice.command;
    const [label, place] = this.#todo.children;
    if (!notice.command || !label || !place) return;
    setText(label, notice.todo ?? "");
    if (place.querySelector("code")?.textContent !== notice.command) place.replaceChildren(command(notice.command));
  }

  /**
   * The countdown shows that the page keeps trying. It is outside the live region, so screen readers do not read it.
   *
   * @param {number | null} retryInMs
   */
  #count(retryInMs) {
    clearInterval(this.#countdown);
    this.#next.hidden = retryInMs === null;
    if (retryInMs === null) return;
    const due = Date.now() + retryInMs;
    const update = () => {
      const left = Math.ceil((due - Date.now()) / SECOND_MS);
      setText(this.#next, left > 0 ? `next try in ${left} s` : "trying…");
    };
    update();
    this.#countdown = setInterval(update, SECOND_MS / 4);
  }
}

/** @param {number} bytes */
function megabytes(bytes) {
  return (bytes / 1_000_000).toFixed(1);
}
