/**
 * Execution of a JavaScript program in the playground's frame: as a module, with `offerTool` as a global function.
 *
 * A program runs once in a document; the next run gets a new frame. An exception is reported with its line. For a syntax error,
 * some browsers tell the line only in an "error" event, so the module is then loaded again by a script element, which reports the
 * same error and executes nothing.
 *
 * @import { Connection, Fault } from "./runtime.js"
 */

const EVENT_MS = 2_000;

/**
 * @param {string} source
 * @param {Connection & { tools: Map<string, unknown> }} connection
 * @returns {Promise<Fault | null>}
 */
export async function runJavaScript(source, connection) {
  Object.assign(globalThis, { offerTool: connection.offerTool });
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    await import(address);
  } catch (error) {
    return clamp(await faultOf(error, address), source);
  }
  if (connection.tools.size) return null;
  return { message: "This program offers no tool. Call offerTool({ name, description, execute }).", line: 0, column: 0 };
}

/**
 * @param {any} error
 * @param {string} address
 * @returns {Promise<Fault>}
 */
async function faultOf(error, address) {
  const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  if (error?.fileName === address && error.lineNumber) {
    return { message, line: error.lineNumber, column: error.columnNumber ?? 0 }; // Firefox
  }
  const at = String(error?.stack ?? "").split(address)[1]?.match(/^:(\d+):(\d+)/);
  if (at) return { message, line: Number(at[1]), column: Number(at[2]) };
  return { message, ...(error instanceof SyntaxError ? await placeOfSyntaxError(address) : { line: 0, column: 0 }) };
}

/**
 * @param {string} address
 * @returns {Promise<{ line: number, column: number }>}
 */
function placeOfSyntaxError(address) {
  return new Promise((resolve) => {
    const listening = new AbortController();
    const end = (/** @type {number} */ line, /** @type {number} */ column) => {
      listening.abort();
      resolve({ line, column });
    };
    const { signal } = listening;
    addEventListener("error", (event) => {
      event.preventDefault();
      if (event.filename === address) end(event.lineno, event.colno);
    }, { signal });
    const script = document.createElement("script");
    script.type = "module";
    script.src = address;
    document.head.append(script);
    setTimeout(() => end(0, 0), EVENT_MS);
  });
}

/**
 * @param {Fault} fault
 * @param {string} source
 */
function clamp(fault, source) {
  return { ...fault, line: Math.min(fault.line, source.split("\n").length) };
}
