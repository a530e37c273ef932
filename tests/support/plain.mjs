// Which texts the worker's shim would pass on unread: [text, …] in a file, a list of booleans out.
import { readFileSync } from "node:fs";
import { isPlainResult } from "../../browser_pkg/tabserver/js/worker/plain_calls.js";

console.log(JSON.stringify(JSON.parse(readFileSync(process.argv[2], "utf8")).map((text) => isPlainResult(text))));
