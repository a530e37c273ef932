/**
 * PyScript with one tag, from the relay's copy: nothing is loaded from any other host.
 *
 *     <script type="module" src="/-/pyscript.js"></script>
 *     <script type="py" src="tools.py"></script>
 *
 * It extends the `config` of every `py` and `mpy` script of the page with what it needs to offer tools: the interpreter,
 * `tabserver`, and client.js as `pyscript.js_modules.tabrelay`. The script's own `config` (JSON) has precedence. It offers
 * nothing itself.
 */

const HOME = new URL("./", import.meta.url);
/** @param {string} path */
const at = (path) => new URL(path, HOME).href;

/** @type {Record<string, { interpreter: string, files: Record<string, string> }>} */
const KINDS = {
  py: { interpreter: at("pyodide/pyodide.mjs"), files: { [at("tabserver.zip")]: "./*" } },
  mpy: { interpreter: at("micropython/micropython.mjs"), files: { [at("micropython/tabserver.py")]: "" } },
};
/** Plug-ins that PyScript loads by default and that a page of tools does not use. */
const UNUSED = ["deprecations-manager", "donkey", "py-editor", "py-game", "py-terminal"];

for (const [kind, { interpreter, files }] of Object.entries(KINDS)) {
  for (const script of document.querySelectorAll(`script[type="${kind}"]`)) {
    const own = read(script.getAttribute("config"));
    const main = { [at("client.js")]: "tabrelay", ...own.js_modules?.main };
    const unused = UNUSED.filter((name) => !own.plugins?.includes(name)).map((name) => `!${name}`);
    script.setAttribute("config", JSON.stringify({
      interpreter,
      ...own,
      plugins: [...unused, ...(own.plugins ?? [])],
      files: { ...files, ...own.files },
      js_modules: { ...own.js_modules, main },
    }));
  }
}

/** @param {string | null} config */
function read(config) {
  try {
    return JSON.parse(config || "{}");
  } catch {
    throw new TypeError(`tabrelay: With pyscript.js, the config of a script must be JSON, not: ${config} [TR484]`);
  }
}

export const { hooks } = await import(at("pyscript/core.js"));
// PyScript joins its hooks for *workers* into one function with `Function(text)`, even without a worker, which throws in a page
// without 'unsafe-eval'. These pages start no PyScript worker.
hooks.worker.onBeforeRunAsync.clear();
