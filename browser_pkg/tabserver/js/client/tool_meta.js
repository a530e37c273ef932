/**
 * The `_meta` of a tool: hints for clients, who may call it, and what its author says in addition.
 *
 * @import { ToolDefinition, ToolHints } from "../client.js"
 */

import { RefusedOffer } from "./errors.js";

/** @type {Record<keyof ToolHints, [string, string]>} */
const HINTS = {
  search: ["anthropic/searchHint", "string"],
  alwaysLoad: ["anthropic/alwaysLoad", "boolean"],
  maxResultChars: ["anthropic/maxResultSizeChars", "number"],
  requiresUserInteraction: ["anthropic/requiresUserInteraction", "boolean"],
};
const VISIBILITIES = ["model", "app"];

/**
 * Throws for a hint or a visibility that does not exist. What `_meta` says itself takes precedence.
 * @param {ToolDefinition} tool
 * @returns {Record<string, unknown> | undefined}
 */
export function toolMeta({ name, _meta, hints, visibility }) {
  if (hints === undefined && visibility === undefined) return _meta;
  /** @type {Record<string, any>} */
  const made = {};
  for (const [hint, value] of Object.entries(hints ?? {})) {
    const [key, type] = HINTS[/** @type {keyof ToolHints} */ (hint)] ?? [];
    if (key === undefined) throw new RefusedOffer(`Tool "${name}": there is no hint "${hint}"; there are ${Object.keys(HINTS).join(", ")}`);
    if (value === undefined) continue;
    if (typeof value !== type || (type === "number" && !(Number.isInteger(value) && Number(value) > 0))) {
      throw new RefusedOffer(`Tool "${name}": its hint "${hint}" must be a ${type === "number" ? "positive " : ""}${type}`);
    }
    made[key] = value;
  }
  if (visibility !== undefined) {
    if (!Array.isArray(visibility) || !visibility.length || visibility.some((one) => !VISIBILITIES.includes(one))) {
      throw new RefusedOffer(`Tool "${name}": visibility must be ["app"], ["model"] or both`);
    }
    made.ui = { visibility };
  }
  const ui = made.ui && { ui: { ...made.ui, .../** @type {object} */ (_meta?.ui) } };
  return { ...made, ..._meta, ...ui };
}
