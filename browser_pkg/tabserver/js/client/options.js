/**
 * Options of `connect()`: the list of known ones, a check that names unknown and invalid ones, and what several calls add up to.
 *
 * An unknown option is reported and otherwise ignored, because a newer app may use an older client. The token and the worker file
 * belong to `token.js` and `startup.js`, Python files to `worker_modules.js`.
 *
 * @import { ConnectOptions, RunPython } from "../client.js"
 */

import { Problem } from "./reasons.js";

/** Every option, and the members of those that are objects. A new option needs an entry here and in `client.d.ts`. */
export const OPTIONS = {
  server: [],
  relay: [],
  token: [],
  worker: [],
  approve: [],
  modules: [],
  timing: [
    "connect_ms", "first_delay_ms", "longest_delay_ms", "stable_ms", "watchdog_ms", "tab_quiet_ms", "tab_silence_ms",
    "tab_return_ms", "last_tab_return_ms", "tab_doubt_ms", "tab_busy_ms", "approve_ms", "approve_unseen_ms",
  ],
  mode: [],
  instance: [],
  instructions: [],
  title: [],
  version: [],
  icons: [],
  websiteUrl: [],
  packages: [],
  panel: [],
  dev: [],
  runPython: ["name", "timeoutMs", "maxOutput"],
};
const IDENTITY = /** @type {const} */ (["instructions", "title", "version", "websiteUrl", "icons"]);
/** Claude Code shows its model this many characters of the instructions. */
const SHOWN_INSTRUCTIONS = 2048;
const RUN_PYTHON = { timeoutMs: 30_000, maxOutput: 100_000 };
const isText = (/** @type {unknown} */ value) => typeof value === "string" && value.trim() !== "";
const isAddress = (/** @type {unknown} */ value) => (isText(value) || value instanceof URL) && URL.canParse(`${value}`, location.href);
const isList = (/** @type {unknown} */ value) => Array.isArray(value) && value.every((each) => isText(each) || each instanceof URL);
const isBoolean = (/** @type {unknown} */ value) => typeof value === "boolean";
const TRUE_OR_FALSE = "Pass true or false.";
/** What values of an option have to be, and how it is passed. @type {Record<string, [(value: unknown) => boolean, string]>} */
const TYPES = {
  token: [isText, 'Pass the text of a token: token: "…". Without the option, the page asks for your approval.'],
  worker: [isAddress, 'Pass the address of the relay\'s loader: worker: "/tabrelay.js".'],
  modules: [isList, 'Pass a list of addresses: modules: ["tools.py"].'],
  packages: [isList, 'Pass a list of names: packages: ["numpy"].'],
  panel: [isBoolean, TRUE_OR_FALSE],
  dev: [isBoolean, TRUE_OR_FALSE],
  mode: [(value) => value === "shared" || value === "elected", 'Pass "shared" or "elected".'],
  approve: [isApproval, 'Pass "destructive", "all", "none" or a list of tools.'],
  instance: [isInstance, "Use at most 32 letters, digits, \"-\", \"_\" and \".\", and begin with a letter or digit."],
};
/** The grammar of wire/names.py. */
const SERVER_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const INSTANCE = /^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$/;

/** The options of all calls of `connect` for one connection. */
export class MergedOptions {
  /** @type {RunPython | undefined} */
  runPython;
  /** @type {ConnectOptions["approve"]} */
  approve;
  /** @type {ConnectOptions["timing"]} */
  timing;
  /** @type {boolean | undefined} */
  panel;
  /** What the page says of its server. @type {Pick<ConnectOptions, (typeof IDENTITY)[number]>} */
  about = {};

  /**
   * Add the options of a call. Returns whether the worker has to be told.
   * @param {ConnectOptions} options
   */
  add(options) {
    if (options.runPython) this.runPython ??= { ...RUN_PYTHON, ...(options.runPython === true ? {} : options.runPython) };
    this.approve = options.approve ?? this.approve;
    this.panel = options.panel ?? this.panel;
    this.timing ??= options.timing;
    const about = Object.fromEntries(IDENTITY.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]));
    this.about = { ...this.about, ...about };
    warnOfLongInstructions(options.instructions);
    return Boolean(options.runPython || options.approve || Object.keys(about).length);
  }

  /** Their part of the message `attach`. */
  forWorker() {
    return {
      ...(this.timing ? { timing: this.timing } : {}),
      ...(this.runPython ? { runPython: this.runPython } : {}),
    };
  }
}

/** @param {unknown} instructions */
function warnOfLongInstructions(instructions) {
  if (typeof instructions !== "string" || instructions.length <= SHOWN_INSTRUCTIONS) return;
  console.warn(
    `tabrelay: The instructions have ${instructions.length} characters. Some clients cut them after ${SHOWN_INSTRUCTIONS}, ` +
      "such as Claude Code. Put what matters first, or shorten them. [TR482]",
  );
}

/**
 * What is wrong with these options, but does not keep the page from serving.
 * @param {ConnectOptions} options
 * @returns {Problem[]}
 */
export function checkOptions(options) {
  const problems = unknownOf(options, Object.keys(OPTIONS), "");
  for (const [name, members] of Object.entries(OPTIONS)) {
    const value = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (options))[name];
    if (members.length && typeof value === "object" && value) problems.push(...unknownOf(value, members, `${name}.`));
  }
  for (const [name, [isValid, advice]] of Object.entries(TYPES)) {
    const value = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (options))[name] ?? undefined;
    if (value !== undefined && !isValid(value)) problems.push(new Problem("option_invalid", { option: name, type: typeOf(value), advice }));
  }
  return problems;
}

/** In words. A list is not shown, because it may contain a token. @param {unknown} value */
function typeOf(value) {
  if (Array.isArray(value)) return value.length ? "a list with other values" : "an empty list";
  if (typeof value === "string") return value.trim() ? `the text ${JSON.stringify(value).slice(0, 80)}` : "an empty text";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

/** @param {unknown} value */
function isApproval(value) {
  return isList(value) || ["destructive", "all", "none"].includes(String(value));
}

/** @param {unknown} name */
export function isInstance(name) {
  return typeof name === "string" && INSTANCE.test(name);
}

/** @param {unknown} name */
export function isServerName(name) {
  return typeof name === "string" && SERVER_NAME.test(name);
}

/**
 * @param {object} given
 * @param {string[]} known
 * @param {string} prefix
 */
function unknownOf(given, known, prefix) {
  return Object.keys(given)
    .filter((name) => !known.includes(name))
    .map((name) => {
      const similar = nearest(name, known);
      const advice = similar ? `Did you mean "${prefix}${similar}"?` : `It knows: ${known.join(", ")}.`;
      return new Problem("option_unknown", { option: `${prefix}${name}`, advice });
    });
}

/**
 * The known name that was probably meant, if one is close.
 * @param {string} name
 * @param {string[]} known
 */
export function nearest(name, known) {
  const ranked = known
    .map((each) => ({ each, distance: distance(name.toLowerCase(), each.toLowerCase()) }))
    .sort((a, b) => a.distance - b.distance);
  const [best] = ranked;
  return best && best.distance <= Math.max(1, Math.floor(Math.min(name.length, best.each.length) / 3)) ? best.each : undefined;
}

/**
 * Edit distance, in which two exchanged neighbours count as one edit. Names of more than 40 characters are not compared.
 * @param {string} a
 * @param {string} b
 */
function distance(a, b) {
  if (a.length > 40 || b.length > 40) return Infinity;
  /** @type {number[][]} */
  const rows = [...Array(a.length + 1)].map((_, i) => [i, ...Array(b.length).fill(0)]);
  const at = (/** @type {number} */ i, /** @type {number} */ j) => rows[i]?.[j] ?? (i === 0 ? j : Infinity);
  for (let j = 0; j <= b.length; j++) /** @type {number[]} */ (rows[0])[j] = j;
  for (let i = 1; i <= a.length; i++) {
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swapped = isSwapped ? at(i - 2, j - 2) + 1 : Infinity;
      /** @type {number[]} */ (rows[i])[j] = Math.min(at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + same, swapped);
    }
  }
  return at(a.length, b.length);
}
