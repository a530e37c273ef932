/**
 * Python files of `modules` as a page sees them: which ones it names, whether it develops them, and their errors.
 *
 * The worker loads the files and looks for changes. An error is written to the console and, while the page develops them, shown
 * in a panel until the file loads. It loads nothing itself.
 *
 * @import { ConnectOptions } from "../client.js"
 * @import { FromWorker } from "../ports.js"
 */

import { showPanel } from "./corner_panel.js";
import { isLoopback } from "./relay_health.js";

/** @typedef {Extract<FromWorker, { t: "module_failed" | "module_loaded" | "package" }>} ModuleMessage */

export class WorkerModules {
  #isOwn;
  #dispatch;
  /** @type {Set<string>} */
  #urls = new Set();
  /** @type {Set<string>} */
  #packages = new Set();
  /** What the page has said; otherwise pages of this computer develop, except those of the relay. @type {boolean | undefined} */
  #given;
  /** The panels with errors, by the module's URL: functions that remove them. @type {Map<string, () => void>} */
  #panels = new Map();

  /**
   * @param {boolean} isOwn is this a page of the relay itself?
   * @param {(type: string, detail: object) => boolean} dispatch false: the page handles it
   */
  constructor(isOwn, dispatch) {
    this.#isOwn = isOwn;
    this.#dispatch = dispatch;
  }

  get #isDev() {
    return this.#given ?? (!this.#isOwn && isLoopback(location.hostname));
  }

  /**
   * @param {ConnectOptions} options
   * @returns {boolean} whether there is anything new for the worker
   */
  merge({ modules = [], packages = [], dev }) {
    const before = this.#count;
    for (const name of [packages].flat()) this.#packages.add(String(name));
    for (const url of [modules].flat()) this.#urls.add(new URL(url, document.baseURI).href);
    this.#given = dev ?? this.#given;
    return before !== this.#count;
  }

  get #count() {
    return `${this.#urls.size} ${this.#packages.size} ${this.#isDev}`;
  }

  forWorker() {
    const packages = this.#packages.size ? { packages: [...this.#packages] } : {};
    return { modules: [...this.#urls], dev: this.#isDev && this.#urls.size > 0, ...packages };
  }

  /** @param {ModuleMessage} message */
  receive(message) {
    if (message.t === "package") return this.#receivePackage(message);
    this.#panels.get(message.url)?.();
    this.#panels.delete(message.url);
    if (message.t === "module_loaded") {
      if (message.again) console.info(`tabrelay: ${message.url} was loaded again.`);
      this.#dispatch(message.t, message);
      return;
    }
    const kept = message.kept ? " The tools of its last version stay in force." : "";
    const trace = message.traceback ? `\n${message.traceback}` : "";
    console.error(`tabrelay: ${message.url} could not be loaded: ${message.message}${/[.?!]$/.test(message.message) ? "" : "."}${kept} [TR471]${trace}`);
    if (this.#dispatch(message.t, message) && this.#isDev) this.#panels.set(message.url, showProblem(message));
  }

  /** @param {Extract<ModuleMessage, { t: "package" }>} message */
  #receivePackage(message) {
    const { name, version, stage, loaded, total } = message;
    if (stage === "failed") console.error(`tabrelay: the Python package ${name} is not available: ${message.message} [TR472]`);
    else if (stage === "ready") console.info(`tabrelay: ${name} ${version} is installed.`);
    else if (!loaded) console.info(`tabrelay: downloading ${name} ${version}${size(total)}.`);
    this.#dispatch(message.t, message);
  }
}

/** @param {number | undefined} bytes */
function size(bytes) {
  return bytes ? ` (${(bytes / 1e6).toFixed(1)} MB)` : "";
}

/** @param {Extract<ModuleMessage, { t: "module_failed" }>} message */
function showProblem({ url, message, kept, traceback }) {
  const close = showPanel({
    title: `${new URL(url).pathname} has an error`,
    text: [message, ...(kept ? ["The tools of its last version stay in force."] : [])],
    ...(traceback ? { details: { label: "Traceback", text: traceback } } : {}),
    actions: [{ label: "Close", run: () => close() }],
  });
  return close;
}
