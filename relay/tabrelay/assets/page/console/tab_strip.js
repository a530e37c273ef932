/**
 * Row of tabs with one panel: the parts of a drawer. Arrow keys, Home and End move between tabs.
 *
 * A panel is made when its tab is chosen first, and stays until the strip is removed.
 */

import { element } from "../element.js";

/**
 * @typedef {{ id: string, label: string, make: () => HTMLElement }} Part
 *
 * @param {string} label
 * @param {Part[]} parts
 * @param {{ chosen?: string, onChoice?: (id: string) => void }} [options]
 */
export function tabStrip(label, parts, { chosen = "", onChoice } = {}) {
  const key = `parts-${crypto.randomUUID()}`;
  const strip = element("div", { class: "tabs", role: "tablist", "aria-label": label });
  const place = element("div", { class: "tab-panels" });
  /** @type {Map<string, HTMLElement>} */
  const panels = new Map();
  const buttons = parts.map(({ id, label: text }) => element("button", { type: "button", role: "tab", id: `${key}-${id}`, "data-part": id, "aria-controls": `${key}-${id}-panel` }, text));
  strip.append(...buttons);

  /** @param {string} id */
  const choose = (id) => {
    const index = Math.max(0, parts.findIndex((part) => part.id === id));
    const part = parts[index];
    if (!part) return;
    buttons.forEach((button, at) => {
      button.setAttribute("aria-selected", at === index ? "true" : "false");
      button.tabIndex = at === index ? 0 : -1;
    });
    let panel = panels.get(part.id);
    if (!panel) {
      panel = element("div", { role: "tabpanel", id: `${key}-${part.id}-panel`, "aria-labelledby": `${key}-${part.id}`, "data-panel": part.id, class: "stack" }, part.make());
      panels.set(part.id, panel);
      place.append(panel);
    }
    for (const [each, node] of panels) node.hidden = each !== part.id;
  };
  buttons.forEach((button, index) =>
    button.addEventListener("click", () => {
      const id = parts[index]?.id ?? "";
      choose(id);
      onChoice?.(id);
    }),
  );
  strip.addEventListener("keydown", (event) => {
    const at = buttons.findIndex((button) => button.tabIndex === 0);
    const last = buttons.length - 1;
    const next = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at <= 0 ? last : at - 1, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    buttons[next]?.click();
    buttons[next]?.focus();
  });
  choose(chosen);
  for (const button of buttons) if (!panels.has(button.dataset.part ?? "")) button.removeAttribute("aria-controls");
  return { root: element("div", { class: "stack is-close" }, strip, place), choose };
}
