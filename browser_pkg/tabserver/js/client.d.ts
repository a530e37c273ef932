// Types of Tabrelay's public API for pages. One file without imports, so that it can be copied next to any app.

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
  /** The relay's address. By default the origin that served client.js; an app that bundles client.js must set it. */
  relay?: string | URL;
  /** The relay's token. By default the one that pairing stored; on another origin, the page asks for one. */
  token?: string;
  /** Your origin's copy of the relay's loader (`/-/tabrelay.js`), for a page that is not on the relay's origin. */
  worker?: string | URL;
  /**
   * Which tools ask the user before they run, in a dialog of this page: those marked destructive
   * (`annotations: { destructiveHint: true }`), which is the default, all, none, or those with these names. The relay's
   * operator may require more (`tabrelay serve --approve all`) or nothing (`--approve none`).
   */
  approve?: "destructive" | "all" | "none" | string[];
  /**
   * A panel in the corner of the page that shows why the page does not connect, the remedy, and a button to try again. By default
   * it appears if the app does not listen for "state", on pages of this computer (`localhost`) and in browsers that have used the
   * relay before. Other visitors of a public site never see it. `true`: for all visitors. `false`: never. The console always shows
   * the same text. The code of a pairing is shown even with `false`: see the event "pairing". The element `<tabrelay-status>`
   * listens for "state".
   */
  panel?: boolean;
  /**
   * URLs of Python files whose tools, resources and prompts run in the worker. They can import files in the same folder. A changed
   * file takes effect when the page is reloaded, or at once with `dev`.
   */
  modules?: string[];
  /**
   * Python packages for the worker, such as `["numpy"]`. The relay must have them (`tabrelay packages add`). They are installed before
   * `modules` run. Packages that a module imports are installed automatically.
   */
  packages?: string[];
  /**
   * Load changed files of `modules` within 2 s, without a reload of the page. By default true for a page on this
   * computer (localhost). A file with an error keeps the old tools, and the page shows the error.
   */
  dev?: boolean;
  /** The worker's timeouts and delays, for unusual networks. */
  timing?: Timing;
  /**
   * Where the worker runs: in a shared worker, or in an elected tab. By default, in a shared worker if the browser supports it.
   */
  mode?: "shared" | "elected";
  /**
   * The name of this browser, for a server with several browsers (`instances`): clients reach it at `/{server}~{instance}`.
   * Letters, digits, `-`, `_` and `.`, at most 32. By default an id that the browser stores for this origin.
   */
  instance?: string;
  /**
   * Instructions for the model: what the server is for, and how its tools work together. In many clients, this is the only text
   * that the model gets before the first call. Some clients, such as Claude Code, cut it after 2,048 characters.
   *
   * Clients get this and the following options in `initialize` and `server/discover`, even while no browser is connected. If tabs
   * have different values, those of the tab in front are used. A client that is already connected keeps the values that it has read.
   */
  instructions?: string;
  /** The server's name for people. */
  title?: string;
  /** The server's version; by default that of Tabrelay. */
  version?: string;
  icons?: Icon[];
  /** The server's website. */
  websiteUrl?: string;
  /**
   * Offer a tool that runs any Python code of the caller in the worker. Off by default: **any client that may call it can do
   * all that this page can**, with the user's logins on this origin. It lasts as long as the worker does.
   */
  runPython?: boolean | RunPython;
}

/** How Python code of callers runs. The first page that offers the tool decides. */
export interface RunPython {
  /** The tool's name: "run_python". */
  name?: string;
  /** How long one run may take, in milliseconds: 30000. */
  timeoutMs?: number;
  /** How many characters of its output, and of its result, are returned: 100000 each. */
  maxOutput?: number;
}

/**
 * The worker's timeouts and delays, in milliseconds, with their defaults. The tab that starts the worker decides.
 */
export interface Timing {
  /** Timeout of a connection attempt: 5000. */
  connect_ms?: number;
  /** The first delay before the next attempt: 1000. It doubles up to `longest_delay_ms`: 3000. */
  first_delay_ms?: number;
  longest_delay_ms?: number;
  /** After a connection of at least this length, the delays start from the first again: 10000. */
  stable_ms?: number;
  /** A relay that sends nothing for this long counts as gone: 2.5 times the relay's heartbeat, 37500. */
  watchdog_ms?: number;
  /** A tab that runs a call and sends nothing for this long is pinged: 5000. */
  tab_quiet_ms?: number;
  /** If it does not answer the ping for this long, its calls fail: 30000. A tool that computes without a pause can't answer. */
  tab_silence_ms?: number;
  /** A tab whose page was left is kept for this long, with its tools and the calls that arrive meanwhile: 3000. */
  tab_return_ms?: number;
  /** The same for the only tab: 10000. */
  last_tab_return_ms?: number;
  /** Calls for it wait only this long if the tab may have been closed: 1000. */
  tab_doubt_ms?: number;
  /** A tab that does not answer a ping for this long gets no call that another tab could take: 500. */
  tab_busy_ms?: number;
  /** A call that the user must allow first waits this long: 120000. In a hidden tab: 10000. */
  approve_ms?: number;
  approve_unseen_ms?: number;
}

/**
 * One tab's attachment to one server. The link to the relay belongs to the worker and outlives this page. Offers that are
 * made before the worker is ready, or while it is started again, are stored and sent to it then.
 */
export declare class Connection extends EventTarget {
  private constructor();
  /** The current state of the connection. The event "state" reports each change. */
  readonly state: State;
  /** The progress of Python's start in the worker; null before the first report. */
  readonly boot: Boot | null;
  /** What all tabs and the worker offer together; null before the first report. */
  readonly catalogue: Catalogue | null;
  /** This tab's id, as in the catalogue. */
  readonly tab: { id: string };
  /** The name of this browser, for a server with several browsers. Empty if the page may not use storage. */
  readonly instance: string;
  readonly isClosed: boolean;
  /** Where the worker runs: in a shared worker, or in one of the tabs. */
  readonly mode: "shared" | "elected";

  /** Offer a tool; a second one of the same name replaces the first. Abort `signal` to withdraw it. */
  offerTool<Arguments = any>(tool: Tool<Arguments>, options?: OfferOptions): void;
  /** Offer a resource or, with `{variables}` in its URI, a template for many of them. */
  offerResource(resource: Resource, options?: OfferOptions): void;
  /** Offer an app: a tool whose results clients with MCP Apps show in a page of yours. */
  offerApp(app: App, options?: OfferOptions): void;
  /** Offer a skill: instructions for agents, with files. Resolves when its files were read and it is offered. */
  offerSkill(skill: Skill, options?: OfferOptions): Promise<void>;
  /** Offer a prompt. */
  offerPrompt(prompt: Prompt, options?: OfferOptions): void;
  /** Notify the clients that subscribed to a resource that it has changed. */
  resourceUpdated(uri: string): void;

  /** Try now instead of waiting: for the relay, for a pairing, or for a worker that could not start. */
  retry(): void;
  /** Drop the worker's socket as a failing network does, to see that calls survive. The worker connects again by itself. */
  interrupt(): void;
  /** Close the worker's connection to the relay, for all tabs, until a tab calls `retry`. */
  stop(): void;
  /** Detach this tab, and withdraw all that it offers. The worker and the other tabs continue. */
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

/** The message is in `event.detail`. */
export interface ConnectionEvents {
  /** The connection changed. */
  state: CustomEvent<State>;
  /** Python's start in the worker made progress, or failed. */
  boot: CustomEvent<Boot>;
  /** Something is offered, withdrawn, or offered by another tab. */
  catalogue: CustomEvent<Catalogue>;
  /** A call started, reported progress or ended, in any tab. */
  activity: CustomEvent<Activity>;
  /** The worker refused something that this page offers. */
  refused: CustomEvent<Refused>;
  /**
   * A Python file of `modules` could not be loaded. With `dev`, a small panel shows the error, unless a listener calls
   * `preventDefault()`.
   */
  module_failed: CustomEvent<ModuleFailed>;
  /** A Python package is downloaded, was installed, or is not available. */
  package: CustomEvent<PackageProgress>;
  /** A Python file of `modules` was loaded, for the first time or again. */
  module_loaded: CustomEvent<ModuleLoaded>;
  /**
   * This page asks to be paired, and the user must see the code. A small panel shows it, unless a listener calls
   * `preventDefault()` and shows it itself. Null: the code is no longer needed.
   */
  pairing: CustomEvent<Pairing | null>;
  /**
   * A call that the user must allow first. A dialog asks, unless a listener calls `preventDefault()` and asks in its own way.
   */
  approval: CustomEvent<Approval>;
}

/**
 * The user's decision about a call: allow this one, allow all of this client for this tool until the last tab is closed, or
 * refuse.
 */
export type Decision = "once" | "session" | "refuse";

/**
 * The calling program. `client` is the name that it gave itself. The relay has verified the rest: `principal` names its
 * token, and with `session` the decision `"session"` holds for that MCP session only. Without one it holds for every program
 * with the same token.
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
  /** The arguments, as JSON text; `isCut`: only the beginning. It is the agent's text: never use it as markup. */
  arguments: string;
  isCut: boolean;
  destructive: boolean;
  caller: ApprovalCaller;
  /** Aborted when the decision is no longer needed: it was made, it took too long, or the call was cancelled. */
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

// -- the state of the connection --------------------------------------------------------------------------------------

export interface State {
  /** "waiting" tries again by itself, after `retry_in_ms`; "stopped" does not. */
  state: "connecting" | "connected" | "waiting" | "stopped";
  /** The reason, for programs; null while there is nothing wrong. */
  why: Why | null;
  /** The reason in detail, for programs. */
  code: ReasonCode | null;
  /** The code of the entry in the reference of errors, such as "TR421". `tabrelay help TR421` prints the entry. */
  help?: string | null;
  /** The reason, for people, with what to do about it. */
  message: string | null;
  /** What to do about it: the last part of `message`. */
  todo?: string | null;
  retry_in_ms: number | null;
  server: string;
  /** When this state began, in milliseconds since 1970. */
  since_ms: number;
  attempts: number;
}

/** Why there is no connection. The reference of errors has what to do about each. */
export type Why =
  /** No program answers at the relay's address. */
  | "relay_down"
  /** The browser does not let the page reach this computer (Local Network Access). */
  | "blocked"
  /** Another program answers at the relay's address, or a relay of an earlier version. */
  | "unproven"
  /** The relay does not know this page's key (any more), or another program claims so. */
  | "unauthorized"
  /** The relay does not accept pages of this origin, or not for this server. */
  | "forbidden"
  /** Another browser or profile took over the server. */
  | "replaced"
  /** A page of another origin, or with another token, offers the server. */
  | "taken"
  /** Relay and page have different versions; a reload helps. With "connected", the relay is newer and still compatible. */
  | "version"
  /** The relay did not answer in time. */
  | "timeout"
  /** The connection was lost, or the worker ended. */
  | "lost"
  /** The relay closed the connection because it restarts. */
  | "restarting"
  /** A page closed the connection. */
  | "closed"
  /** This page has no token. */
  | "not_paired"
  /** The page asked to be paired, and waits for the user's approval. */
  | "pairing"
  /** The worker, or Python in it, could not start. */
  | "boot_failed"
  /** The browser has no Web Locks, or the page is not secure, was opened as a file, or has no origin. */
  | "unsupported"
  /** An option of `connect` is missing or wrong. */
  | "misconfigured";

/** A reason in detail: each has an entry in the reference of errors. */
export type ReasonCode =
  | "server_missing" | "server_invalid" | "relay_missing" | "relay_invalid" | "option_unknown" | "option_invalid"
  | "worker_option_missing" | "worker_other_origin" | "file_page" | "no_origin" | "insecure_page" | "unsupported"
  | "storage_blocked" | "mixed_content" | "policy_blocks_relay" | "policy_blocks_worker" | "network_denied" | "network_prompt" | "relay_down" | "not_a_relay" | "unproven" | "timeout" | "lost" | "restarting"
  | "closed" | "not_paired" | "pairing" | "pairing_refused" | "pairing_expired" | "pairing_failed" | "token_needs_https"
  | "unauthorized" | "forbidden" | "taken" | "replaced" | "version" | "client_outdated" | "worker_missing"
  | "worker_is_html" | "worker_type" | "worker_unreachable" | "worker_import" | "relay_mismatch" | "worker_policy"
  | "worker_failed" | "worker_silent" | "worker_ended" | "python_download" | "wasm_blocked" | "boot_failed" | "start_failed";

export interface Boot {
  stage: "download" | "start" | "ready" | "failed";
  /** Bytes so far, and in total if that is known. */
  loaded?: number;
  total?: number;
  /** When ready: how Python was loaded. "stock" is slow; `detail` then has the error of the fast method. */
  from?: "snapshot" | "files" | "stock";
  detail?: string;
}

export interface Catalogue {
  tools: CatalogueEntry[];
  resources: CatalogueEntry[];
  templates: CatalogueEntry[];
  prompts: CatalogueEntry[];
  /** How many tabs of this browser are attached to the server. */
  tabs?: number;
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
  /** Of a tool, when it starts: its arguments as JSON, at most 500 characters. */
  arguments?: string;
  /** Of a tool that is done: the texts of its result, at most 500 characters. */
  result?: string;
}

export interface Refused {
  /** "tools", "resources", "templates" or "prompts"; "tab": the page itself can't attach. */
  kind: string;
  name: string;
  message: string;
}

export interface ModuleFailed {
  /** The file of `modules`. */
  url: string;
  message: string;
  /** The file with the error: this one, or one that it imports; and the line. */
  file?: string;
  line?: number;
  /** The tools of the last version without an error stay in force. */
  kept?: boolean;
  /** Where in the page's files the error was raised. */
  traceback?: string;
}

export interface PackageProgress {
  name: string;
  version?: string;
  stage: "download" | "ready" | "failed";
  /** Bytes. */
  loaded?: number;
  total?: number;
  /** When it failed: the reason, and the command that adds the package to the relay. */
  message?: string;
}

export interface ModuleLoaded {
  url: string;
  /** It was loaded before, or tried. */
  again: boolean;
}

// -- what a tab offers ------------------------------------------------------------------------------------------------

export interface ToolDefinition {
  /** 1 to 128 letters, digits, "_", "-" and ".". */
  name: string;
  title?: string;
  /** For the model: what the tool does and when to use it. */
  description?: string;
  /** A JSON Schema with `type: "object"`. Invalid arguments never reach `execute`. */
  inputSchema?: object;
  /**
   * A JSON Schema for the return value of `execute`. Most clients expect structured content to be an object. A value that is not an
   * object is therefore put into the member `result`, also in the schema, as in the official SDKs.
   */
  outputSchema?: object;
  annotations?: Annotations;
  icons?: Icon[];
  /**
   * Lets a call outlive its request as a task: the client asks for its state and result. With "optional", clients without tasks wait
   * for the result; with "required", they get an error. Without this option, calls are never tasks.
   */
  task?: "optional" | "required";
  /** Hints for clients. Each client uses the ones that it supports. */
  hints?: ToolHints;
  /**
   * Who may call the tool. `["app"]`: only the page of an app (see `offerApp`). Models don't see the tool, and clients without apps
   * don't list it. By default, both may call it.
   */
  visibility?: ("model" | "app")[];
  /** Further metadata for clients, with prefixed names as MCP defines them. */
  _meta?: Record<string, unknown>;
}

/** How a client should treat a tool: members of its `_meta` that Claude Code reads, with their types. */
export interface ToolHints {
  /** Words by which a search for tools finds it: `anthropic/searchHint`. */
  search?: string;
  /** Show the tool to the model from the start, although the client loads most tools when a search finds them: `anthropic/alwaysLoad`. */
  alwaysLoad?: boolean;
  /** Show the model a result of up to so many characters: `anthropic/maxResultSizeChars`. */
  maxResultChars?: number;
  /** The tool waits for the user, so it can't run unattended: `anthropic/requiresUserInteraction`. */
  requiresUserInteraction?: boolean;
}

/**
 * A tool whose results clients with MCP Apps show in a page. It is offered as the tool, and as the resource `ui://NAME`.
 *
 * The client shows the page in a sandbox: no cookies, no storage and no network but what `csp` names. Before all other scripts,
 * the page gets `tabrelay.connect()`, which calls tools through the client and follows resources of this tab.
 */
export interface App {
  /** 1 to 100 letters, digits, "_", "-" and ".". Also the tool's name, unless `tool` has one. */
  name: string;
  title?: string;
  /** For the model: what the tool shows and when to use it. */
  description?: string;
  /** The page, or a function that returns it. */
  html?: string | (() => string | Promise<string>);
  /** Instead of `html`: the page's address. It is fetched for each client, and may use scripts and styles of its own origin. */
  url?: string | URL;
  /** The tool. Without `execute`, or where it returns nothing, clients get a text that names the app. */
  tool?: Partial<Tool>;
  /** The origins that the page may use; without it, none. */
  csp?: {
    /** For requests: fetch and WebSocket. */
    connectDomains?: string[];
    /** For scripts, styles, images, fonts and media. */
    resourceDomains?: string[];
    /** For nested frames. */
    frameDomains?: string[];
    baseUriDomains?: string[];
  };
  permissions?: ("camera" | "microphone" | "geolocation" | "clipboardWrite")[];
  /** An origin of its own for the page, in the form that the client documents. */
  domain?: string;
  /** Should the client draw a border? */
  prefersBorder?: boolean;
  /** URIs of resources of this tab that the page follows, without variables. `resourceUpdated` reports a change. */
  live?: string[];
}

/** Instructions for agents that clients load when they need them, such as how your tools belong together: a SKILL.md and its files. */
export interface Skill {
  /** 1 to 64 characters: a-z, digits and single hyphens. */
  name: string;
  /** For the model: what the skill is for and when to use it. Up to 1,024 characters. */
  description: string;
  /**
   * The files by path. `SKILL.md` is required; without a frontmatter, it gets one of `name`, `description` and `metadata`. With one,
   * that is used, and its name must be `name`. At most 512 files with 16 MiB together. They are read once, when the skill is offered.
   */
  files: Record<string, SkillFile>;
  /** Further fields of the frontmatter, such as `license`. */
  metadata?: Record<string, unknown>;
}

/** The content of a file, or its address, which is fetched. */
export type SkillFile = string | Uint8Array | Blob | URL;

/** An icon for lists. `src` is an https or data address. */
export interface Icon {
  src: string;
  mimeType?: string;
  sizes?: string[];
}

/** Hints for the client. Clients may ignore them. */
export interface Annotations {
  title?: string;
  readOnlyHint?: boolean;
  destructiveHint?: boolean;
  idempotentHint?: boolean;
  openWorldHint?: boolean;
}

export interface Tool<Arguments = any> extends ToolDefinition {
  /**
   * Run the tool. The return value, or what its promise resolves to, becomes the result: a string is text, an object or array
   * is JSON (and structured content), `{ content: […] }` is passed on unchanged. A value without a JSON form (a DOM node, a Map, NaN)
   * is an error that says what to return. The caller gets a thrown error as an error, and the console has it with its stack.
   */
  execute(args: Arguments, context: CallContext): unknown;
}

export interface ResourceDefinition {
  /** A template if it has `{name}`, one path segment, or `{name*}`, which may contain slashes. */
  uri: string;
  /** By default the URI. */
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
   * Return the contents. A string is text; a Blob, an ArrayBuffer or a typed array is binary; `{ contents: […] }` is passed on
   * unchanged; anything else is JSON.
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
  /** Return the messages: a string, a message, several of them, or `{ messages: […] }`. */
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
 * The values of a list that begin with the typed text are suggested. A function gets the typed text, and the arguments that are
 * already filled in.
 */
export type Completer =
  | readonly string[]
  | ((
      typed: string,
      args: Record<string, string>,
      context: CallContext,
    ) => Iterable<string> | Promise<Iterable<string>>);

/** The audience of content, and its priority. */
export interface ContentAnnotations {
  audience?: ("user" | "assistant")[];
  priority?: number;
  lastModified?: string;
}

// -- while a call runs ------------------------------------------------------------------------------------------------

/** The context of a running call. Its functions need no `this`: `execute(args, { progress, elicit })`. */
export interface CallContext {
  /** The id of this call, as in the "activity" events. */
  call: string;
  /** Aborted when the caller cancels, or when the worker is lost. */
  signal: AbortSignal;
  caller: Caller;
  /** The W3C trace context of the call, which a tracer in the page can continue; null if the call is not traced. */
  trace: { traceparent: string; tracestate?: string; baggage?: string } | null;
  /** Report progress. The caller gets it only if it asked for progress; the number must grow with each report. */
  progress(progress: number, total?: number, message?: string): void;
  /** Send a log message to the caller. */
  log(level: LogLevel, data: unknown, logger?: string): void;
  /** Does the client support this kind of request? */
  can(capability: "elicitation" | "sampling" | "roots"): boolean;
  /**
   * Show the user a form. `schema` has `type: "object"` and plain properties.
   *
   * This and the other requests reject with an McpError named "MissingCapability" if the client does not support them, with an
   * Error named "ClientError", "InvalidAnswer" or "TimeoutError" if there is no valid answer, and with `signal.reason` when the
   * call is cancelled.
   */
  elicit<Content = Record<string, unknown>>(message: string, schema: object, options?: AskOptions): Promise<Elicited<Content>>;
  /** Ask the user to open an address: for data that must not pass through the client, such as a password. */
  elicitUrl(message: string, url: string, options?: AskOptions): Promise<Elicited<never>>;
  /** Ask the client's model for a message. */
  sample(messages: string | Message[], options?: SampleOptions): Promise<Sampled>;
  /** The folders and files that the client works on. */
  roots(options?: AskOptions): Promise<Root[]>;
  /** Send any of these requests in MCP's own form. Returns the client's answer unchanged. */
  ask(method: string, params: object, options?: AskOptions): Promise<Record<string, unknown>>;
  /** The answers to an `InputRequired` that was returned before, by key. */
  inputResponses: Record<string, Record<string, unknown>>;
  /** The `state` of an `InputRequired` that was returned before; null the first time. */
  requestState: unknown;
  /** The id of the task that this call is, or may become; null for a call that never becomes one. */
  taskId: string | null;
  /** What an earlier run of this task gave to `save`, before its page was left; null in the first run. */
  saved: unknown;
  /**
   * Keep the state of a task: JSON data of up to 64 KiB characters. Should the page be left, `execute` is called again when this
   * tab offers the tool again, with the state in `saved`. In a call that is no task, this does nothing.
   */
  save(state: unknown): void;
}

export interface ReadContext extends CallContext {
  /** The values of the template's variables in the URI. */
  variables: Record<string, string>;
}

/** The caller. */
export interface Caller {
  /** The name and version that the client states. */
  client: { name?: string; version?: string } | null;
  /** The caller as the relay has identified it: a token, not a person. */
  principal: string;
  /** "legacy" callers have a session, "modern" ones do not. */
  era: "modern" | "legacy";
  /** The caller's revision of MCP. */
  version: string;
  /** The client's declared capabilities. */
  capabilities: Record<string, unknown>;
  /** The same for all calls of a session, or of a modern client with its token: a key for a Map of data per caller. */
  key: string;
  /** The session of the calling editor's agent (`tabrelay acp`); undefined for other callers. */
  acp?: AcpSession;
}

/** A session of an editor's agent. */
export interface AcpSession {
  /** The session's id; null until the agent has sent it. */
  session: string | null;
  /** The id of this server in the session. */
  server: string;
  /** One of several connections that the agent may have. */
  connection: string | null;
  /** The agent's command. */
  agent: string | null;
}

export type LogLevel = "debug" | "info" | "notice" | "warning" | "error" | "critical" | "alert" | "emergency";

export interface AskOptions {
  /** The name of the request for the client; by default a number. */
  key?: string;
}

export interface Elicited<Content = Record<string, unknown>> {
  action: "accept" | "decline" | "cancel";
  /** What the user entered, if they accepted. */
  content?: Content;
}

export interface SampleOptions extends AskOptions {
  /** 1024 by default. */
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
  /** The text of all blocks. */
  text: string;
}

export interface Root {
  uri: string;
  name?: string;
}

/** One message of a prompt or of a sampling request. */
export interface Message {
  role: "user" | "assistant";
  content: ContentBlock | string;
}

/** Text, an image, audio, a resource or a resource link, in MCP's form. */
export interface ContentBlock {
  type: "text" | "image" | "audio" | "resource" | "resource_link" | (string & {});
  [member: string]: unknown;
}

/**
 * Returned by a handler that does not wait for answers: it is called again, with the answers in `context.inputResponses` and
 * `state` in `context.requestState`. The client stores the state and can read it, but can't change it.
 */
export declare class InputRequired {
  constructor(requests: Record<string, { method: string; params: object }>, state?: unknown);
  readonly requests: Record<string, { method: string; params: object }>;
  readonly state: unknown;
}

// -- the rest ---------------------------------------------------------------------------------------------------------

/** A protocol error: if a handler throws it, the caller gets its code and data. */
export declare class McpError extends Error {
  constructor(code: number, message: string, data?: unknown);
  readonly code: number;
  readonly data: unknown;
}

/** There is no such resource. A template's `read` throws it for a URI without one. */
export declare class ResourceNotFound extends McpError {
  constructor(uri: string);
}

/** Convert any value to a tool result, as it is done with the return value of `execute`. */
export declare function toResult(value: unknown): Promise<object>;

/** The keys that pairing gave to this origin. They can't be exported. */
export interface Keys {
  page: { id: string; key: CryptoKey | string };
  worker: { id: string; key: CryptoKey | string };
}

/**
 * Redeem the one-time code in the address bar, if there is one, and return the keys of this origin. Only for pages of the relay
 * itself; `connect` does it too.
 */
export declare function pair(relay?: string): Promise<{ keys: Keys | undefined; problem: string | undefined }>;
