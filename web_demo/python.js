/**
 * Late start of Python in the page (PyScript), with the relay's copy (`/-/pyscript.js`).
 *
 * The script element must be in the document before PyScript is imported. A page that need not wait has both tags in its HTML
 * instead, as in examples/data.
 */

/**
 * @param {string} src the Python file to run in the page
 * @param {(message: string) => void} onError gets what Python wrote to stderr, usually a traceback
 * @returns {Promise<void>} when the file has run
 */
export async function startPython(src, onError) {
  const script = document.createElement("script");
  script.type = "py";
  script.src = src;
  // PyScript's plug-in for errors covers the page, and this page has an element for them.
  script.setAttribute("config", JSON.stringify({ plugins: ["!error"] }));
  const done = new Promise((resolve) => script.addEventListener("py:done", resolve, { once: true }));
  // Before the import: PyScript reads configurations only once, when it is imported.
  document.body.append(script);

  const { hooks } = await import("/-/pyscript.js");
  hooks.main.onReady.add((/** @type {{ io: { stderr: (error: unknown) => void } }} */ wrap) => {
    wrap.io.stderr = (error) => onError(error instanceof Error ? error.message : String(error));
  });
  await done;
}
