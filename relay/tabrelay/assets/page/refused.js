/**
 * List of the pages that the relay refused lately, on the relay's page: origin, reason, and the command that admits them.
 *
 * Origins and names were made printable by the relay, and are shown as text nodes.
 */

import { command } from "./clients.js";
import { byId, duration, element, setText } from "./element.js";

/** @typedef {{ origin: string, server: string, kind: string, message: string, command: string, count: number, last_s: number }} Refused */

/** @returns {{ update(pages: Refused[] | undefined): void, hide(): void }} */
export function refusedPanel() {
  const section = byId("refused", HTMLElement);
  const list = byId("refused-list", HTMLElement);
  let shown = "";

  return {
    hide() {
      section.hidden = true;
    },

    update(pages = []) {
      section.hidden = pages.length === 0;
      // A row is drawn again only if it says something else, so that a command can be selected.
      const key = JSON.stringify(pages.map(({ last_s: _, count: __, ...page }) => page));
      if (key !== shown) list.replaceChildren(...pages.map(row));
      shown = key;
      pages.forEach((page, index) => {
        const when = list.children[index]?.querySelector(".when");
        if (when) setText(when, whenOf(page));
      });
    },
  };
}

/** @param {Refused} page */
function row(page) {
  return element(
    "li",
    { class: "refusal", "data-origin": page.origin, "data-kind": page.kind },
    element("p", { class: "name" }, `${page.origin} → ${page.server}`),
    element("p", { class: "about" }, page.message),
    page.command ? command(page.command) : null,
    element("p", { class: "about when" }, whenOf(page)),
  );
}

/** @param {Refused} page */
function whenOf({ count, last_s }) {
  const times = count === 1 ? "once" : `${count} times`;
  return `refused ${times}, last ${duration(Math.floor(last_s) * 1000 || 1000)} ago`;
}
