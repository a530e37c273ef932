/**
 * Approval of tool calls by the user: a queue of questions, shown one at a time in the app's dialog or in ours.
 *
 * A question disappears when the worker no longer waits for it. The worker decides which calls need approval and how long they
 * wait, not this module.
 *
 * @import { Approval, Decision } from "../client.js"
 * @import { ApproveMessage } from "../ports.js"
 */

import { showDialog } from "./approval_dialog.js";
import { requestAttention } from "./attention.js";

/** @typedef {{ message: ApproveMessage, decide: (decision: Decision) => void, ended: AbortController }} Question */

const DECISIONS = ["once", "session", "refuse"];

/** One queue for the whole page, with all its connections. @type {Question[]} */
const waiting = [];
/** @type {Question | undefined} */
let shown;

export class Approvals {
  /** @type {Map<string, Question>} */
  #open = new Map();

  /**
   * @param {ApproveMessage} message
   * @param {(approval: Approval) => boolean} offer true: the page asks the user itself
   * @param {(decision: Decision) => void} answer
   */
  ask(message, offer, answer) {
    const ended = new AbortController();
    const decide = (/** @type {Decision} */ decision) => {
      if (ended.signal.aborted) return;
      if (!DECISIONS.includes(decision)) throw new TypeError(`A decision is one of ${DECISIONS.join(", ")}. [TR484]`);
      this.#close(message.call);
      answer(decision);
    };
    const question = { message, decide, ended };
    this.#open.set(message.call, question);
    const { name, title, arguments: args, more, destructive, caller } = message;
    const approval = { name, title, arguments: args, isCut: more > 0, destructive, caller, signal: ended.signal, decide };
    if (!offer(approval)) queue(question);
  }

  /**
   * The worker no longer waits for the decision.
   * @param {string} call
   */
  end(call) {
    this.#close(call);
  }

  /** The worker is gone, and its calls with it. */
  endAll() {
    for (const call of [...this.#open.keys()]) this.#close(call);
  }

  /** @param {string} call */
  #close(call) {
    const question = this.#open.get(call);
    this.#open.delete(call);
    question?.ended.abort();
  }
}

/** @param {Question} question */
function queue(question) {
  waiting.push(question);
  question.ended.signal.addEventListener("abort", () => {
    const index = waiting.indexOf(question);
    if (index >= 0) waiting.splice(index, 1);
  });
  showNext();
}

function showNext() {
  if (shown) return;
  shown = waiting.shift();
  if (!shown) return;
  const { message, decide, ended } = shown;
  const dialog = describe(message);
  const close = showDialog(dialog, () => waiting.length, decide);
  const endAttention = requestAttention(dialog.title);
  ended.signal.addEventListener("abort", () => {
    close();
    endAttention();
    shown = undefined;
    showNext();
  });
}

/**
 * Who asks, how that is known, and what happens, in this order. The arguments follow as JSON.
 *
 * @param {ApproveMessage} message
 */
function describe({ name, title, description, arguments: args, more, destructive, caller }) {
  const token = oneLine(caller.principal.replace(/^token:/, ""));
  const who = caller.client ? `A client that calls itself “${oneLine(caller.client)}” asks.` : "A client without a name asks.";
  const tool = title ? `“${oneLine(title)}” (${oneLine(name)})` : `“${oneLine(name)}”`;
  const about = description ? ` Its description: “${oneLine(description)}”` : "";
  return {
    title: `Approve “${oneLine(title || name)}”?`,
    text: [
      `${who} The relay has verified its token “${token}”, not its name.`,
      `If you approve, this page runs its tool ${tool} with the arguments below.${about}`,
    ],
    warning: destructive ? "The tool is marked as destructive: you may not be able to undo what it does." : "",
    lasting: caller.session ? "Approve for this session" : "Approve for this token",
    details: escapeInvisible(args) + (more ? `\n… and ${more.toLocaleString()} more characters` : ""),
  };
}

/**
 * The text on one line, without characters that could end the quotation around it.
 * @param {string} text
 */
function oneLine(text) {
  return escapeInvisible(text.replaceAll("\n", " ").replace(/[“”„‟]/g, '"'));
}

/**
 * Text of other programs: invisible characters and characters that change the direction are written as escapes.
 * @param {string} text
 */
function escapeInvisible(text) {
  return text.replace(
    /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|[\u{e0000}-\u{e007f}]/gu,
    (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}
