/**
 * What can be told of a call and of its result without Python: that it says nothing unusual. The browser finds that out in
 * a tenth of the time that Python would take to read it.
 *
 * Nothing is decided here: what is not plain beyond doubt is read by Python, which knows what MCP says.
 */

/** Letters of a frame; the time of longer ones goes elsewhere. */
const LONGEST = 64 * 1024;
/** Arrays and objects: of more, Python wants to know how deep they are nested. */
const MOST_BRACKETS = 256;
/** How a request begins that opens its channel: number, acknowledgement, channel and id, up to its caller. See requests.py. */
const OPENING =
  /^\{"t":"msg","s":([1-9][0-9]{0,14}),"a":(0|[1-9][0-9]{0,14}),"c":"([ !#-[\]-~]*)","k":"req","i":(?:(0|[1-9][0-9]{0,14})|"([ !#-[\]-~]*)"),"o":/;
/** By which a call names its tab: see statics.py. */
const TAB_ARGUMENT = "_tab";
/** Half of a surrogate pair, as JSON spells it. A whole pair looks the same: what fits is only looked at more closely. */
const SURROGATE = /\\u[dD][89a-fA-F]/;

/**
 * A call that says no more than a tool's name, arguments and `_meta`. `like`: the same for all by the same caller, to the same
 * tool, with the same `_meta`.
 * @typedef {object} Call
 * @property {number} seq
 * @property {number} upto
 * @property {string} channel
 * @property {number | string} id
 * @property {number} headerSize
 * @property {string} request
 * @property {string} like
 */

/**
 * @param {string} frame
 * @returns {Call | undefined}
 */
export function readCall(frame) {
  const opening = frame.length > LONGEST ? null : OPENING.exec(frame);
  const headerSize = frame.indexOf("\n");
  if (!opening || headerSize < 0) return undefined;
  const [beginning, seq, upto, channel = "", number, text = ""] = opening;
  const request = frame.slice(headerSize + 1);
  const id = number === undefined ? text : Number(number);
  const said = parsed(request);
  if (!isRecord(said) || said.jsonrpc !== "2.0" || said.id !== id || said.method !== "tools/call") return undefined;
  const { params } = said;
  if (!isRecord(params) || Object.keys(params).length !== 3) return undefined;
  const { name, arguments: given, _meta: meta } = params;
  if (typeof name !== "string" || !isRecord(given) || !isRecord(meta) || Object.hasOwn(given, TAB_ARGUMENT)) return undefined;
  if (hasMany(request)) return undefined;
  const like = `${JSON.stringify([name, meta])}${frame.slice(beginning.length, headerSize)}`;
  return { seq: Number(seq), upto: Number(upto), channel, id, headerSize, request, like };
}

/**
 * Is a tab's result one line of JSON, an object with `content` as MCP wants it, and beside that at most `structuredContent`?
 * @param {string} json
 */
export function isPlainResult(json) {
  if (typeof json !== "string") return false;
  if (!json.startsWith('{"') || !json.endsWith("}") || json.includes("\n") || !json.isWellFormed() || SURROGATE.test(json)) {
    return false;
  }
  const said = parsed(json);
  if (!isRecord(said)) return false;
  const { content, structuredContent, ...rest } = said;
  return Array.isArray(content) && content.every(isBlock) && Object.keys(rest).length === 0;
}

/** @param {unknown} block */
function isBlock(block) {
  return isRecord(block) && "type" in block;
}

/**
 * @param {string} json
 * @returns {unknown}
 */
function parsed(json) {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {string} json */
function hasMany(json) {
  let count = 0;
  for (let at = 0; at < json.length && count <= MOST_BRACKETS; at++) {
    const letter = json.charCodeAt(at);
    if (letter === 0x5b || letter === 0x7b) count++;
  }
  return count > MOST_BRACKETS;
}
