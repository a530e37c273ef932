// Plays steps to js/worker/granted_calls.js, by way of the worker's shim, and prints what it did. Python's part is what the steps say.
//
//   ["frame", text]            the relay sends; Python's answer is `python` of the moment
//   ["python", {…}]            from now on: `taken`, `grant` (port 0 is the worker itself), `turn`, `run`, `asks`, `revokes`
//   ["page", port, message]    a page says something
//   ["socket", {…}]            readyState, bufferedAmount
//   ["open"]                   another socket
//   ["revoke"]
//   ["unbooked"]               Python asks for it
//   ["time"]                   timers ring
//   ["posts", port, text]      Python sends something to a page
//   ["clock", ms]              time passes, and no timer rings
//   ["close"]                  the socket is gone
import { readFileSync } from "node:fs";
import { allow, listen, openSocket, poster, revoke, unbooked, useSharedBuffer } from "../../browser_pkg/tabserver/js/worker/python_bridge.js";

const steps = JSON.parse(readFileSync(process.argv[2], "utf8"));
const memory = new ArrayBuffer(1 << 20);
useSharedBuffer({ getBuffer: () => ({ data: new Uint8Array(memory), release() {} }) });
const text = (said) => (typeof said === "number" ? new TextDecoder().decode(memory.slice(0, said)) : said);
const log = [];
let python = { taken: 0, turn: 0 };
const timers = [];
globalThis.setTimeout = (ring) => timers.push(ring);
let clock_ms = 0;
Object.defineProperty(globalThis, "performance", { value: { timeOrigin: 1000, now: () => clock_ms } });

globalThis.WebSocket = class {
  static OPEN = 1;
  readyState = 1;
  bufferedAmount = 0;
  send(frame) {
    log.push(["write", frame]);
  }
};

const ports = [undefined, ...[1, 2].map((number) => ({
  postMessage(message) {
    if (python.deaf) throw new Error("the port is closed");
    log.push(["post", number, message]);
  },
}))];
for (const port of ports.slice(1)) {
  listen(port, (message) => log.push(["message", JSON.parse(message)]), (said) => log.push(["result", text(said)]));
}

let socket;
const books = {
  received(frame) {
    log.push(["receive", text(frame)]);
    if (python.grant) allow(ports[python.grant.port], python.grant.number, python.grant.channel, '"words":1', '{"meta":1}', python.grant.hasRivals ?? false);
    return python.taken;
  },
  book(entries) {
    log.push(["book", ...text(entries).split("\n")]);
    return python.turn;
  },
  run(grant, given) {
    log.push(["run", grant, text(given)]);
    if (python.asks) log.push(["unbooked", ...unbooked().split("\n")]);
    if (python.revokes) revoke();
    return python.run ?? undefined;
  },
  finish(...said) {
    log.push(["finish", ...said]);
  },
  turn() {
    log.push(["turn"]);
    return python.turn;
  },
};
const open = () => {
  const { received, book, run, finish, turn } = books;
  socket = openSocket("", [], "", () => {}, received, () => log.push(["closed"]), book, run, finish, turn);
};

open();
for (const [what, one, other] of steps) {
  if (what === "frame") socket.onmessage({ data: one });
  else if (what === "python") python = { ...python, ...one };
  else if (what === "page") ports[one].onmessage({ data: other });
  else if (what === "socket") Object.assign(socket, one);
  else if (what === "open") open();
  else if (what === "revoke") revoke();
  else if (what === "unbooked") log.push(["unbooked", ...unbooked().split("\n")]);
  else if (what === "time") for (const ring of timers.splice(0)) ring();
  else if (what === "posts") poster(ports[one], true)(other);
  else if (what === "clock") clock_ms += one;
  else if (what === "close") socket.onclose({ code: 1006, reason: "" });
  else throw new Error(`no such step: ${what}`);
}
console.log(JSON.stringify(log));
