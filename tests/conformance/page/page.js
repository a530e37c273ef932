// @ts-check
// One connection, no tools of its own: what is offered is in fixtures.py, which the worker loads. On another origin than
// the relay's, `worker` names the one-line worker file of this origin.
const asked = new URLSearchParams(location.search);
const relay = asked.get("relay") ?? location.origin;
const { connect } = await import(`${relay}/-/client.js`);
const connection = connect({
  relay,
  server: asked.get("server") ?? "conformance",
  worker: asked.get("worker") ?? undefined,
  token: new URLSearchParams(location.hash.slice(1)).get("token") ?? undefined,
  modules: [new URL("../fixtures.py", location.href).href],
});
connection.addEventListener("state", (/** @type {CustomEvent} */ { detail }) => {
  document.documentElement.dataset.state = detail.state;
});
