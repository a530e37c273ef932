/**
 * Recognition of plain tool calls and plain results, without Python.
 *
 * A call or result is plain if it contains nothing that Python would have to look at: a tool's name, arguments and `_meta`, or
 * well-formed content. The browser checks that in a tenth of the time that Python would take to parse it. A false answer
 * means "let Python read it"; the rules of MCP are checked there, not here.
 */

/** Length of a frame; for longer ones, parsing is not what takes the time. */
const MAX_FRAME_CHARACTERS = 64 * 1024;
/** Arrays and objects: with more, Python checks how deep they are nested. */
const MAX_BRACKETS = 256;
/**
 * The beginning of a request that opens its channel: sequence number, acknowledgement, channel and id, up to its caller. See
 * wire/shortcuts.py. Channel and id have at most 256 characters.
 */
const OPENING =
  /^\{"t":"msg","s":([1-9][0-9]{0,14}),"a":(0|[1-9][0-9]{0,14}),"c":"([ !#-[\]-~]{0,256})","k":"req","i":(0|[1-9][0-9]{0,14}|"[ !#-[\]-~]{0,256}"),"o":/;
/** A JSON token: a string, a bracket, or a literal. */
const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{}:,]|[^\s"[\]{}:,]+/g;
/** The argument by which a call names its tab: see wire/static_tools.py. */
const TAB_ARGUMENT = "_tab";
/** Half of a surrogate pair, as a JSON escape. A whole pair matches too; Python then reads the text, which is only slower. */
const SURROGATE = /\\u[dD][89a-fA-F]/;

/**
 * A request that opens its channel. `id` is JSON, and `caller` the rest of the header, from its caller on.
 * @typedef {object} Call
 * @property {number} seq
 * @property {number} upto
 * @property {string} channel
 * @property {string} id
 * @property {string} caller
 * @property {string} request
 * @property {number} size of all of it, without the newline
 */

/**
 * @param {string} frame
 * @returns {Call | undefined}
 */
export function readCall(frame) {
  const opening = frame.length > MAX_FRAME_CHARACTERS ? null : OPENING.exec(frame);
  const end = frame.indexOf("\n");
  if (!opening || end < 0) return undefined;
  const [beginning, seq, upto, channel = "", id = ""] = opening;
  // defence: calls that JavaScript carries out: another caller
  const caller = frame.slice(beginning.length, end);
  return { seq: Number(seq), upto: Number(upto), channel, id, caller, request: frame.slice(end + 1), size: frame.length - 1 };
}

/**
 * The constant text of all calls of one tool with the same `_meta`, in the member order of their client: the text before,
 * between and after the id and the arguments.
 * @typedef {{ texts: [string, string, string], isIdFirst: boolean }} Pattern
 */

/**
 * The pattern of a call that contains only a tool's name, arguments and `_meta`.
 * @param {Call} call
 * @returns {Pattern | undefined}
 */
export function patternOf({ id, request }) {
  const message = parsed(request);
  if (!isRecord(message) || message.jsonrpc !== "2.0" || message.method !== "tools/call" || !isRecord(message.params)) return undefined;
  const { name, arguments: given, _meta: meta } = message.params;
  // defence: calls that JavaScript carries out: nothing else is said
  if (typeof name !== "string" || !isRecord(given) || !isRecord(meta) || Object.keys(message.params).length !== 3) return undefined;
  const spans = spansOf(request);
  const [numbers, values] = [spans?.get("id"), spans?.get("params/arguments")];
  if (!numbers || !values || request.slice(...numbers) !== id) return undefined;
  const isIdFirst = numbers[0] < values[0];
  const [one, other] = isIdFirst ? [numbers, values] : [values, numbers];
  return { texts: [request.slice(0, one[0]), request.slice(one[1], other[0]), request.slice(other[1])], isIdFirst };
}

/**
 * The arguments of a call with this pattern, as JSON, if they are plain. They are valid JSON between two parts of a valid JSON
 * text, so the whole means what it meant when the pattern was made.
 * @param {Pattern} pattern
 * @param {Call} call
 */
export function argumentsOf({ texts: [first, second, third], isIdFirst }, { id, request }) {
  const before = isIdFirst ? `${first}${id}${second}` : first;
  const after = isIdFirst ? third : `${second}${id}${third}`;
  const end = request.length - after.length;
  // defence: calls that JavaScript carries out: text before it
  // defence: calls that JavaScript carries out: text behind it
  if (end <= before.length || !request.startsWith(before) || !request.endsWith(after)) return undefined;
  const json = request.slice(before.length, end);
  const given = parsed(json);
  // defence: calls that JavaScript carries out: a tab by name
  // defence: calls that JavaScript carries out: arguments that are JSON
  if (!isRecord(given) || Object.hasOwn(given, TAB_ARGUMENT) || request.includes("\n") || hasManyBrackets(json)) return undefined;
  return json;
}

/**
 * Is a tab's result one line of JSON: an object with valid `content`, and at most an object as `structuredContent` beside it?
 * @param {string} json
 */
export function isPlainResult(json) {
  if (typeof json !== "string") return false;
  if (!json.startsWith('{"') || !json.endsWith("}") || json.includes("\n") || !json.isWellFormed() || SURROGATE.test(json)) {
    return false;
  }
  const message = parsed(json);
  if (!isRecord(message)) return false;
  const { content, structuredContent, ...rest } = message;
  if (structuredContent !== undefined && !isRecord(structuredContent)) return false;
  return Array.isArray(content) && content.every(isBlock) && Object.keys(rest).length === 0;
}

/** @param {unknown} block */
function isBlock(block) {
  return isRecord(block) && "type" in block;
}

/**
 * The positions of a JSON object's values in its text, by key; nested objects by path ("params/name"). Undefined if they are
 * ambiguous: a key occurs twice or has escapes.
 * @param {string} json that can be parsed
 */
function spansOf(json) {
  /** @type {Map<string, [number, number]>} */
  const spans = new Map();
  /** The keys of the current path, and where their values begin. @type {{ key: string, start: number }[]} */
  const path = [];
  let [last, end] = ["", 0];
  for (const { 0: token, index } of json.matchAll(TOKEN)) {
    const here = path.at(-1);
    if (here?.start === -1) here.start = index;
    if (token === "{" || token === "[") path.push({ key: "", start: 0 });
    else if (token === ":" && here) {
      Object.assign(here, { key: last.slice(1, -1), start: -1 });
      if (last.includes("\\")) return undefined;
    } else if ((token === "," || token === "}" || token === "]") && here) {
      const name = path.map(({ key }) => key).join("/");
      // defence: calls that JavaScript carries out: a repeated key
      if (here.key !== "" && spans.has(name)) return undefined;
      if (here.key !== "") spans.set(name, [here.start, end]);
      here.key = "";
      if (token !== ",") path.pop();
    }
    [last, end] = [token, index + token.length];
  }
  return spans;
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
function hasManyBrackets(json) {
  if (json.length <= MAX_BRACKETS) return false;
  let count = 0;
  for (let at = 0; at < json.length && count <= MAX_BRACKETS; at++) {
    const code = json.charCodeAt(at);
    if (code === 0x5b || code === 0x7b) count++;
  }
  return count > MAX_BRACKETS;
}
