// Prints which results the worker passes on without parsing them in Python: [text, …] in a file, a list of booleans out.
import { readFileSync } from "node:fs";
import { isPlainResult } from "../../browser_pkg/tabserver/js/worker/plain_calls.js";

console.log(JSON.stringify(JSON.parse(readFileSync(process.argv[2], "utf8")).map((text) => isPlainResult(text))));
