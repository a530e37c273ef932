/**
 * Starts Python in the page when the page wants it, by the relay's own tag (`/-/pyscript.js`).
 *
 * A page that need not wait has both tags in its HTML instead, as examples/data has.
 */

/**
 * @param {string} src the Python file to run in the page
 * @param {(message: string) => void} onError what Python wrote to stderr, a traceback as a rule
 * @returns {Promise<void>} when the file has run
 */
export async function startPython(src, onError) {
  const script = document.createElement("script");
  script.type = "py";
  script.src = src;
  // PyScript's plug-in for errors paints over the page, and this page has a place of its own for them.
  script.setAttribute("config", JSON.stringify({ plugins: ["!error"] }));
  const done = new Promise((resolve) => script.addEventListener("py:done", resolve, { once: true }));
  // In the document before PyScript is: it looks for configurations only once, when it is imported.
  document.body.append(script);

  const { hooks } = await import("/-/pyscript.js");
  hooks.main.onReady.add((/** @type {{ io: { stderr: (error: unknown) => void } }} */ wrap) => {
    wrap.io.stderr = (error) => onError(error instanceof Error ? error.message : String(error));
  });
  await done;
}
