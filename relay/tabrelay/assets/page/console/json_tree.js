/**
 * Tree of a JSON value: folded, searchable, with a button that copies.
 *
 * `jsonTree(value, label)` returns an element. Branches are made when they are opened, long lists in pieces, and long texts are cut
 * with a button for the rest. All texts go in as text nodes. Search opens the branches with matches, up to `MAX_MATCHES`.
 */

import { copyText } from "../code_block.js";
import { element } from "../element.js";

const OPEN_DEPTH = 2;
const OPEN_SIZE = 20;
const PIECE = 100;
const MAX_TEXT = 600;
const MAX_MATCHES = 200;
const MAX_VISITS = 100_000;
const COPIED_MS = 1600;

/** @typedef {(string | number)[]} Path */

/**
 * @param {unknown} value
 * @param {string} label for screen readers, and of the search field
 * @returns {HTMLElement}
 */
export function jsonTree(value, label) {
  const body = element("div", { class: "json-body", role: "group", "aria-label": label, tabindex: 0 }, branch("", value, 0));
  const search = element("input", { type: "search", placeholder: "Search", "aria-label": `Search in ${label}`, autocomplete: "off", spellcheck: "false" });
  const count = element("span", { class: "hint", role: "status" });
  const copy = element("button", { type: "button", class: "button is-quiet is-small" }, "Copy");
  copy.addEventListener("click", async () => {
    copy.textContent = (await copyText(JSON.stringify(value, null, 2) ?? "", body)) ? "Copied" : "Press Ctrl+C";
    setTimeout(() => (copy.textContent = "Copy"), COPIED_MS);
  });
  search.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    body.replaceChildren(branch("", value, 0));
    if (!wanted) return void (count.textContent = "");
    const { paths, isMore } = findPaths(value, wanted);
    for (const path of paths) reveal(body, path, wanted);
    count.textContent = `${paths.length}${isMore ? "+" : ""} ${paths.length === 1 ? "match" : "matches"}`;
    body.querySelector(".is-match")?.scrollIntoView({ block: "nearest" });
  });
  return element("div", { class: "json" }, element("div", { class: "json-tools row" }, search, count, copy), body);
}

/**
 * Paths of names and values that contain the text, in the order of the document.
 *
 * @param {unknown} value
 * @param {string} wanted in lower case
 * @returns {{ paths: Path[], isMore: boolean }}
 */
function findPaths(value, wanted) {
  /** @type {Path[]} */
  const paths = [];
  let visits = 0;
  /** @param {unknown} node @param {Path} path @returns {boolean} false: enough was found */
  const visit = (node, path) => {
    if (++visits > MAX_VISITS || paths.length >= MAX_MATCHES) return false;
    const name = path.at(-1);
    const isLeaf = node === null || typeof node !== "object";
    const isMatch = (typeof name === "string" && name.toLowerCase().includes(wanted)) || (isLeaf && String(node).toLowerCase().includes(wanted));
    if (isMatch) paths.push(path);
    return isLeaf || entriesOf(node).every(([key, inner]) => visit(inner, [...path, key]));
  };
  const isWhole = visit(value, []);
  return { paths, isMore: !isWhole };
}

/** @param {object} node @returns {[string | number, unknown][]} */
function entriesOf(node) {
  return Array.isArray(node) ? node.map((each, index) => [index, each]) : Object.entries(node);
}

/**
 * @param {string | number} name
 * @param {unknown} value
 * @param {number} depth
 * @returns {HTMLElement}
 */
function branch(name, value, depth) {
  if (value === null || typeof value !== "object") return leaf(name, value);
  const entries = entriesOf(value);
  const isList = Array.isArray(value);
  const brackets = isList ? `[${entries.length}]` : `{${entries.length}}`;
  const hint = element("span", { class: "json-hint" }, ` ${brackets} ${preview(value)}`);
  const inside = element("div", { class: "json-inside" });
  const node = element("details", { class: "json-branch", "data-name": name }, element("summary", {}, nameOf(name), hint), inside);
  const fill = () => {
    if (node.open && !inside.childElementCount) addPiece(inside, entries, 0, depth + 1);
  };
  node.addEventListener("toggle", fill);
  if (entries.length && depth < OPEN_DEPTH && entries.length <= OPEN_SIZE && name !== "_meta") {
    node.open = true;
    fill();
  }
  return node;
}

/**
 * @param {HTMLElement} place
 * @param {[string | number, unknown][]} entries
 * @param {number} from
 * @param {number} depth
 */
function addPiece(place, entries, from, depth) {
  place.append(...entries.slice(from, from + PIECE).map(([name, value]) => branch(name, value, depth)));
  const left = entries.length - from - PIECE;
  if (left <= 0) return;
  const more = element("button", { type: "button", class: "button is-quiet is-small more" }, `${left} more`);
  more.addEventListener("click", () => {
    more.remove();
    addPiece(place, entries, from + PIECE, depth);
  });
  place.append(more);
}

/** @param {string | number} name @param {unknown} value */
function leaf(name, value) {
  const text = typeof value === "string" ? value : String(value);
  const isLong = text.length > MAX_TEXT;
  const kind = typeof value === "string" ? "string" : typeof value === "number" ? "number" : "keyword";
  const shown = element("span", { class: `json-value code-${kind}` }, isLong ? `${text.slice(0, MAX_TEXT)}…` : typeof value === "string" ? JSON.stringify(text) : text);
  const line = element("div", { class: "json-leaf", "data-name": name }, nameOf(name), shown);
  if (isLong) {
    const more = element("button", { type: "button", class: "button is-quiet is-small" }, `${text.length - MAX_TEXT} more characters`);
    more.addEventListener("click", () => {
      shown.textContent = text;
      more.remove();
    });
    line.append(more);
  }
  return line;
}

/** @param {string | number} name */
function nameOf(name) {
  return name === "" ? null : element("span", { class: "json-name" }, element("span", { class: "code-name" }, String(name)), ": ");
}

/** The first members, for a branch that is closed. @param {object} value */
function preview(value) {
  const names = Array.isArray(value) ? [] : Object.keys(value).slice(0, 5);
  return names.join(", ");
}

/**
 * Open the branches to a path, and mark its end.
 *
 * @param {HTMLElement} body
 * @param {Path} path
 * @param {string} wanted
 */
function reveal(body, path, wanted) {
  let node = body.firstElementChild;
  for (const name of path) {
    if (!(node instanceof HTMLDetailsElement)) return;
    node.open = true;
    node.dispatchEvent(new Event("toggle"));
    const inside = node.querySelector(":scope > .json-inside");
    const child = () => [...(inside?.children ?? [])].find((each) => each instanceof HTMLElement && each.dataset.name === String(name));
    let found = child();
    for (let more = inside?.querySelector(":scope > .more"); !found && more instanceof HTMLElement; more = inside?.querySelector(":scope > .more")) {
      more.click();
      found = child();
    }
    node = found ?? null;
  }
  node?.classList.add("is-match");
  const value = node?.querySelector(":scope > .json-value");
  if (value) markText(value, wanted);
}

/** @param {Element} place @param {string} wanted */
function markText(place, wanted) {
  const text = place.textContent ?? "";
  const at = text.toLowerCase().indexOf(wanted);
  if (at < 0) return;
  const end = at + wanted.length;
  place.replaceChildren(text.slice(0, at), element("mark", {}, text.slice(at, end)), text.slice(end));
}
