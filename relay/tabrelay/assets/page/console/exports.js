/**
 * Export of captured calls: HAR 1.2, OpenTelemetry traces as JSON, and the console's session file; and the reader of such a file.
 *
 * Pure functions of details, as the relay gives them: secrets are redacted already, and of headers credentials are hidden. A
 * session file holds rows and details, so that the console shows it without a relay; whatever it contains is checked when it is
 * read.
 */

import { TOOLS_CALL } from "../mcp_methods.js";

/**
 * @typedef {import("./rows.js").Row} Row
 * @typedef {import("./relay_api.js").Detail} Detail
 */

const FORMAT = "tabrelay-session";
const FORMAT_VERSION = 1;
const MAX_CALLS = 10_000;
const SPAN_KIND_SERVER = 2;
const SPAN_KIND_INTERNAL = 1;
const STATUS_OK = 1;
const STATUS_ERROR = 2;
const STATES = new Set(["waiting", "running", "done", "failed", "refused", "cancelled"]);

/** @param {Detail} detail */
function replyText({ response, row }) {
  if (!response) return "";
  if ("text" in response) return String(response.text);
  return JSON.stringify({ jsonrpc: "2.0", id: row.seq, ...response });
}

/**
 * @param {Detail[]} details
 * @param {{ version: string, base: string }} about `base`: address of the relay
 */
export function harOf(details, { version, base }) {
  return {
    log: {
      version: "1.2",
      creator: { name: "Tabrelay console", version },
      entries: details.map((detail) => harEntry(detail, base)),
    },
  };
}

/** @param {Detail} detail @param {string} base */
function harEntry(detail, base) {
  const { row, request } = detail;
  const body = JSON.stringify({ jsonrpc: "2.0", id: row.seq, method: request.method, params: request.params });
  const text = replyText(detail);
  const ms = row.ms ?? 0;
  const headers = Object.entries(request.headers ?? {}).map(([name, value]) => ({ name, value }));
  const isOver = row.ms !== null;
  return {
    startedDateTime: new Date(row.started).toISOString(),
    time: ms,
    request: {
      method: "POST",
      url: `${base}/${row.server}`,
      httpVersion: "HTTP/1.1",
      cookies: [],
      headers,
      queryString: [],
      postData: { mimeType: "application/json", text: body },
      headersSize: -1,
      bodySize: row.bytes_in,
    },
    response: {
      status: isOver ? 200 : 0,
      statusText: isOver ? "OK" : "",
      httpVersion: "HTTP/1.1",
      cookies: [],
      headers: [{ name: "content-type", value: "application/json" }],
      content: { size: row.bytes_out, mimeType: "application/json", text },
      redirectURL: "",
      headersSize: -1,
      bodySize: row.bytes_out,
    },
    cache: {},
    timings: harTimings(detail),
    _mcp: { ...row, spans: detail.spans ?? [], notices: detail.notices, events: detail.events },
  };
}

/** What a HAR viewer draws: waiting for the server as `blocked`, the rest as `wait`. @param {Detail} detail */
function harTimings({ row, spans = [] }) {
  const blocked = spans.filter(({ name }) => name === "wait").reduce((sum, { ms }) => sum + ms, 0);
  return { blocked, dns: -1, connect: -1, ssl: -1, send: 0, wait: Math.max(0, (row.ms ?? 0) - blocked), receive: 0 };
}

/**
 * OTLP in its JSON form (`ExportTraceServiceRequest`): a span for each call, and one for each of its hops.
 *
 * @param {Detail[]} details
 * @param {{ version: string }} about
 */
export function otlpOf(details, { version }) {
  return {
    resourceSpans: [
      {
        resource: { attributes: [attribute("service.name", "tabrelay"), attribute("service.version", version)] },
        scopeSpans: [{ scope: { name: "tabrelay.console", version }, spans: details.flatMap(otlpSpans) }],
      },
    ],
  };
}

/** @param {Detail} detail */
function otlpSpans({ row, spans = [], events }) {
  const traceId = /^[0-9a-f]{32}$/u.test(row.trace ?? "") ? row.trace : hexOf(`trace ${row.relay} ${row.id}`, 32);
  const spanId = hexOf(`span ${row.relay} ${row.id}`, 16);
  const began = spans[0]?.at ?? row.started;
  const total = Math.max(row.ms ?? 0, spans.reduce((sum, { ms }) => sum + ms, 0));
  const attributes = [
    attribute("mcp.method.name", row.method),
    attribute("tabrelay.server", row.server),
    attribute("tabrelay.state", row.state),
    attribute("tabrelay.peer", row.peer),
    ...(row.name ? [attribute(row.method === TOOLS_CALL ? "gen_ai.tool.name" : "tabrelay.name", row.name)] : []),
    ...(row.era ? [attribute("mcp.protocol.version", row.era)] : []),
    ...(row.client.name ? [attribute("tabrelay.client", row.client.name)] : []),
    ...(row.error ? [attribute("error.type", row.error.reason)] : []),
  ];
  const isBad = row.state === "failed" || row.state === "refused";
  const call = {
    traceId,
    spanId,
    name: row.name ? `${row.method} ${row.name}` : row.method,
    kind: SPAN_KIND_SERVER,
    startTimeUnixNano: nanoseconds(began),
    endTimeUnixNano: nanoseconds(began + total),
    attributes,
    events: events.map(({ at, kind, text }) => ({ timeUnixNano: nanoseconds(at), name: kind, attributes: [attribute("text", text)] })),
    status: isBad ? { code: STATUS_ERROR, message: row.error?.message ?? row.error?.reason ?? "" } : { code: STATUS_OK },
  };
  const hops = spans.map(({ name, hop, at, ms, why }, index) => ({
    traceId,
    spanId: hexOf(`hop ${row.relay} ${row.id} ${index}`, 16),
    parentSpanId: spanId,
    name: `${hop} ${name}`,
    kind: SPAN_KIND_INTERNAL,
    startTimeUnixNano: nanoseconds(at),
    endTimeUnixNano: nanoseconds(at + ms),
    attributes: [attribute("tabrelay.hop", hop), ...(why ? [attribute("tabrelay.why", why)] : [])],
    status: { code: STATUS_OK },
  }));
  return [call, ...hops];
}

/** @param {string} key @param {string} value */
function attribute(key, value) {
  return { key, value: { stringValue: value } };
}

/** OTLP's JSON has 64-bit integers as text. @param {number} ms */
function nanoseconds(ms) {
  return String(BigInt(Math.round(ms * 1000)) * 1000n);
}

/** An id of a text: the same text has the same id (FNV-1a with different seeds). @param {string} text @param {number} digits */
function hexOf(text, digits) {
  let found = "";
  for (let seed = 0; found.length < digits; seed++) {
    let hash = 0x811c9dc5 ^ (seed * 0x9e3779b1);
    for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
    found += (hash >>> 0).toString(16).padStart(8, "0");
  }
  return found.slice(0, digits);
}

/**
 * @param {Detail[]} details
 * @param {{ version: string, base: string }} about
 */
export function sessionOf(details, { version, base }) {
  return { format: FORMAT, format_version: FORMAT_VERSION, version, relay: base, saved: new Date().toISOString(), calls: details };
}

/**
 * The calls of a session file. Throws an Error that says what is wrong.
 *
 * @param {string} text
 * @returns {{ relay: string, saved: string, calls: Detail[] }}
 */
export function readSession(text) {
  /** @type {any} */
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error("This file is not JSON, so it is no session file.");
  }
  if (value?.format !== FORMAT || !Array.isArray(value.calls)) throw new Error("This is no session file of the console.");
  if (value.format_version > FORMAT_VERSION) throw new Error("A later version of Tabrelay has saved this file.");
  if (value.calls.length > MAX_CALLS) throw new Error(`The file has more than ${MAX_CALLS} calls.`);
  return { relay: String(value.relay ?? ""), saved: String(value.saved ?? ""), calls: value.calls.map(checked) };
}

/** @param {any} detail @param {number} index @returns {Detail} */
function checked(detail, index) {
  const row = detail?.row;
  const isRow = typeof row?.id === "string" && typeof row.server === "string" && typeof row.method === "string" && Number.isFinite(row.started) && STATES.has(row.state);
  if (!isRow || !isObject(detail.request)) throw new Error(`Call ${index + 1} of the file is not complete.`);
  const { request, response, clock, truncated } = detail;
  return {
    row: checkedRow(row),
    request: { method: String(request.method ?? row.method), params: request.params, headers: isObject(request.headers) ? request.headers : {} },
    response: isObject(response) ? response : null,
    notices: listOf(detail.notices, ({ at }) => Number.isFinite(at)),
    events: listOf(detail.events, ({ at, kind, text }) => Number.isFinite(at) && typeof kind === "string" && typeof text === "string"),
    spans: listOf(detail.spans, ({ name, hop, at, ms }) => typeof name === "string" && typeof hop === "string" && Number.isFinite(at) && Number.isFinite(ms)),
    total_ms: numberOr(detail.total_ms, null),
    clock: Number.isFinite(clock?.offset_ms) && Number.isFinite(clock.error_ms) ? { offset_ms: clock.offset_ms, error_ms: clock.error_ms } : null,
    truncated: isObject(truncated) ? { request: Boolean(truncated.request), response: Boolean(truncated.response) } : false,
    dropped: numberOr(detail.dropped, 0),
  };
}

/** @param {any} row @returns {Row} */
function checkedRow(row) {
  const text = (/** @type {any} */ value) => (typeof value === "string" ? value : null);
  const { client, error } = row;
  return {
    id: row.id,
    seq: numberOr(row.seq, 0),
    group: text(row.group) ?? row.id,
    server: row.server,
    method: row.method,
    name: text(row.name),
    kind: text(row.kind) ?? "call",
    client: { name: text(client?.name), version: text(client?.version) },
    era: text(row.era),
    principal: text(row.principal),
    by: text(row.by) ?? "client",
    peer: text(row.peer) ?? "",
    tab: text(row.tab),
    tab_title: text(row.tab_title),
    started: row.started,
    ms: numberOr(row.ms, null),
    state: row.state,
    code: numberOr(row.code, null),
    error: isObject(error) && typeof error.reason === "string" ? { reason: error.reason, message: text(error.message) } : null,
    delivered: text(row.delivered),
    approval: text(row.approval),
    bytes_in: numberOr(row.bytes_in, 0),
    bytes_out: numberOr(row.bytes_out, 0),
    tokens_in: numberOr(row.tokens_in, null),
    tokens_out: numberOr(row.tokens_out, null),
    trace: text(row.trace),
    rounds: numberOr(row.rounds, 1),
    replays: numberOr(row.replays, 0),
    relay: text(row.relay) ?? "",
  };
}

/** @param {unknown} value @returns {value is Record<string, any>} */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @template Other @param {any} value @param {Other} other @returns {number | Other} */
function numberOr(value, other) {
  return Number.isFinite(value) ? value : other;
}

/** @param {unknown} list @param {(each: any) => boolean} isRight */
function listOf(list, isRight) {
  return Array.isArray(list) ? list.filter((each) => isObject(each) && isRight(each)) : [];
}
