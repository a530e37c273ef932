/**
 * Calls that the console makes itself: starts them at the relay, follows them, cancels them, and reads whole lists.
 *
 * The relay makes the request as a client of the present version named "Tabrelay console", so these calls are rows like all others. The
 * outcome is read from the call's details when its row has ended. Approval and questions are the caller's part.
 */

import { RESOURCES_TEMPLATES_LIST } from "../mcp_methods.js";
import { ask, readDetail } from "./relay_api.js";

const PROGRESS_MS = 400;
const MAX_PAGES = 50;

/**
 * @typedef {import("./relay_api.js").Detail} Detail
 * @typedef {{ server?: string, method?: string, params?: Record<string, unknown>, tab?: string, of?: string, responses?: Record<string, unknown> }} RunRequest
 * @typedef {{ signal?: AbortSignal, onStart?: (id: string) => void, onDetail?: (detail: Detail) => void }} RunOptions
 */

export class CallRunner {
  #store;

  /** @param {import("./call_store.js").CallStore} store */
  constructor(store) {
    this.#store = store;
  }

  /**
   * Run a request, and return its details when it has ended.
   *
   * @param {RunRequest} request
   * @param {RunOptions} [options]
   * @returns {Promise<Detail>}
   */
  async run(request, { signal, onStart, onDetail } = {}) {
    const { id } = await ask("/-/console/run", { body: request });
    onStart?.(id);
    const cancel = () => void ask(`/-/console/calls/${encodeURIComponent(id)}/cancel`, { method: "POST" }).catch(() => undefined);
    signal?.addEventListener("abort", cancel, { once: true });
    if (signal?.aborted) cancel();
    try {
      await this.#ended(id, onDetail);
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
    return readDetail(id);
  }

  /**
   * All entries of a list, page by page. A server without the method has none.
   *
   * @param {string} server
   * @param {"tools" | "resources" | "resourceTemplates" | "prompts"} kind
   * @returns {Promise<Record<string, any>[]>}
   */
  async list(server, kind) {
    const method = kind === "resourceTemplates" ? RESOURCES_TEMPLATES_LIST : `${kind}/list`;
    /** @type {Record<string, any>[]} */
    const found = [];
    /** @type {string | undefined} */
    let cursor;
    for (let page = 0; page < MAX_PAGES; page++) {
      const { response } = await this.run({ server, method, params: cursor ? { cursor } : {} });
      if (response?.error) throw new Error(String(response.error.message));
      found.push(...(response?.result?.[kind] ?? []));
      cursor = response?.result?.nextCursor;
      if (!cursor) break;
    }
    return found;
  }

  /** @param {string} id @param {((detail: Detail) => void) | undefined} onDetail */
  #ended(id, onDetail) {
    return new Promise((resolve) => {
      const end = () => {
        clearInterval(timer);
        this.#store.removeEventListener("change", check);
        resolve(undefined);
      };
      const check = () => {
        const row = this.#store.find(id);
        if (row && row.ms !== null) end();
      };
      // The stream may have been interrupted, so the details are read too.
      const timer = setInterval(async () => {
        const detail = await readDetail(id).catch(() => null);
        if (detail?.row.ms !== null && detail) return end();
        if (detail) onDetail?.(detail);
      }, PROGRESS_MS);
      this.#store.addEventListener("change", check);
      check();
    });
  }
}
