/**
 * Filter language of the console: `tool:add server:demo status:failed ms:>500 -client:vscode words`.
 *
 * All terms must match. A comma inside a value means "or", `-` before a term means "not", quotes keep spaces together. A key that
 * does not exist is reported, and its term is searched for as a word. Pure functions; the filter knows rows only, no bodies.
 */

import { TOOLS_CALL } from "../mcp_methods.js";
import { clientOf, isError, isOpen, msOf, outcomeOf, tabOf, titleOf } from "./rows.js";

/**
 * @typedef {import("./rows.js").Row} Row
 * @typedef {{ key: string, value: string, isNot: boolean, isIncomplete?: boolean, matches: (row: Row, now: number) => boolean }} Term
 *   an incomplete term, such as `tool:` while a person types, keeps all rows
 * @typedef {{ text: string, terms: Term[], problems: string[], matches(row: Row, now?: number): boolean }} Filter
 */

/** What each key compares. @type {Record<string, (row: Row) => string>} */
const TEXTS = {
  tool: (row) => (row.method === TOOLS_CALL ? (row.name ?? "") : ""),
  name: (row) => row.name ?? "",
  server: (row) => row.server,
  client: clientOf,
  tab: (row) => [tabOf(row), row.tab ?? ""].join(" ").trim(),
  method: (row) => row.method,
  era: (row) => row.era ?? "",
  by: (row) => row.by,
  peer: (row) => row.peer,
  kind: (row) => row.kind,
  relay: (row) => row.relay ?? "",
  trace: (row) => row.trace ?? "",
  token: (row) => row.principal ?? "",
  error: (row) => (row.error ? `${row.error.reason} ${row.error.message ?? ""}` : ""),
  code: (row) => (row.code === null ? "" : String(row.code)),
  group: (row) => row.group,
};

/** Keys whose value is a number, such as `ms:>500`. @type {Record<string, (row: Row, now: number) => number>} */
const NUMBERS = {
  ms: msOf,
  bytes: (row) => row.bytes_in + row.bytes_out,
  tokens: (row) => (row.tokens_in ?? 0) + (row.tokens_out ?? 0),
  at: (row) => row.started,
};

const NUMBER = /^(>=|<=|>|<|=)?(\d+(?:\.\d+)?)$/;
const RANGE = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/;

/** Keys and what they mean, for the help and for completion. @type {[key: string, about: string][]} */
export const KEYS = [
  ["tool", "name of the tool"],
  ["server", "name of the server"],
  ["client", "name that the client gives"],
  ["tab", "title or id of the tab"],
  ["status", "done, failed, refused, cancelled, running, waiting; error: failed or refused; or a reason"],
  ["method", "MCP method"],
  ["ms", "duration: ms:>500, ms:100-200"],
  ["era", "protocol version"],
  ["by", "client or console"],
  ["peer", "browser, upstream, node or relay"],
  ["relay", "name of the relay"],
  ["token", "name of the token"],
  ["error", "reason or text of the error"],
  ["code", "JSON-RPC code of the error"],
  ["bytes", "size of request and result: bytes:>10000"],
  ["tokens", "estimated tokens of request and result"],
  ["trace", "trace id"],
];

/**
 * @param {string} text
 * @returns {Filter}
 */
export function parseFilter(text) {
  /** @type {string[]} */
  const problems = [];
  const terms = words(text).map((word) => term(word, problems));
  return {
    text: text.trim(),
    terms,
    problems,
    matches: (row, now = Date.now()) => terms.every((each) => each.isIncomplete || each.matches(row, now) !== each.isNot),
  };
}

/** A term for a value: quoted if it contains a space. @param {string} key @param {string} value */
export function termText(key, value) {
  return /[\s",]/u.test(value) || value === "" ? `${key}:"${value.replaceAll('"', "")}"` : `${key}:${value}`;
}

/**
 * The text with this term in place of other terms of its key. Without a value, the key's terms are removed.
 *
 * @param {string} text
 * @param {string} key
 * @param {string | null} value
 */
export function withTerm(text, key, value) {
  const others = words(text).filter((word) => !word.startsWith(`${key}:`));
  return [...others, ...(value === null ? [] : [termText(key, value)])].join(" ");
}

/** The words of a text; quotes keep spaces together and stay. @param {string} text */
function words(text) {
  return text.match(/(?:[^\s"]|"[^"]*"?)+/gu) ?? [];
}

/**
 * @param {string} word
 * @param {string[]} problems
 * @returns {Term}
 */
function term(word, problems) {
  const isNot = word.startsWith("-") && word.length > 1;
  const bare = isNot ? word.slice(1) : word;
  const at = bare.indexOf(":");
  const key = at > 0 && !bare.startsWith('"') ? bare.slice(0, at).toLowerCase() : "";
  const value = unquoted(bare.slice(at + 1));
  const isQuoted = bare.slice(at + 1).startsWith('"');
  const isIncomplete = !isQuoted && !value.replaceAll(",", "");
  if (key === "status") return { key, value, isNot, isIncomplete, matches: statusMatcher(value) };
  const text = Object.hasOwn(TEXTS, key) ? TEXTS[key] : undefined;
  if (text) return { key, value, isNot, isIncomplete, matches: textMatcher(value, isQuoted, text) };
  const number = Object.hasOwn(NUMBERS, key) ? NUMBERS[key] : undefined;
  if (number) {
    const matches = numberMatcher(value, number);
    if (!matches && value) problems.push(`“${key}:” needs a number, such as ${key}:>500 or ${key}:100-200.`);
    return { key, value, isNot, isIncomplete: !matches, matches: matches ?? (() => true) };
  }
  if (/^[a-z]+$/u.test(key) && value !== "" && !value.startsWith("//")) problems.push(`There is no key “${key}”.`);
  const wanted = unquoted(bare).toLowerCase();
  return { key: "", value: wanted, isNot, isIncomplete: !wanted, matches: (row) => searchText(row).includes(wanted) };
}

/** @param {string} text */
function unquoted(text) {
  return text.replaceAll('"', "");
}

/** Text that words are searched in. @param {Row} row */
function searchText(row) {
  const parts = [row.server, titleOf(row), clientOf(row), tabOf(row), outcomeOf(row), row.error?.message ?? "", row.era ?? "", row.trace ?? ""];
  return parts.join(" ").toLowerCase();
}

/**
 * @param {string} value
 * @param {boolean} isQuoted a comma is part of the value
 * @param {(row: Row) => string} text
 * @returns {Term["matches"]}
 */
function textMatcher(value, isQuoted, text) {
  const wanted = (isQuoted ? [value] : value.split(",")).map((each) => each.toLowerCase()).filter(Boolean);
  if (!wanted.length) return (row) => text(row) === "";
  return (row) => {
    const found = text(row).toLowerCase();
    return wanted.some((each) => (each.endsWith("$") ? found === each.slice(0, -1) : found.includes(each)));
  };
}

/** @param {string} value @returns {Term["matches"]} */
function statusMatcher(value) {
  const wanted = value.toLowerCase().split(",").filter(Boolean);
  return (row) =>
    wanted.length === 0 ||
    wanted.some((each) => {
      if (each === "error") return isError(row);
      if (each === "ok") return row.state === "done";
      if (each === "open") return isOpen(row);
      if (each === "held") return Boolean(row.held);
      return row.state === each || row.error?.reason === each;
    });
}

/**
 * @param {string} value
 * @param {(row: Row, now: number) => number} number
 * @returns {Term["matches"] | null} null: it is no number
 */
function numberMatcher(value, number) {
  const range = RANGE.exec(value);
  if (range) return (row, now) => number(row, now) >= Number(range[1]) && number(row, now) <= Number(range[2]);
  const found = NUMBER.exec(value);
  if (!found) return null;
  const limit = Number(found[2]);
  /** @type {Record<string, (value: number) => boolean>} */
  const compares = {
    ">": (each) => each > limit,
    ">=": (each) => each >= limit,
    "<": (each) => each < limit,
    "<=": (each) => each <= limit,
    "=": (each) => Math.round(each) === Math.round(limit),
  };
  const compare = compares[found[1] ?? ">="];
  return (row, now) => compare?.(number(row, now)) ?? true;
}
