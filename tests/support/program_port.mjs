// The page's end of the port to a program, with a program that this script plays: prints what happens as JSON.

import { ProgramPort } from "../../web_demo/playground/program_port.js";

const scenarios = { hangs, late, waits, calls, floods, large, finishes, asks, ends };
const { port1, port2 } = new MessageChannel();
const ended = Promise.withResolvers();
const sent = [];
let tools = [];

function portWith(limits) {
  return new ProgramPort(port1, { onTools: (next) => (tools = next), onEnd: ended.resolve, limits });
}

/** What the program receives, each as soon as it comes. */
function program(onMessage) {
  port2.on("message", (message) => (sent.push(message), onMessage(message)));
  port2.postMessage({ t: "ready" });
}

function context(signal = new AbortController().signal, more = {}) {
  return { signal, caller: { principal: "p", secret: "kept" }, trace: null, inputResponses: {}, requestState: null, ...more };
}

const outcome = (promise) => promise.then((value) => ({ value }), (error) => ({ error: error.message }));
const echo = (message) => ({ t: "result", call: message.call, json: JSON.stringify({ content: [], structuredContent: message.arguments }) });

async function hangs() {
  const port = portWith({ hang_ms: 200, tick_ms: 20 });
  program(() => {});
  await port.ready;
  const call = outcome(port.call("x", {}, context()));
  return { call: await call, reason: await ended.promise, after: await outcome(port.call("x", {}, context())) };
}

/** A program that answers pings is not ended, however long its call takes. */
async function late() {
  const port = portWith({ hang_ms: 100, tick_ms: 10 });
  program((message) => {
    if (message.t === "ping") port2.postMessage({ t: "pong" });
    if (message.t === "call") setTimeout(() => port2.postMessage(echo(message)), 500);
  });
  return outcome(port.call("x", { a: 1 }, context()));
}

/** A program that answers pings, and waits for something that does not come, before its tools are known. */
async function waits() {
  const port = portWith({ run_ms: 200, tick_ms: 10 });
  program((message) => message.t === "ping" && port2.postMessage({ t: "pong" }));
  return { run: await outcome(port.run("await forever")), reason: await ended.promise };
}

async function calls() {
  const port = portWith({ calls: 2, argumentLength: 100 });
  program(() => {});
  void outcome(port.call("x", {}, context()));
  void outcome(port.call("x", {}, context()));
  const third = await outcome(port.call("x", {}, context()));
  port.end("over");
  return { third };
}

async function floods() {
  const port = portWith({ messagesPerSecond: 50 });
  program(() => {});
  await port.ready;
  for (let count = 0; count < 200; count++) port2.postMessage({ t: "pong" });
  return { reason: await ended.promise };
}

async function large() {
  const port = portWith({ argumentLength: 100, resultLength: 100, messageLength: 100 });
  program((message) => message.t === "call" && port2.postMessage({ t: "result", call: message.call, json: JSON.stringify({ text: "x".repeat(200) }) }));
  const argument = await outcome(port.call("x", { text: "x".repeat(200) }, context()));
  const result = await outcome(port.call("x", {}, context()));
  port2.postMessage({ t: "log", call: "p1", data: "x".repeat(200) });
  return { argument, result, reason: await ended.promise };
}

async function finishes() {
  const port = portWith({});
  program((message) => {
    if (message.t === "run" && message.source === "bad") port2.postMessage({ t: "fault", run: message.run, message: "no", line: 3, column: 2 });
    else if (message.t === "run") port2.postMessage({ t: "ran", run: message.run, tools: message.source === "odd" ? "odd" : [{ name: "x" }] });
    else if (message.t === "call" && message.name === "fails") port2.postMessage({ t: "error", call: message.call, message: "it failed" });
    else if (message.t === "call") port2.postMessage(echo(message));
  });
  const ran = await outcome(port.run("good"));
  const fault = await port.run("bad").catch(({ message, line, column }) => ({ message, line, column }));
  const odd = await outcome(port.run("odd"));
  const call = await outcome(port.call("x", { a: 1 }, context()));
  const fails = await outcome(port.call("fails", {}, context()));
  const caller = sent.find((message) => message.t === "call").caller;
  port.end("over");
  return { ran, fault, odd, call, fails, caller };
}

async function asks() {
  const port = portWith({});
  const progress = [];
  program((message) => {
    if (message.t === "call") {
      port2.postMessage({ t: "progress", call: message.call, progress: 1, total: 2, message: "half" });
      port2.postMessage({ t: "ask", call: message.call, ask: 1, method: "elicitation/create", params: { message: "?" } });
    }
    if (message.t === "answer") port2.postMessage({ t: "result", call: message.call, json: JSON.stringify(message.answer) });
  });
  const more = { progress: (...reported) => progress.push(reported), ask: async (method) => ({ action: "accept", content: { method } }) };
  const call = await outcome(port.call("x", {}, context(undefined, more)));
  port.end("over");
  return { call, progress };
}

/** Cancelled by its caller, and not answered: ended after the shorter time. */
async function ends() {
  const port = portWith({ hang_ms: 60_000, cancel_ms: 100, tick_ms: 10 });
  program(() => {});
  const caller = new AbortController();
  const call = outcome(port.call("x", {}, context(caller.signal)));
  await port.ready;
  caller.abort(new Error("not needed"));
  return { call: await call, reason: await ended.promise, cancels: sent.filter(({ t }) => t === "cancel").length };
}

console.log(JSON.stringify(await scenarios[process.argv[2]]()));
process.exit(0);
