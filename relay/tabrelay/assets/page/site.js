/**
 * Header and footer of every page: the custom elements `<tabrelay-header current="demo">` and `<tabrelay-footer>`.
 *
 * They are in the light DOM and styled by design.css. `current` names the page's own entry of the navigation, which lists only
 * pages that exist. The footer reads the relay's version from `/-/healthz`, once.
 */

import { element } from "./element.js";

/** @type {[id: string, label: string, href: string][]} */
const PAGES = [
  ["console", "Console", "/"],
  ["demo", "Demo", "/-/demo/"],
  ["playground", "Playground", "/-/demo/playground/"],
  ["examples", "Examples", "/-/demo/examples/"],
  ["docs", "Docs", "/-/docs/"],
];
const ANSWER_MS = 5000;

class SiteHeader extends HTMLElement {
  static observedAttributes = ["current"];

  connectedCallback() {
    this.#show();
  }

  attributeChangedCallback() {
    if (this.isConnected) this.#show();
  }

  #show() {
    const current = this.getAttribute("current");
    const links = PAGES.map(([id, label, href]) => element("a", { href, "aria-current": id === current && "page" }, label));
    const logo = element("img", { src: "/-/page/favicon.svg", alt: "", width: 28, height: 28 });
    this.replaceChildren(
      element("a", { class: "skip", href: "#main" }, "Skip to the content"),
      element(
        "header",
        { class: "site-header" },
        element("a", { class: "brand", href: "/" }, logo, "Tabrelay"),
        element("nav", { "aria-label": "Pages" }, ...links),
      ),
    );
  }
}

class SiteFooter extends HTMLElement {
  connectedCallback() {
    const version = element("span", { class: "mono", id: "version" });
    const text = element("span", {}, "Everything on this page stays on your computer.");
    this.replaceChildren(element("footer", { class: "site-footer" }, element("div", {}, text, version)));
    void showVersion(version);
  }
}

/** @param {HTMLElement} place */
async function showVersion(place) {
  try {
    const answer = await fetch("/-/healthz", { signal: AbortSignal.timeout(ANSWER_MS) });
    const { version, build } = await answer.json();
    place.textContent = `Tabrelay ${version} · ${build}`;
  } catch {
    // Without an answer the footer has no version.
  }
}

customElements.define("tabrelay-header", SiteHeader);
customElements.define("tabrelay-footer", SiteFooter);
