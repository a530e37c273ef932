/**
 * Entry point for pages: defines the element `<tabrelay-status>`, which shows the state of the page's connection.
 *
 *     <script type="module" src="/-/status.js"></script>
 *     <tabrelay-status server="notes"></tabrelay-status>
 *
 * A page on another origin loads it through `tabrelay.js`: `load("status.js")`. It makes no connection; status.d.ts documents it.
 */

import { StatusElement } from "./client/status_element.js";

const NAME = "tabrelay-status";

// A bundle and the relay may each load a copy of this file: the first one defines the element.
if (globalThis.customElements && !customElements.get(NAME)) customElements.define(NAME, StatusElement);

export { StatusElement as TabrelayStatus };
