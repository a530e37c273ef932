/** The errors that pages throw and catch. */

const INVALID_PARAMS = -32602;

/** An error of the protocol: the caller gets its code and data. */
export class McpError extends Error {
  /**
   * @param {number} code
   * @param {string} message
   * @param {unknown} [data]
   */
  constructor(code, message, data) {
    super(message);
    this.name = "McpError";
    // How it is told from other errors with a code: Python in the page, or a second copy of this file, has its own class.
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

/** @param {string} message */
export function invalidParams(message) {
  return new McpError(INVALID_PARAMS, message);
}

/**
 * What to tell a caller about something that was thrown.
 * @param {unknown} error
 */
export function describe(error) {
  if (!(error instanceof Error || error instanceof DOMException)) return String(error);
  return error.message || error.name;
}
