// What pages use of Tabrelay, as types. One file without imports, so that it can be copied next to any app.

/**
 * Attach this tab to a server. Called again for the same server, it returns the same connection.
 *
 *     import { load } from "/tabrelay.js"; // the relay's loader, beside your page
 *     load().then(({ connect }) => {
 *       const connection = connect({ server: "notes", worker: "/tabrelay.js" });
 *       connection.offerTool({ name: "title", description: "The page's title.", execute: () => document.title });
 *     });
 */
export declare function connect(options: ConnectOptions): Connection;

export interface ConnectOptions {
  /** The name of the MCP server: the last part of its URL. */
  server: string;
  /** Where the relay is. Left out, it is the origin that client.js came from; an app that bundles client.js must say it. */
  relay?: string | URL;
  /** The relay's token. Left out, it is the one that pairing stored; on another origin, the page asks for one. */
  token?: string;
  /** The relay's loader as your own origin hosts it (`/-/tabrelay.js`), for a page that is not on the relay's origin. */
  worker?: string | URL;
  /**
   * Which tools ask the user before they run, in a dialog of this page: those marked destructive
   * (`annotations: { destructiveHint: true }`), which is so if this is left out, all, none, or those with these names. The
   * relay's operator may want more (`tabrelay serve --approve all`) or nothing (`--approve none`).
   */
  approve?: "destructive" | "all" | "none" | string[];
  /** URLs of Python files whose tools, resources and prompts run in the worker. */
  modules?: string[];
  /** The worker's waits, for unusual networks. */
  timing?: Timing;
  /**
   * Where the worker runs: in a shared worker, or in one of the tabs, which they elect. Left out, it is a shared worker
   * wherever that works.
   */
  mode?: "shared" | "elected";
  /**
   * What this browser is called where a server keeps several (`instances`): clients reach it at `/{server}~{instance}`.
   * Letters, digits, `-`, `_` and `.`, at most 32. Left out, it is an id that the browser keeps for this origin.
   */
  instance?: string;
  /**
   * Offer a tool that runs any Python it is given, in the worker. Off by default: **whoever may call it can do all that
   * this page can**, with the logins that the user has here. It lasts as long as the worker does.
   */
  runPython?: boolean | RunPython;
}

/** How Python that callers bring is run. The first page that offers it decides. */
export interface RunPython {
  /** The tool's name: "run_python". */
  name?: string;
  /** How long one run may take, in milliseconds: 30000. */
  timeoutMs?: number;
  /** How many characters of what it prints, and of its result, are kept: 100000 each. */
  maxOutput?: number;
}

/**
 * The worker's waits, in milliseconds; what is left out has the default given here. The tab that starts the worker
 * decides.
 */
export interface Timing {
  /** A dial that takes longer is given up: 5000. */
  connect_ms?: number;
  /** The first pause before dialling again: 1000. It doubles up to `longest_delay_ms`: 3000. */
  first_delay_ms?: number;
  longest_delay_ms?: number;
  /** The pauses start from the first again after a connection of at least this: 10000. */
  stable_ms?: number;
  /** A relay that says nothing for so long is gone: 2.5 times the heartbeat of the relay, 37500. */
  watchdog_ms?: number;
  /** A tab that runs a call and says nothing for so long is asked whether it lives: 5000. */
  tab_quiet_ms?: number;
  /** If it does not answer for so long, its calls fail: 30000. A tool that computes without a pause can't answer. */
  tab_silence_ms?: number;
  /** A tab whose page was left is kept for so long, with its tools and the calls that come meanwhile: 3000. */
  tab_return_ms?: number;
  /** The same for the only tab: 10000. */
  last_tab_return_ms?: number;
  /** Calls for it wait only so long if it may have been closed: 1000. */
  tab_doubt_ms?: number;
  /** A tab that does not answer a ping for so long gets no call that another tab could take: 500. */
  tab_busy_ms?: number;
  /** A call that the user must allow first waits for so long: 120000. In a tab that nobody sees: 10000. */
  approve_ms?: number;
  approve_unseen_ms?: number;
}

/**
 * One tab's attachment to one server. The link to the relay belongs to the shared worker and outlives this page; what is
 * offered before the worker is ready, or while it is started again, is kept and offered then.
 */
export declare class Connection extends EventTarget {
  private constructor();
  /** How the connection stands now. The event "state" tells of the next. */
  readonly state: State;
  /** How far Python in the worker is; null before anything is known. */
  readonly boot: Boot | null;
  /** What all tabs and the worker offer together; null before anything is known. */
  readonly catalogue: Catalogue | null;
  /** This tab, as the catalogue calls it. */
  readonly tab: { id: string };
  /** What this browser is called, where a server keeps several. Empty if the browser lets the page keep nothing. */
  readonly instance: string;
  readonly isClosed: boolean;
  /** Where the worker runs: in a shared worker, or in one of the tabs. */
  readonly mode: "shared" | "elected";

  /** Offer a tool; a second one of the same name replaces the first. Abort `signal` to withdraw it. */
  offerTool<Arguments = any>(tool: Tool<Arguments>, options?: OfferOptions): void;
  /** Offer a resource or, with `{variables}` in its URI, a template for many of them. */
  offerResource(resource: Resource, options?: OfferOptions): void;
  /** Offer a prompt. */
  offerPrompt(prompt: Prompt, options?: OfferOptions): void;
  /** Tell those who subscribed to a resource that it is not what it was. */
  resourceUpdated(uri: string): void;

  /** Try now instead of waiting: for the relay, for a pairing, or for a worker that could not start. */
  retry(): void;
  /** Close the worker's connection to the relay, for all tabs, until somebody retries. */
  stop(): void;
  /** Take this tab away, with all that it offers. The worker and the other tabs go on. */
  close(): void;

  addEventListener<Type extends keyof ConnectionEvents>(
    type: Type,
    listener: (this: Connection, event: ConnectionEvents[Type]) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<Type extends keyof ConnectionEvents>(
    type: Type,
    listener: (this: Connection, event: ConnectionEvents[Type]) => void,
    options?: boolean | EventListenerOptions,
  ): void;
  removeEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | EventListenerOptions,
  ): void;
}

/** What happened is in `event.detail`. */
export interface ConnectionEvents {
  /** The connection changed. */
  state: CustomEvent<State>;
  /** The worker's Python came a step further, or failed to. */
  boot: CustomEvent<Boot>;
  /** Something is offered, withdrawn, or offered by another tab. */
  catalogue: CustomEvent<Catalogue>;
  /** A call began, came further, or ended, in whichever tab. */
  activity: CustomEvent<Activity>;
  /** The worker does not take something that this page offers. */
  refused: CustomEvent<Refused>;
  /** A Python file of `modules` could not be loaded. */
  module_failed: CustomEvent<ModuleFailed>;
  /**
   * This page asks to be paired, and the user must see the code. Unless a listener calls `preventDefault()` and shows it
   * itself, a small panel does. Null: the code is no longer needed.
   */
  pairing: CustomEvent<Pairing | null>;
  /**
   * A call that the user must allow first. Unless a listener calls `preventDefault()` and asks in its own way, a dialog
   * does.
   */
  approval: CustomEvent<Approval>;
}

/** What the user says to a call: this one, all of this client for this tool until the last tab is closed, or none. */
export type Decision = "once" | "session" | "refuse";

/**
 * The program that calls. `client` is the name that it gave itself. The relay has verified the rest: `principal` names
 * its token, and with `session` the decision `"session"` holds for that MCP session only. Without one it holds for every
 * program with the same token.
 */
export interface ApprovalCaller {
  client: string;
  principal: string;
  session: boolean;
}

export interface Approval {
  /** The tool that is called. */
  name: string;
  title: string;
  /** What it is called with, as JSON text; `isCut`: only its beginning. It is the agent's text: never use it as markup. */
  arguments: string;
  isCut: boolean;
  destructive: boolean;
  caller: ApprovalCaller;
  /** Aborted when nobody waits for the decision any more: it was made, took too long, or the call was cancelled. */
  signal: AbortSignal;
  decide(decision: Decision): void;
}

/** The code that the user compares with the one that the relay shows, in its terminal and on its page. */
export interface Pairing {
  relay: string;
  server: string;
  code: string;
  /** Until when it can be approved, in milliseconds since 1970. */
  expires_ms: number;
}

export interface OfferOptions {
  /** Withdraws the offer when it is aborted. */
  signal?: AbortSignal;
}

// -- how the connection stands ----------------------------------------------------------------------------------------

export interface State {
  /** "waiting" tries again by itself, after `retry_in_ms`; "stopped" does not. */
  state: "connecting" | "connected" | "waiting" | "stopped";
  /** The reason, for programs; null while there is nothing wrong. */
  why: Why | null;
  /** The reason, for people, with what to do about it. */
  message: string | null;
  retry_in_ms: number | null;
  server: string;
  /** When this state began, in milliseconds since 1970. */
  since_ms: number;
  attempts: number;
}

/** Why there is no connection. The guide has a table of what to do about each. */
export type Why =
  /** Nobody answers at the relay's address. */
  | "relay_down"
  /** The browser does not let the page reach this computer (Local Network Access). */
  | "blocked"
  /** Another program answers at the relay's address, or a relay of an earlier version. */
  | "unproven"
  /** The relay does not know this page (any more), or another program says so. */
  | "unauthorized"
  /** The relay does not take pages of this origin, or not for this server. */
  | "forbidden"
  /** Another browser or profile took over the server. */
  | "replaced"
  /** A page of another origin, or with another token, has the server. */
  | "taken"
  /** Relay and page speak different versions; a reload mends it. With "connected" it is a newer relay that still understands. */
  | "version"
  /** The relay did not answer in time. */
  | "timeout"
  /** The connection was lost, or the worker ended. */
  | "lost"
  /** The relay said goodbye because it restarts. */
  | "restarting"
  /** A page closed the connection. */
  | "closed"
  /** This page has no token. */
  | "not_paired"
  /** The page asked to be paired, and waits for the user's approval. */
  | "pairing"
  /** The worker, or Python in it, could not start. */
  | "boot_failed"
  /** The browser has no Web Locks, or the page is not secure. */
  | "unsupported";

export interface Boot {
  stage: "download" | "start" | "ready" | "failed";
  /** Bytes so far, and in all if that is known. */
  loaded?: number;
  total?: number;
  /** When ready: what Python came from. "stock" is slow; `detail` then says why the fast way was not taken. */
  from?: "snapshot" | "files" | "stock";
  detail?: string;
}

export interface Catalogue {
  tools: CatalogueEntry[];
  resources: CatalogueEntry[];
  templates: CatalogueEntry[];
  prompts: CatalogueEntry[];
}

export interface CatalogueEntry {
  name: string;
  /** Of a resource. */
  uri?: string;
  /** Of a template. */
  uriTemplate?: string;
  title?: string;
  description?: string;
  /** "worker", or the id of the tab that gets the call. */
  owner: string;
  tab?: { id: string; title: string; url: string };
}

export interface Activity {
  call: string;
  kind: "tools" | "resources" | "templates" | "prompts";
  /** Of a resource the URI, of a template its URI with the `{variables}`. */
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

export interface Refused {
  /** "tools", "resources", "templates" or "prompts"; "tab": the page itself can't attach. */
  kind: string;
  name: string;
  message: string;
}

export interface ModuleFailed {
  url: string;
  message: string;
}

// -- what a tab offers ------------------------------------------------------------------------------------------------

export interface ToolDefinition {
  /** 1 to 128 letters, digits, "_", "-" and ".". */
  name: string;
  title?: string;
  /** What it does and when to use it, for the model. */
  description?: string;
  /** A JSON Schema with `type: "object"`. Arguments that do not fit never reach `execute`. */
  inputSchema?: object;
  /** A JSON Schema for what `execute` returns. */
  outputSchema?: object;
  annotations?: Annotations;
  icons?: Icon[];
  /** What else clients may want to know, by names with a prefix, as MCP writes them. */
  _meta?: Record<string, unknown>;
}

/** A picture for lists of what there is. `src` is an https or data address. */
export interface Icon {
  src: string;
  mimeType?: string;
  sizes?: string[];
}

/** Hints for the client. It does not have to believe them. */
export interface Annotations {
  title?: string;
  readOnlyHint?: boolean;
  destructiveHint?: boolean;
  idempotentHint?: boolean;
  openWorldHint?: boolean;
}

export interface Tool<Arguments = any> extends ToolDefinition {
  /**
   * Run it. What it returns, or resolves to, becomes the result: a string is text, an object or array is JSON (and
   * structured content), `{ content: […] }` is taken as it is. What it throws, the caller sees as an error.
   */
  execute(args: Arguments, context: CallContext): unknown;
}

export interface ResourceDefinition {
  /** With `{name}`, one path segment, or `{name*}`, which may have slashes in it, it is a template. */
  uri: string;
  /** Left out, it is the URI. */
  name?: string;
  title?: string;
  description?: string;
  mimeType?: string;
  /** In bytes. */
  size?: number;
  annotations?: ContentAnnotations;
  icons?: Icon[];
  _meta?: Record<string, unknown>;
}

export interface Resource extends ResourceDefinition {
  /**
   * Give the contents. A string is text; a Blob, an ArrayBuffer or a typed array is binary; `{ contents: […] }` is taken
   * as it is; anything else is JSON.
   */
  read(uri: string, context: ReadContext): unknown;
  /** For a template's variables: the possible values, or a function that finds them. */
  complete?: Record<string, Completer>;
}

export interface PromptDefinition {
  name: string;
  title?: string;
  description?: string;
  arguments?: PromptArgument[];
  icons?: Icon[];
  _meta?: Record<string, unknown>;
}

export interface Prompt extends PromptDefinition {
  /** Give the messages: a string, a message, several of them, or `{ messages: […] }`. */
  get(args: Record<string, string>, context: CallContext): unknown;
  /** For arguments: the possible values, or a function that finds them. */
  complete?: Record<string, Completer>;
}

export interface PromptArgument {
  name: string;
  title?: string;
  description?: string;
  required?: boolean;
}

/**
 * Of a list, those values are offered that begin with what was typed. A function gets what was typed, and the arguments
 * that are filled in already.
 */
export type Completer =
  | readonly string[]
  | ((
      typed: string,
      args: Record<string, string>,
      context: CallContext,
    ) => Iterable<string> | Promise<Iterable<string>>);

/** Who content is for, and how much it matters. */
export interface ContentAnnotations {
  audience?: ("user" | "assistant")[];
  priority?: number;
  lastModified?: string;
}

// -- while a call runs ------------------------------------------------------------------------------------------------

/** What a call may know, say and ask. Its functions need no `this`: `execute(args, { progress, elicit })`. */
export interface CallContext {
  /** The id of this call, as in the "activity" events. */
  call: string;
  /** Aborted when the caller cancels, or when the worker is lost. */
  signal: AbortSignal;
  caller: Caller;
  /** The trace that the call belongs to, as W3C writes it; null if nobody traces. A tracer of the page's own goes on from it. */
  trace: { traceparent: string; tracestate?: string; baggage?: string } | null;
  /** Report how far the call is. Reaches the caller only if it asked for progress; must rise from call to call. */
  progress(progress: number, total?: number, message?: string): void;
  /** Send a log message to the caller. */
  log(level: LogLevel, data: unknown, logger?: string): void;
  /** Can the client be asked this? */
  can(capability: "elicitation" | "sampling" | "roots"): boolean;
  /**
   * Show the user a form. `schema` has `type: "object"` and plain properties.
   *
   * This and the other questions reject with an McpError named "MissingCapability" if the client can't be asked, with an
   * Error named "ClientError", "InvalidAnswer" or "TimeoutError" if there is no good answer, and with `signal.reason`
   * when the call is cancelled.
   */
  elicit<Content = Record<string, unknown>>(message: string, schema: object, options?: AskOptions): Promise<Elicited<Content>>;
  /** Ask the user to open an address: for what must not pass through the client, such as a password. */
  elicitUrl(message: string, url: string, options?: AskOptions): Promise<Elicited<never>>;
  /** Let the client's model say something. */
  sample(messages: string | Message[], options?: SampleOptions): Promise<Sampled>;
  /** The folders and files that the client works on. */
  roots(options?: AskOptions): Promise<Root[]>;
  /** Any of these questions as MCP writes it, and the client's answer as it came. */
  ask(method: string, params: object, options?: AskOptions): Promise<Record<string, unknown>>;
  /** The answers to an `InputRequired` that was returned before, by key. */
  inputResponses: Record<string, Record<string, unknown>>;
  /** The `state` of an `InputRequired` that was returned before; null the first time. */
  requestState: unknown;
}

export interface ReadContext extends CallContext {
  /** The variables that the URI has for the template. */
  variables: Record<string, string>;
}

/** Who calls. */
export interface Caller {
  /** What the client says it is. */
  client: { name?: string; version?: string } | null;
  /** Whom the relay took the caller for: stands for a token, not for a person. */
  principal: string;
  /** "legacy" callers have a session, "modern" ones do not. */
  era: "modern" | "legacy";
  /** The revision of MCP that the caller speaks. */
  version: string;
  /** What the client says that it can be asked. */
  capabilities: Record<string, unknown>;
  /** The same for all calls of a session, or of a modern client with its token: to keep something for it in a Map. */
  key: string;
  /** The session of an editor's agent that calls (`tabrelay acp`); not there for other callers. */
  acp?: AcpSession;
}

/** A session of an editor's agent. */
export interface AcpSession {
  /** The session's id; null while the agent has not said it yet. */
  session: string | null;
  /** The id that the session knows this server by. */
  server: string;
  /** One of several connections that the agent may have. */
  connection: string | null;
  /** The agent's command. */
  agent: string | null;
}

export type LogLevel = "debug" | "info" | "notice" | "warning" | "error" | "critical" | "alert" | "emergency";

export interface AskOptions {
  /** Names the question for the client; without one it gets a number. */
  key?: string;
}

export interface Elicited<Content = Record<string, unknown>> {
  action: "accept" | "decline" | "cancel";
  /** What the user filled in, if they accepted. */
  content?: Content;
}

export interface SampleOptions extends AskOptions {
  /** 1024 if left out. */
  maxTokens?: number;
  systemPrompt?: string;
  temperature?: number;
  stopSequences?: string[];
  modelPreferences?: object;
  includeContext?: string;
  metadata?: object;
  tools?: object[];
  toolChoice?: object;
}

export interface Sampled {
  role: "user" | "assistant";
  content: ContentBlock | ContentBlock[];
  model: string;
  stopReason?: string;
  /** The text of all of it. */
  text: string;
}

export interface Root {
  uri: string;
  name?: string;
}

/** One message of a prompt, or of what a model is asked to continue. */
export interface Message {
  role: "user" | "assistant";
  content: ContentBlock | string;
}

/** Text, a picture, sound, a resource or a link to one, as MCP writes it. */
export interface ContentBlock {
  type: "text" | "image" | "audio" | "resource" | "resource_link" | (string & {});
  [member: string]: unknown;
}

/**
 * Returned by a handler that does not wait for answers: it is called again, with them in `context.inputResponses` and
 * `state` in `context.requestState`. The client carries the state and can read it, but can't change it.
 */
export declare class InputRequired {
  constructor(requests: Record<string, { method: string; params: object }>, state?: unknown);
  readonly requests: Record<string, { method: string; params: object }>;
  readonly state: unknown;
}

// -- the rest ---------------------------------------------------------------------------------------------------------

/** An error of the protocol: thrown by a handler, the caller gets its code and data. */
export declare class McpError extends Error {
  constructor(code: number, message: string, data?: unknown);
  readonly code: number;
  readonly data: unknown;
}

/** There is no such resource. A template's `read` throws it for a URI that leads nowhere. */
export declare class ResourceNotFound extends McpError {
  constructor(uri: string);
}

/** Any value as the result of a tool: what `execute` returns goes through this. */
export declare function toResult(value: unknown): Promise<object>;

/** Keys that this origin got when it was paired. They can't be exported. */
export interface Keys {
  page: { id: string; key: CryptoKey | string };
  worker: { id: string; key: CryptoKey | string };
}

/**
 * Redeem the one-time code in the address bar, if there is one, and give the keys that this origin has. Only for pages
 * of the relay itself; `connect` does it by itself.
 */
export declare function pair(relay?: string): Promise<{ keys: Keys | undefined; problem: string | undefined }>;
