/**
 * Command palette: Ctrl-K or ⌘K finds servers, tools, calls, filters and actions by words.
 *
 * A modal dialog with a combobox: arrows move, Enter runs, Escape closes. Entries are asked for when it opens.
 */

import { element } from "../element.js";

/** @typedef {{ kind: string, text: string, hint?: string, run: () => void }} Command */

const MAX_SHOWN = 50;

/** @param {() => Command[]} commands */
export function commandPalette(commands) {
  const input = element("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-label": "Search for a command", placeholder: "Server, tool, call, filter or action", autocomplete: "off", spellcheck: "false" });
  const list = element("ul", { id: "palette-list", role: "listbox", "aria-label": "Commands" });
  const dialog = element("dialog", { class: "dialog palette", "aria-label": "Commands" }, input, list);
  document.body.append(dialog);
  /** @type {Command[]} */
  let all = [];
  /** @type {Command[]} */
  let found = [];
  let active = 0;

  const draw = () => {
    const words = input.value.toLowerCase().split(/\s+/u).filter(Boolean);
    found = all.filter(({ kind, text, hint = "" }) => words.every((word) => `${kind} ${text} ${hint}`.toLowerCase().includes(word))).slice(0, MAX_SHOWN);
    active = Math.min(active, Math.max(0, found.length - 1));
    list.replaceChildren(...found.map((command, index) => optionItem(command, index, index === active, () => choose(index))));
    if (found.length) input.setAttribute("aria-activedescendant", `command-${active}`);
    else input.removeAttribute("aria-activedescendant");
    list.children[active]?.scrollIntoView({ block: "nearest" });
  };
  /** @param {number} index */
  const choose = (index) => {
    const command = found[index];
    dialog.close();
    command?.run();
  };
  const open = () => {
    if (dialog.open) return;
    all = commands();
    input.value = "";
    active = 0;
    dialog.showModal();
    draw();
    input.focus();
  };
  input.addEventListener("input", () => {
    active = 0;
    draw();
  });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && found.length) {
      event.preventDefault();
      active = (active + step + found.length) % found.length;
      draw();
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(active);
    }
  });
  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
    event.preventDefault();
    open();
  });
  return { open };
}

/**
 * @param {Command} command
 * @param {number} index
 * @param {boolean} isActive
 * @param {() => void} choose
 */
function optionItem({ kind, text, hint = "" }, index, isActive, choose) {
  const parts = [element("span", { class: "hint" }, kind), element("span", { class: "text" }, text), element("span", { class: "hint" }, hint)];
  const item = element("li", { role: "option", id: `command-${index}`, "aria-selected": String(isActive) }, ...parts);
  item.addEventListener("click", choose);
  return item;
}
