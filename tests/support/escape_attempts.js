// A program for the playground that tries what none may do. The test writes the relay's address into it.
const relay = "RELAY";
const attempts = {
  status: () => fetch(`${relay}/-/status`).then((answer) => answer.text()),
  pairs: () => fetch(`${relay}/-/pairs`).then((answer) => answer.text()),
  codes: () => fetch(`${relay}/-/codes`, { method: "POST", mode: "no-cors" }),
  server: () => fetch(`${relay}/demo`, { method: "POST", body: "{}" }).then((answer) => answer.text()),
  page: () => fetch(`${relay}/-/demo/`).then((answer) => answer.text()),
  otherHost: () => fetch("http://127.0.0.1:9/", { mode: "no-cors" }),
  socket: () => new Promise((resolve, reject) => {
    const socket = new WebSocket(relay.replace("http", "ws") + "/demo", ["tabrelay.v1"]);
    socket.onopen = resolve;
    socket.onerror = () => reject(new Error("refused"));
  }),
  webrtc: () => new RTCPeerConnection().createDataChannel("x"),
  webrtcOfFrame: () => {
    const frame = document.createElement("iframe");
    document.body.append(frame);
    new frame.contentWindow.RTCPeerConnection().createDataChannel("x");
  },
  events: () => new Promise((resolve, reject) => {
    const source = new EventSource(`${relay}/demo`);
    source.onopen = resolve;
    source.onerror = () => reject(new Error("refused"));
  }),
  image: () => new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = resolve;
    image.onerror = () => reject(new Error("refused"));
    image.src = `${relay}/-/page/favicon.svg`;
  }),
  localStorage: () => localStorage.length,
  sessionStorage: () => sessionStorage.length,
  cookie: () => document.cookie,
  indexedDB: () => new Promise((resolve, reject) => {
    const request = indexedDB.open("tabrelay");
    request.onsuccess = resolve;
    request.onerror = () => reject(request.error);
  }),
  caches: () => caches.keys(),
  files: () => navigator.storage.getDirectory(),
  locks: () => navigator.locks.query(),
  sharedWorker: () => new Promise((resolve, reject) => {
    const worker = new SharedWorker(`${relay}/-/worker.js`, { type: "module", name: "demo" });
    worker.onerror = () => reject(new Error("refused"));
    worker.port.onmessage = resolve;
    worker.port.start();
  }),
  relayWorker: () => new Promise((resolve, reject) => {
    const worker = new Worker(`${relay}/-/worker.js`, { type: "module" });
    worker.onerror = () => reject(new Error("refused"));
    worker.onmessage = resolve;
  }),
  serviceWorker: () => navigator.serviceWorker.register(`${relay}/-/worker.js`),
  parentDocument: () => parent.document.title,
  parentStorage: () => parent.localStorage.length,
  parentVariables: () => Object.keys(parent).length && parent.name,
  siblings: () => parent.frames[0].document.title,
  topAddress: () => { top.location.href = `${relay}/-/status`; },
  popup: () => { if (!open(`${relay}/-/demo/`)) throw new Error("refused"); },
  alert: () => { if (confirm("?") === false) throw new Error("refused"); },
  importPage: () => import(`${relay}/-/page/pairs.js`),
  importOther: () => import("http://127.0.0.1:9/x.js"),
  text: () => import("data:text/javascript,export default 1"),
  eval: () => (0, eval)("1"),
  clipboard: () => navigator.clipboard.readText(),
};

offerTool({
  name: "escape",
  description: "Tries what a program must not be able to do.",
  inputSchema: { type: "object", properties: {} },
  async execute() {
    const found = {};
    for (const [name, attempt] of Object.entries(attempts)) {
      const late = new Promise((_, reject) => setTimeout(() => reject(new Error("no answer")), 3000));
      try {
        await Promise.race([(async () => attempt())(), late]);
        found[name] = "REACHED";
      } catch (error) {
        found[name] = `${error.name}: ${error.message}`;
      }
    }
    return { origin: self.origin, found };
  },
});
