/**
 * Errors that page handlers throw and catch.
 *
 * An McpError becomes an MCP protocol error with its code and data; any other error becomes a tool error with its text. No error
 * is reported here.
 */

const INVALID_PARAMS = -32602;
/** Characters of a thrown value that is not an Error. */
const MOST_SHOWN = 200;

/** A protocol error: the caller gets its code and data. */
export class McpError extends Error {
  /**
   * @param {number} code
   * @param {string} message
   * @param {unknown} [data]
   */
  constructor(code, message, data) {
    super(message);
    this.name = "McpError";
    // Distinguishes it from other errors with a code. `instanceof` can't: Python in the page and a second copy of this file have
    // their own classes.
    this.isProtocolError = true;
    this.code = code;
    this.data = data;
  }
}

/** There is no such resource. */
export class ResourceNotFound extends McpError {
  /** @param {string} uri */
  constructor(uri) {
    super(INVALID_PARAMS, `Resource not found: ${uri}`, { uri });
    this.name = "ResourceNotFound";
  }
}

/** The caller's arguments do not fit a tool: its function was not called. */
export class InvalidArguments extends TypeError {}

/** The same for a prompt, whose callers get a protocol error. */
export class InvalidParams extends McpError {
  /** @param {string} message */
  constructor(message) {
    super(INVALID_PARAMS, message);
  }
}

/** What a page offers is not what clients accept. The text ends with the code of its entry in the reference. */
export class RefusedOffer extends TypeError {
  /** @param {string} problem without a full stop */
  constructor(problem) {
    super(`${problem}. [TR473]`);
  }
}

/** What a tool returned can't be sent, or is not what its output schema allows. */
export class InvalidResult extends TypeError {}

/** Is it a mistake of the caller, which the app's author need not see in the console? @param {unknown} error */
export function isOfCaller(error) {
  return error instanceof InvalidArguments || error instanceof InvalidParams || error instanceof ResourceNotFound;
}

/** @param {string} message */
export function invalidParams(message) {
  return new McpError(INVALID_PARAMS, message);
}

/**
 * The text that a caller gets for something that was thrown.
 * @param {unknown} error
 */
export function describe(error) {
  if (error instanceof Error || error instanceof DOMException) return error.message || error.name;
  if (typeof error === "string" && error.trim()) return error;
  const message = /** @type {any} */ (error)?.message; // an Error of another window has another class
  if (typeof message === "string" && message.trim()) return message;
  return `What was thrown is not an Error: ${shown(error)}. Throw new Error("what happened") instead.`;
}

/** @param {unknown} value */
function shown(value) {
  try {
    return String(typeof value === "object" ? JSON.stringify(value) : String(value)).slice(0, MOST_SHOWN) || "an empty text";
  } catch {
    return "an object without a JSON form";
  }
}
