/**
 * Starts PyScript in the page, from the relay's own copy: nothing is asked of any other host.
 *
 * The HTML cannot hold these elements, because the addresses carry a hash that only the manifest knows.
 */

/**
 * What PyScript would load and this page has no use for. The error plugin is among them: it paints over the page, and this
 * page has a place of its own for errors.
 */
const UNUSED = ["deprecations-manager", "donkey", "error", "py-editor", "py-game", "py-terminal"];

/**
 * @param {string} src the Python file to run in the page
 * @param {(message: string) => void} onError what Python wrote to stderr, a traceback as a rule
 * @returns {Promise<void>} when the file has run
 */
export async function startPython(src, onError) {
  const manifest = await (await fetch("/-/manifest.json")).json();
  const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: `${manifest.pyscript}core.css` });
  document.head.append(style);

  const script = document.createElement("script");
  script.type = "py";
  script.src = src;
  const config = {
    interpreter: new URL(`${manifest.pyodide}pyodide.mjs`, location.href).href,
    files: { [manifest.tabserver]: "./*" },
    js_modules: { main: { "/-/client.js": "tabrelay" } },
    plugins: UNUSED.map((name) => `!${name}`),
  };
  script.setAttribute("config", JSON.stringify(config));
  const done = new Promise((resolve) => script.addEventListener("py:done", resolve, { once: true }));
  // In the document before PyScript is: it looks for configurations only once, when it is imported.
  document.body.append(script);

  const { hooks } = await import(`${manifest.pyscript}core.js`);
  // PyScript joins its hooks for *workers* into one function with `Function(text)`, whether there is a worker or not, and
  // a page without 'unsafe-eval' stops right there. This page starts no PyScript worker: it takes that hook away instead.
  hooks.worker.onBeforeRunAsync.clear();
  hooks.main.onReady.add((/** @type {{ io: { stderr: (error: unknown) => void } }} */ wrap) => {
    wrap.io.stderr = (error) => onError(error instanceof Error ? error.message : String(error));
  });
  await done;
}
