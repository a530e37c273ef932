// Plays steps to js/worker/granted_calls.js through js/worker/python_bridge.js, and prints a log of what it did.
// The steps also state how Python answers.
//
//   ["frame", text]            the relay sends a frame; Python answers with the current `python` settings
//   ["python", {…}]            changes these settings: `taken`, `grant` (port 0 is the worker itself), `next_seq`, `run`,
//                              `syncs`, `revokes`, `fails_to_post`
//   ["page", port, message]    a page sends a message
//   ["socket", {…}]            sets readyState, bufferedAmount
//   ["open"]                   opens another socket
//   ["revoke"]                 Python revokes all grants
//   ["unrecorded"]             Python asks for the calls that it has no record of
//   ["time"]                   all timers fire
//   ["posts", port, text]      Python sends a message to a page
//   ["clock", ms]              time passes, and no timer fires
//   ["close"]                  the socket closes
import { readFileSync } from "node:fs";
import { allow, listen, openSocket, poster, revoke, unrecorded, useSharedBuffer } from "../../browser_pkg/tabserver/js/worker/python_bridge.js";

const steps = JSON.parse(readFileSync(process.argv[2], "utf8"));
const memory = new ArrayBuffer(1 << 20);
useSharedBuffer({ getBuffer: () => ({ data: new Uint8Array(memory), release() {} }) });
const text = (passed) => (typeof passed === "number" ? new TextDecoder().decode(memory.slice(0, passed)) : passed);
const log = [];
let python = { taken: 0, next_seq: 0 };
const timers = [];
globalThis.setTimeout = (fire) => timers.push(fire);
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
    if (python.fails_to_post) throw new Error("the port is closed");
    log.push(["post", number, message]);
  },
}))];
for (const port of ports.slice(1)) {
  listen(port, (message) => log.push(["message", JSON.parse(message)]), (result) => log.push(["result", text(result)]));
}

let socket;
const calls = {
  received(frame) {
    log.push(["receive", text(frame)]);
    if (python.grant) allow(ports[python.grant.port], python.grant.number, python.grant.channel, '"words":1', '{"meta":1}', python.grant.hasRivals ?? false);
    return python.taken;
  },
  record(entries) {
    log.push(["record", ...text(entries).split("\n")]);
    return python.next_seq;
  },
  run(grant, given) {
    log.push(["run", grant, text(given)]);
    if (python.syncs) log.push(["unrecorded", ...unrecorded().split("\n")]);
    if (python.revokes) revoke();
    return python.run ?? undefined;
  },
  finish(...given) {
    log.push(["finish", ...given]);
  },
  nextSeq() {
    log.push(["next_seq"]);
    return python.next_seq;
  },
};
const open = () => {
  const { received, record, run, finish, nextSeq } = calls;
  socket = openSocket("", [], "", () => {}, received, () => log.push(["closed"]), record, run, finish, nextSeq);
};

open();
for (const [what, one, other] of steps) {
  if (what === "frame") socket.onmessage({ data: one });
  else if (what === "python") python = { ...python, ...one };
  else if (what === "page") ports[one].onmessage({ data: other });
  else if (what === "socket") Object.assign(socket, one);
  else if (what === "open") open();
  else if (what === "revoke") revoke();
  else if (what === "unrecorded") log.push(["unrecorded", ...unrecorded().split("\n")]);
  else if (what === "time") for (const fire of timers.splice(0)) fire();
  else if (what === "posts") poster(ports[one], true)(other);
  else if (what === "clock") clock_ms += one;
  else if (what === "close") socket.onclose({ code: 1006, reason: "" });
  else throw new Error(`no such step: ${what}`);
}
console.log(JSON.stringify(log));
