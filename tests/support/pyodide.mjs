// Runs tests/support/run_in_pyodide.py in Pyodide under Node: node pyodide.mjs RUNTIME ROOT SITE_PACKAGES FOLDER...
// It boots the same files that the relay serves. It does not know what the tests check.

import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [runtime, root, packages, ...folders] = process.argv.slice(2);

const { loadPyodide } = await import(pathToFileURL(`${runtime}/pyodide.mjs`).href);
const python = await loadPyodide({ indexURL: `${runtime}/`, env: { HOME: "/home", TESTS: folders.join(" ") } });

for (const [place, folder] of [["/repo", root], ["/packages", packages]]) {
  python.FS.mkdirTree(place);
  python.mountNodeFS(place, folder);
}
const script = await readFile(new URL("run_in_pyodide.py", import.meta.url), "utf8");
process.exitCode = python.runPython(script, { filename: "/repo/tests/support/run_in_pyodide.py" });
