/** What a tool returns, as MCP wants it. */

/**
 * A ready result (with a `content` array) passes as it is, a string becomes text, and any other value becomes JSON text,
 * with an object also as structured content.
 * @param {unknown} value
 * @returns {object}
 */
export function toResult(value) {
  if (value === undefined) return { content: [] };
  if (typeof value === "string") return { content: [{ type: "text", text: value }] };
  if (isRecord(value) && Array.isArray(value.content)) return value;
  const text = JSON.stringify(value);
  if (text === undefined) throw new TypeError(`The tool returned a ${typeof value}, which has no JSON form`);
  const content = [{ type: "text", text }];
  // Decided by what was written, not by what was returned: a Date, for one, is written as a string.
  return text.startsWith("{") ? { content, structuredContent: value } : { content };
}

/**
 * What to tell a caller about something that was thrown.
 * @param {unknown} error
 */
export function describe(error) {
  if (!(error instanceof Error || error instanceof DOMException)) return String(error);
  return error.message || error.name;
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
function isRecord(value) {
  return typeof value === "object" && value !== null;
}
