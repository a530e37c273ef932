// Runs proof.js and worker/python_bridge.js as pages and workers do, without a browser: see tests/js/test_proof.py.

import { callKey, keyOf, keysFrom, prove } from "../../browser_pkg/tabserver/js/proof.js";
import { openSocket, prove as proveInWorker, useSharedBuffer } from "../../browser_pkg/tabserver/js/worker/python_bridge.js";

const [what, relay, token] = process.argv.slice(2);

if (what === "prove") {
  const keys = await keysFrom(await keyOf(token));
  const signal = AbortSignal.timeout(30_000);
  const inPage = await prove(relay, keys.page, signal).catch(({ why, message }) => ({ why, message }));
  const inWorker = JSON.parse(await proveInWorker(relay, token, signal));
  const inCall = await prove(relay, await callKey(keys.page), signal).catch(({ why, message }) => ({ why, message }));
  console.log(JSON.stringify({ page: inPage, worker: inWorker, call: inCall }));
} else {
  const log = [];
  globalThis.WebSocket = class {
    close() {
      log.push("close");
    }
  };
  useSharedBuffer({ getBuffer: () => ({ data: new Uint8Array(new ArrayBuffer(64)), release() {} }) });
  const passed = (name) => () => {
    log.push(name);
    return 0;
  };
  const socket = openSocket("", [], "signature", passed("opened"), passed("received"), passed("closed"), ...Array(4).fill(() => 0));
  socket.onopen();
  log.push("-");
  for (const data of JSON.parse(relay)) socket.onmessage({ data });
  console.log(JSON.stringify(log));
}
