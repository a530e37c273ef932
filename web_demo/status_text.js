/**
 * Draws the state of the connection: lamp, words, what to do, and the progress of the first boot.
 *
 * The words come from state.js; this file decides nothing but where they go.
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

/** @param {(action: NonNullable<Notice["action"]>) => void} onAction */
export function statusText(onAction) {
  const section = byId("state", HTMLElement);
  const lamp = byId("state-lamp", HTMLElement);
  const title = byId("state-title", HTMLElement);
  const text = byId("state-text", HTMLElement);
  const detail = byId("state-detail", HTMLElement);
  const button = byId("state-action", HTMLButtonElement);
  const next = byId("state-next", HTMLElement);
  const todo = byId("state-todo", HTMLElement);
  const boot = byId("boot", HTMLElement);
  const bar = byId("boot-bar", HTMLProgressElement);

  /** @type {Notice["action"]} */
  let action;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let countdown;
  button.addEventListener("click", () => action && onAction(action));

  /** @param {Notice} notice @param {string | null} message */
  function showNotice(notice, message) {
    lamp.dataset.lamp = notice.lamp;
    setText(title, notice.title);
    setText(text, notice.text);
    const isDetailShown = notice.hasDetail && message;
    detail.hidden = !isDetailShown;
    setText(detail, isDetailShown ? message : "");
    action = notice.action;
    button.hidden = !action;
    if (action) setText(button, ACTIONS[action]);
    showTodo(notice);
  }

  /** @param {Notice} notice */
  function showTodo(notice) {
    todo.hidden = !notice.command;
    const [label, place] = todo.children;
    if (!notice.command || !label || !place) return;
    setText(label, notice.todo ?? "");
    if (place.querySelector("code")?.textContent !== notice.command) place.replaceChildren(command(notice.command));
  }

  /**
   * A page that counts down says that it has not given up. Outside the live region: nobody wants to hear it.
   *
   * @param {number | null} retryInMs
   */
  function count(retryInMs) {
    clearInterval(countdown);
    next.hidden = retryInMs === null;
    if (retryInMs === null) return;
    const due = Date.now() + retryInMs;
    const update = () => {
      const left = Math.ceil((due - Date.now()) / SECOND_MS);
      setText(next, left > 0 ? `next try in ${left} s` : "trying…");
    };
    update();
    countdown = setInterval(update, SECOND_MS / 4);
  }

  return {
    /** @param {StateMessage} state @param {Place} place @returns {Notice["lamp"]} */
    show(state, place) {
      section.dataset.state = state.state;
      section.dataset.why = state.why ?? "";
      boot.hidden = true;
      const notice = noticeOf(state, place);
      showNotice(notice, state.message);
      count(state.state === "waiting" ? state.retry_in_ms : null);
      return notice.lamp;
    },

    /** @param {BootMessage} message */
    boot(message) {
      if (message.stage === "ready" || message.stage === "failed") {
        boot.hidden = true;
        return;
      }
      showNotice(bootNotice(message), null);
      boot.hidden = false;
      const label = boot.querySelector("label");
      const { loaded, total } = message;
      if (message.stage === "download" && loaded !== undefined && total) {
        bar.value = Math.min(1, loaded / total);
        if (label) setText(label, `${megabytes(loaded)} of ${megabytes(total)} MB`);
      } else {
        bar.removeAttribute("value");
        if (label) setText(label, message.stage === "download" ? "Downloading" : "Almost there");
      }
    },
  };
}

/** @param {number} bytes */
function megabytes(bytes) {
  return (bytes / 1_000_000).toFixed(1);
}
