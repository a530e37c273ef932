// Awaits, in Python, a promise that an AbortController rejects: node aborted_promise.mjs RUNTIME BROWSER_PACKAGE.
// Prints how the task ended. It boots the same files that the relay serves.

import { pathToFileURL } from "node:url";

const [runtime, browserPackage] = process.argv.slice(2);

// A rejection that nothing handles ends Node; in a worker it is a line in the console, and the task hangs.
process.on("unhandledRejection", () => {});
const { loadPyodide } = await import(pathToFileURL(`${runtime}/pyodide.mjs`).href);
const python = await loadPyodide({ indexURL: `${runtime}/` });
python.FS.mkdirTree("/browser_package");
python.mountNodeFS("/browser_package", browserPackage);
const ended = await python.runPythonAsync(`
import asyncio
import sys

sys.path.insert(0, "/browser_package")
import js
from pyodide.code import run_js
from pyodide.ffi import JsException
from tabserver.browser.values import Aborter

rejected_with_reason = run_js(
    "signal => new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))"
)

async def dial(abort):
    try:
        await rejected_with_reason(abort.signal)
    except JsException as error:
        return f"rejected: {error.message}"

abort = Aborter()
task = asyncio.ensure_future(dial(abort))
await asyncio.sleep(0)
abort.abort("The relay did not answer.")
done, _ = await asyncio.wait([task], timeout=2)
task.result() if done else "never resumed"
`);
console.log(ended);
process.exit(0);
