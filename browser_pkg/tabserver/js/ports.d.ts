// Messages between pages and the worker over a MessagePort. Data types only, so that both sides can use the file: the `dom` and
// `webworker` libraries collide. The types of the public API are in client.d.ts.

import type {
  Activity, ApprovalCaller, Boot, Caller, Catalogue, ConnectOptions, Decision, LogLevel, ModuleFailed, ModuleLoaded,
  PackageProgress, PromptDefinition, Refused, ResourceDefinition, RunPython, State, Timing, ToolDefinition,
} from "./client.js";

// -- page -> worker ----------------------------------------------------------------------------------------------------

export interface TabInfo {
  title: string;
  url: string;
  visible: boolean;
  focused: boolean;
  /** The browser is about to freeze this tab: no script runs in it until it resumes. */
  frozen?: boolean;
}

export type ResourceOffer = ResourceDefinition & { name: string };
export type TemplateOffer = Omit<ResourceOffer, "uri"> & { uriTemplate: string };

/** When the page first offered it: of several items with one name, the oldest keeps the name, however they are listed. */
export interface Since {
  since_ms: number;
}

/** The offers of a tab, by kind. */
export interface Offers {
  /** `execution` is `task` in MCP's form. */
  tools?: (Omit<ToolDefinition, "task"> & { execution?: { taskSupport: string } } & Since)[];
  resources?: (ResourceOffer & Since)[];
  templates?: (TemplateOffer & Since)[];
  prompts?: (PromptDefinition & Since)[];
}

export type OfferKind = keyof Offers;

export type FromPage =
  // First on every port, and again after a return from the back/forward cache. `lock` is a Web Lock that the page holds: when the
  // worker gets it, the page is gone.
  | {
      t: "attach";
      // `watches`: it receives activity messages for every call. So does a page without this member.
      tab: TabInfo & { id: string; watches?: boolean; approve?: ConnectOptions["approve"]; about?: object };
      lock: string;
      server: string;
      /** The id of `key`. Without one it is a token: of an authorization server, or of a page with an older client. */
      token: string;
      /** May only serve. Text in a browser that can't clone a CryptoKey. It stays in JavaScript. */
      key?: CryptoKey | string;
      modules: string[];
      /** Look for changes of these files while the page is attached. */
      dev?: boolean;
      /** Python packages of the relay, by name. */
      packages?: string[];
      /** The name of this browser, where several offer the server. */
      instance: string;
      /** The page also reads messages as JSON text. A page with an older copy of the client gets objects. */
      readsText?: boolean;
      /** The page reads a tool's arguments from the caller's request: see CallMessage. An older copy of the client does not. */
      readsRequests?: boolean;
      timing?: Timing;
      runPython?: RunPython;
    }
  | ({ t: "tab" } & TabInfo)
  | { t: "token"; token: string; key?: CryptoKey | string }
  | ({ t: "offer" } & Offers)
  // Names, URIs and URI templates.
  | ({ t: "withdraw" } & Partial<Record<OfferKind, string[]>>)
  // A resource has changed.
  | { t: "updated"; uri: string }
  // From now on the page receives activity messages for every call.
  | { t: "watch" }
  // `returns`: the page may be reloading, and attach again with the same id.
  // `expected`: the browser has reported a navigation to a page of this origin.
  | { t: "detach"; returns?: boolean; expected?: boolean }
  // `json` is the MCP result for this kind of call, as JSON text.
  | { t: "result"; call: string; json: string }
  // When a call began and ended, in milliseconds since 1970, if that was asked for. Its end follows.
  | { t: "times"; call: string; began: number; ended: number }
  // The handler does not wait for answers: it is called again with them.
  | { t: "required"; call: string; requests: Record<string, { method: string; params: object }>; state?: unknown }
  // With a `code` it is a protocol error, otherwise a tool error.
  | { t: "error"; call: string; message: string; name?: string; code?: number; data?: unknown }
  | { t: "progress"; call: string; progress: number; total?: number; message?: string }
  | { t: "log"; call: string; level: LogLevel; data: unknown; logger?: string }
  // The state with which the handler of a task can be run again.
  | { t: "save"; call: string; state: unknown }
  // A request to the client of a call; `ask` is the page's number for it.
  | { t: "ask"; call: string; ask: number; method: string; params: object; key?: string }
  // The user's decision about a call that must be allowed first.
  | { t: "approval"; call: string; decision: Decision }
  // The answer to "ping".
  | { t: "pong" }
  | { t: "retry" }
  | { t: "interrupt" }
  | { t: "stop" };

// -- worker -> page: as objects or, if the page has set `readsText`, as JSON text -------------------------------------

export type BootMessage = { t: "boot" } & Boot;
// The page adds the code of the reason, and what to do.
export type StateMessage = { t: "state" } & Omit<State, "code" | "todo">;
export type CatalogueMessage = { t: "catalogue" } & Catalogue;
export type ActivityMessage = { t: "activity" } & Activity;

/** The target of a call. `name` is the page's name for it: a name, a URI or a URI template. */
export type CallTarget =
  // `request`: the caller's request unchanged, if only its arguments matter.
  | { kind: "tools"; name: string; arguments: Record<string, unknown> }
  | { kind: "tools"; name: string; request: { params: { arguments: Record<string, unknown> } } }
  // For a template, `arguments` are the values of the variables in the URI.
  | { kind: "resources" | "templates"; name: string; uri: string; arguments: Record<string, string> }
  | { kind: "prompts"; name: string; arguments: Record<string, string> }
  // `arguments` are those that are already filled in.
  | {
      kind: "completion";
      of: "prompts" | "templates";
      name: string;
      argument: string;
      typed: string;
      arguments: Record<string, string>;
    };

export type CallMessage = {
  t: "call";
  call: string;
  caller: Caller;
  trace?: { traceparent: string; tracestate?: string; baggage?: string };
  /** For a handler that is called again: the answers to its requests. */
  responses?: Record<string, Record<string, unknown>>;
  state?: unknown;
  /** The task that the call is or may become. `saved`: what an earlier run of its handler saved. */
  task?: { id: string; saved?: unknown };
  /** The relay asks for the times of this call. */
  timed?: boolean;
} & CallTarget;

export type AnswerMessage = { t: "answer"; call: string; ask: number } & (
  | { answer: Record<string, unknown> }
  | { error: { name: string; message: string; code?: number; data?: unknown } }
);

/** A call that the user must allow first. `arguments` is JSON text; `more` characters of it were cut off. */
export interface ApproveMessage {
  t: "approve";
  call: string;
  name: string;
  title: string;
  description: string;
  arguments: string;
  more: number;
  destructive: boolean;
  caller: ApprovalCaller;
}

export type FromWorker =
  // First on every port: the Web Lock that this worker holds as long as it lives, and the origin of its relay.
  | { t: "worker"; lock: string; relay?: string }
  | BootMessage
  | StateMessage
  | CatalogueMessage
  | CallMessage
  | { t: "cancel"; call: string; reason: string }
  | ApproveMessage
  // The decision is no longer needed.
  | { t: "approve_over"; call: string }
  | AnswerMessage
  // Sent to a tab that runs a call and has sent nothing for a while.
  | { t: "ping" }
  | ActivityMessage
  | ({ t: "refused" } & Refused)
  | ({ t: "module_failed" } & ModuleFailed)
  // What Python in the worker printed, a warning, or the traceback of a handler: for the console of the page.
  | { t: "console"; level: "log" | "warn" | "error"; text: string }
  | ({ t: "module_loaded" } & ModuleLoaded)
  | ({ t: "package" } & PackageProgress);

// -- worker.js ---------------------------------------------------------------------------------------------------------

/** A buffer in Python's memory. */
export interface Memory {
  getBuffer(type: "u8"): { data: Uint8Array<ArrayBuffer>; release(): void };
}

export interface Manifest {
  version: string;
  build: string;
  tabserver: string;
  pyodide: string;
  /** Absent if there is no snapshot of exactly these files. */
  snapshot?: { url: string; integrity: string; library_bytes: number };
}

/** The part of Pyodide that boot.js uses. */
export interface Pyodide {
  unpackArchive(archive: ArrayBuffer, format: string, options?: { extractDir?: string }): void;
  pyimport(name: string): any;
  /** Pyodide's own objects: its installer and its lock file. Not public. */
  _api: any;
  /** Emscripten's module: the C library and the memory. Not public. */
  _module: any;
}

export interface PyodideOptions {
  indexURL: string;
  stdLibURL?: string;
  createPyodideModule?: unknown;
  /** Not public: may be removed or changed in any version. */
  _loadSnapshot?: Promise<Uint8Array>;
}

export interface PyodideModule {
  loadPyodide(options: PyodideOptions): Promise<Pyodide>;
}
