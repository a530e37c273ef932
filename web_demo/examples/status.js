/**
 * One line about the connection, for the examples. A page of yours may show as much or as little.
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
