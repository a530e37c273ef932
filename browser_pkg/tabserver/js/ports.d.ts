// What pages and the worker say to each other over a MessagePort. Plain data only, so that the same file serves both
// sides: the `dom` and `webworker` libraries collide. What a page's author sees is in client.d.ts.

import type {
  Activity, ApprovalCaller, Boot, Caller, Catalogue, ConnectOptions, Decision, LogLevel, ModuleFailed, PromptDefinition, Refused,
  ResourceDefinition, RunPython, State, Timing, ToolDefinition,
} from "./client.js";

// -- page -> worker ----------------------------------------------------------------------------------------------------

export interface TabInfo {
  title: string;
  url: string;
  visible: boolean;
  focused: boolean;
  /** The browser is about to stop this tab: nothing runs in it until it resumes. */
  frozen?: boolean;
}

export type ResourceOffer = ResourceDefinition & { name: string };
export type TemplateOffer = Omit<ResourceOffer, "uri"> & { uriTemplate: string };

/** When the page first offered it: of different things with one name the first keeps the name, whoever asks when. */
export interface Since {
  since_ms: number;
}

/** What a tab has of each kind. */
export interface Offers {
  tools?: (ToolDefinition & Since)[];
  resources?: (ResourceOffer & Since)[];
  templates?: (TemplateOffer & Since)[];
  prompts?: (PromptDefinition & Since)[];
}

export type OfferKind = keyof Offers;

export type FromPage =
  // First on every port, and again after a return from the back/forward cache. `lock` is a Web Lock that the tab holds:
  // when the worker gets it, the tab is gone.
  | {
      t: "attach";
      // `watches`: it wants to hear of every call. One that does not say does.
      tab: TabInfo & { id: string; watches?: boolean; approve?: ConnectOptions["approve"] };
      lock: string;
      server: string;
      /** The id of `key`. Without one it is a token: of an authorization server, or of a page with an older client. */
      token: string;
      /** May serve and nothing else. Text, where the browser can't clone a CryptoKey. It stays in JavaScript. */
      key?: CryptoKey | string;
      modules: string[];
      /** What this browser is called, where several offer the server. */
      instance: string;
      /** It takes messages as JSON text too. A page with an older copy of the client gets objects. */
      readsText?: boolean;
      /** It takes a tool's arguments out of the caller's request: see CallMessage. An older copy of the client does not. */
      readsRequests?: boolean;
      timing?: Timing;
      runPython?: RunPython;
    }
  | ({ t: "tab" } & TabInfo)
  | { t: "token"; token: string; key?: CryptoKey | string }
  | ({ t: "offer" } & Offers)
  // Names, URIs and URI templates.
  | ({ t: "withdraw" } & Partial<Record<OfferKind, string[]>>)
  // A resource is not what it was.
  | { t: "updated"; uri: string }
  // From now on it wants to hear of every call.
  | { t: "watch" }
  // `returns`: maybe the page is only being loaded again, and will attach again under the same id.
  // `expected`: it said that it leads to a page of this origin.
  | { t: "detach"; returns?: boolean; expected?: boolean }
  // `json` is the result that MCP wants for this kind of call, as JSON text.
  | { t: "result"; call: string; json: string }
  // Called again with the answers: a handler that does not wait for them.
  | { t: "required"; call: string; requests: Record<string, { method: string; params: object }>; state?: unknown }
  // With a `code` it is an error of the protocol, else what the tool says went wrong.
  | { t: "error"; call: string; message: string; name?: string; code?: number; data?: unknown }
  | { t: "progress"; call: string; progress: number; total?: number; message?: string }
  | { t: "log"; call: string; level: LogLevel; data: unknown; logger?: string }
  // A question to the client of a call; `ask` is the page's own number for it.
  | { t: "ask"; call: string; ask: number; method: string; params: object; key?: string }
  // What the user decided about a call that must be allowed first.
  | { t: "approval"; call: string; decision: Decision }
  // The answer to "ping".
  | { t: "pong" }
  | { t: "retry" }
  | { t: "stop" };

// -- worker -> page: as objects or, if the page said that it reads it, as JSON text -----------------------------------

export type BootMessage = { t: "boot" } & Boot;
export type StateMessage = { t: "state" } & State;
export type CatalogueMessage = { t: "catalogue" } & Catalogue;
export type ActivityMessage = { t: "activity" } & Activity;

/** What a call is for. `name` is what the page called it: a name, a URI or a URI template. */
export type CallTarget =
  // `request`: the caller's own, as it came, if nothing but its arguments matters.
  | { kind: "tools"; name: string; arguments: Record<string, unknown> }
  | { kind: "tools"; name: string; request: { params: { arguments: Record<string, unknown> } } }
  // For a template, `arguments` are the variables that the URI has.
  | { kind: "resources" | "templates"; name: string; uri: string; arguments: Record<string, string> }
  | { kind: "prompts"; name: string; arguments: Record<string, string> }
  // `arguments` are those that are filled in already.
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
  /** Of a handler that is called again, with the answers it wanted. */
  responses?: Record<string, Record<string, unknown>>;
  state?: unknown;
} & CallTarget;

export type AnswerMessage = { t: "answer"; call: string; ask: number } & (
  | { answer: Record<string, unknown> }
  | { error: { name: string; message: string; code?: number; data?: unknown } }
);

/** A call that somebody must allow first. `arguments` is JSON text; `more` characters of it were cut off. */
export interface ApproveMessage {
  t: "approve";
  call: string;
  name: string;
  title: string;
  arguments: string;
  more: number;
  destructive: boolean;
  caller: ApprovalCaller;
}

export type FromWorker =
  // First on every port: the Web Lock that this worker holds as long as it lives.
  | { t: "worker"; lock: string }
  | BootMessage
  | StateMessage
  | CatalogueMessage
  | CallMessage
  | { t: "cancel"; call: string; reason: string }
  | ApproveMessage
  // Nobody waits for the decision any more.
  | { t: "approve_over"; call: string }
  | AnswerMessage
  // Asked of a tab that runs a call and has said nothing for a while.
  | { t: "ping" }
  | ActivityMessage
  | ({ t: "refused" } & Refused)
  | ({ t: "module_failed" } & ModuleFailed);

// -- worker.js ---------------------------------------------------------------------------------------------------------

/** A piece of Python's memory. */
export interface Memory {
  getBuffer(type: "u8"): { data: Uint8Array<ArrayBuffer>; release(): void };
}

export interface Manifest {
  version: string;
  build: string;
  tabserver: string;
  pyodide: string;
  /** Absent if there is none that was made of just these files. */
  snapshot?: { url: string; integrity: string };
}

/** The part of Pyodide that boot.js uses. */
export interface Pyodide {
  unpackArchive(archive: ArrayBuffer, format: string, options?: { extractDir?: string }): void;
  pyimport(name: string): any;
  /** Emscripten's: the C library and the memory. Not public. */
  _module: any;
}

export interface PyodideOptions {
  indexURL: string;
  stdLibURL?: string;
  createPyodideModule?: unknown;
  /** Not public: may go or change with any version. */
  _loadSnapshot?: Promise<Uint8Array>;
}

export interface PyodideModule {
  loadPyodide(options: PyodideOptions): Promise<Pyodide>;
}
