// Types of the element `<tabrelay-status>`.

import type { Connection } from "./client.js";

/**
 * `<tabrelay-status>`: a custom element for an app's header. It shows the state of the page's connection, the name of the server
 * and the number of its tabs. *Connect* tries again, *Why not?* opens the reason and what to do, and *Connect a client* shows the
 * server's address. It needs no framework:
 *
 *     <script type="module" src="/-/status.js"></script>
 *     <tabrelay-status server="notes"></tabrelay-status>
 *
 * Without `server` it shows the page's first connection. It may come before or after the call of `connect`, and several of them
 * may be on a page. A page with one shows the state itself, so the corner has no panel with the reason. The attribute `state`
 * is that of the connection, or "none".
 *
 * A click on *Connect* dispatches the event "connect", which bubbles. An app that connects only when the user wants it calls
 * `connect` there. With `event.preventDefault()` the element does nothing itself.
 *
 * Custom properties: `--tabrelay-font`, `--tabrelay-color`, `--tabrelay-background` and `--tabrelay-details-color` of what opens,
 * `--tabrelay-border`, `--tabrelay-radius`, `--tabrelay-accent`, `--tabrelay-accent-color`, `--tabrelay-focus`, and of the lamp
 * `--tabrelay-ok`, `--tabrelay-busy`, `--tabrelay-problem`, `--tabrelay-off`. Parts: `row`, `lamp`, `status`, `label`, `server`,
 * `tabs`, `button`, `connect`, `client`, `why`, `details`, `happened`, `todo`, `help`, `address`, `copy`, `link`.
 */
export declare class TabrelayStatus extends HTMLElement {
  /** The connection that is shown. By default the one of the attribute `server`, or the page's first. */
  connection: Connection | null;
}

declare global {
  interface HTMLElementTagNameMap {
    "tabrelay-status": TabrelayStatus;
  }
}
