// What pages and the worker say to each other over a MessagePort, and what a page may pass to client.js.
// Plain data only, so that the same file serves both sides: the `dom` and `webworker` libraries collide.

// -- page -> worker ----------------------------------------------------------------------------------------------------

export interface TabInfo {
  title: string;
  url: string;
  visible: boolean;
  focused: boolean;
  /** The browser is about to stop this tab: nothing runs in it until it resumes. */
  frozen?: boolean;
}

export interface Annotations {
  title?: string;
  readOnlyHint?: boolean;
  destructiveHint?: boolean;
  idempotentHint?: boolean;
  openWorldHint?: boolean;
}

export interface ToolDefinition {
  name: string;
  title?: string;
  description?: string;
  inputSchema?: object;
  outputSchema?: object;
  annotations?: Annotations;
}

export type LogLevel = "debug" | "info" | "notice" | "warning" | "error" | "critical" | "alert" | "emergency";

export type FromPage =
  // First on every port, and again after a return from the back/forward cache. `lock` is a Web Lock that the tab holds:
  // when the worker gets it, the tab is gone.
  | {
      t: "attach";
      tab: TabInfo & { id: string };
      lock: string;
      server: string;
      token: string;
      modules: string[];
      timing?: Timing;
    }
  | ({ t: "tab" } & TabInfo)
  | { t: "token"; token: string }
  | { t: "offer"; tools: ToolDefinition[] }
  | { t: "withdraw"; tools: string[] }
  // `returns`: the page is being loaded again, and will attach again under the same id.
  | { t: "detach"; returns?: boolean }
  // `json` is a CallToolResult as JSON text: the worker moves it without looking inside.
  | { t: "result"; call: string; json: string }
  | { t: "error"; call: string; message: string }
  | { t: "progress"; call: string; progress: number; total?: number; message?: string }
  | { t: "log"; call: string; level: LogLevel; data: unknown }
  // The answer to "ping".
  | { t: "pong" }
  | { t: "retry" }
  | { t: "stop" };

// -- worker -> page ----------------------------------------------------------------------------------------------------

export interface BootMessage {
  t: "boot";
  stage: "download" | "start" | "ready" | "failed";
  loaded?: number;
  total?: number;
  detail?: string;
}

export type Why =
  | "relay_down"
  | "unauthorized"
  | "forbidden"
  | "replaced"
  | "taken"
  | "version"
  | "timeout"
  | "lost"
  | "restarting"
  | "closed"
  | "not_paired"
  | "boot_failed"
  | "unsupported";

export interface StateMessage {
  t: "state";
  state: "connecting" | "connected" | "waiting" | "stopped";
  why: Why | null;
  message: string | null;
  retry_in_ms: number | null;
  server: string;
  /** When this state began, in milliseconds since 1970. */
  since_ms: number;
  attempts: number;
}

export interface CatalogueEntry {
  name: string;
  title?: string;
  description?: string;
  /** "worker", or the id of the tab that gets the call. */
  owner: string;
  tab?: { id: string; title: string; url: string };
}

export interface CatalogueMessage {
  t: "catalogue";
  tools: CatalogueEntry[];
}

export interface CallerInfo {
  client: { name?: string; version?: string } | null;
  principal: string;
  era: "modern" | "legacy";
}

export interface CallMessage {
  t: "call";
  call: string;
  name: string;
  arguments: Record<string, unknown>;
  caller: CallerInfo;
}

export interface ActivityMessage {
  t: "activity";
  call: string;
  name: string;
  owner: string;
  phase: "started" | "progress" | "done" | "failed" | "cancelled";
  /** Milliseconds since 1970. */
  at_ms: number;
  /** How long the call took; when it has ended. */
  ms?: number;
  client?: string;
  progress?: number;
  total?: number;
  error?: string;
}

export type FromWorker =
  // First on every port: the Web Lock that this worker holds as long as it lives.
  | { t: "worker"; lock: string }
  | BootMessage
  | StateMessage
  | CatalogueMessage
  | CallMessage
  | { t: "cancel"; call: string; reason: string }
  // Asked of a tab that runs a call and has said nothing for a while.
  | { t: "ping" }
  | ActivityMessage
  | { t: "refused"; kind: string; name: string; message: string }
  | { t: "module_failed"; url: string; message: string };

// -- client.js ---------------------------------------------------------------------------------------------------------

/**
 * The worker's waits, in milliseconds, for tests and unusual networks; what is left out has the default given here. The
 * tab that starts the worker decides.
 */
export interface Timing {
  /** A dial that takes longer is given up: 5000. */
  connect_ms?: number;
  /** The first pause before dialling again: 1000. It doubles up to `longest_delay_ms`: 3000. */
  first_delay_ms?: number;
  longest_delay_ms?: number;
  /** The pauses start from the first again after a connection of at least this: 10000. */
  stable_ms?: number;
  /** A relay that says nothing for so long is gone: 50000. It says something every 20 s. */
  watchdog_ms?: number;
  /** A tab that runs a call and says nothing for so long is asked whether it lives: 5000. */
  tab_quiet_ms?: number;
  /** If it does not answer for so long, its calls fail: 30000. A tool that computes without a pause can't answer. */
  tab_silence_ms?: number;
  /** A tab that is reloaded is kept for so long, with its tools and the calls that came meanwhile: 5000. */
  tab_return_ms?: number;
}

export interface ConnectOptions {
  /** The name of the MCP server: the last part of its URL. */
  server: string;
  /** Where the relay is; the origin that client.js came from if left out. */
  relay?: string;
  /** The relay's token; else the one that pairing stored. */
  token?: string;
  /** URLs of Python files whose tools run in the worker. */
  modules?: string[];
  /** A file of your own origin that imports the relay's worker.js, for a page that is not on the relay's origin. */
  worker?: string | URL;
  timing?: Timing;
}

export interface CallContext {
  /** The id of this call, as in the "activity" events. */
  call: string;
  /** Aborted when the caller cancels, or when the worker is lost. */
  signal: AbortSignal;
  caller: CallerInfo;
  progress(progress: number, total?: number, message?: string): void;
  log(level: LogLevel, data: unknown): void;
}

export interface Tool extends ToolDefinition {
  // Arguments are what the input schema says, so authors may type them as they like.
  execute(args: any, context: CallContext): unknown;
}

// -- worker.js ---------------------------------------------------------------------------------------------------------

export interface Manifest {
  version: string;
  build: string;
  tabserver: string;
  pyodide: string;
}

/** The part of Pyodide that worker.js uses. */
export interface Pyodide {
  unpackArchive(archive: ArrayBuffer, format: string, options?: { extractDir?: string }): void;
  pyimport(name: string): any;
}

export interface PyodideModule {
  loadPyodide(options: { indexURL: string }): Promise<Pyodide>;
}
