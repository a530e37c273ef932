/**
 * Minimal WebMCP polyfill: only what this example needs, for browsers without WebMCP. A real page uses a complete polyfill, such
 * as @mcp-b/webmcp-polyfill.
 */

class StandIn extends EventTarget {
  /** @type {Map<string, any>} */
  #tools = new Map();

  /**
   * @param {any} tool
   * @param {{ signal?: AbortSignal }} [options]
   */
  async registerTool(tool, { signal } = {}) {
    if (this.#tools.has(tool.name)) throw new DOMException(`There is a tool “${tool.name}”.`, "InvalidStateError");
    this.#tools.set(tool.name, tool);
    signal?.addEventListener("abort", () => {
      this.#tools.delete(tool.name);
      this.dispatchEvent(new Event("toolchange"));
    });
    this.dispatchEvent(new Event("toolchange"));
  }

  async getTools() {
    return [...this.#tools.values()].map(({ execute, ...tool }) => tool);
  }

  /**
   * @param {{ name: string }} tool
   * @param {object} input
   */
  async executeTool({ name }, input) {
    const value = await this.#tools.get(name)?.execute(input, {});
    return typeof value === "string" ? value : JSON.stringify(value);
  }
}

if (!("modelContext" in document)) Object.defineProperty(document, "modelContext", { value: new StandIn() });
