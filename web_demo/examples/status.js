/**
 * Status line of the examples: shows the connection's state. Your page may show more or less.
 *
 * @param {import("/-/client.js").Connection} connection
 */
export function showStatus(connection) {
  const line = /** @type {HTMLElement} */ (document.querySelector("#status"));
  const [lamp, text] = /** @type {[HTMLElement, HTMLElement]} */ ([...line.children]);
  const lamps = { connected: "clear", connecting: "caution", waiting: "caution", stopped: "stop" };

  function draw() {
    const { state, server, message } = connection.state;
    lamp.dataset.lamp = lamps[state];
    text.textContent = state === "connected" ? `MCP clients reach this page as “${server}”` : message;
  }
  connection.addEventListener("state", draw);
  draw();
}
