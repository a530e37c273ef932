/**
 * Apps (MCP Apps): a tool whose results a client shows in a page, and the page as a resource `ui://NAME`.
 *
 * The client shows the page in a sandbox without access to this origin. So the page gets a script that calls tools through its
 * client, and follows the resources in `live` by a tool for apps only, `NAME_watch`: a call of it ends when the resource has
 * changed. An app is a resource and one or two tools; the worker knows nothing else of it.
 *
 * @import { App, CallContext, Tool } from "../client.js"
 * @import { ResourceChanges } from "./resource_changes.js"
 */

import { RefusedOffer } from "./errors.js";

const TYPE = "text/html;profile=mcp-app";
const NAME = /^[A-Za-z0-9_.-]{1,100}$/;
/** A call of a page waits this long for a change. Clients cancel requests after 60 s, by default. */
const WATCH_MS = 20_000;
const CSP = ["connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"];
const PERMISSIONS = ["camera", "microphone", "geolocation", "clipboardWrite"];

/**
 * What an app needs from the connection.
 * @typedef {object} AppHome
 * @property {string} relay
 * @property {ResourceChanges} changes
 * @property {(uri: string, context: CallContext) => Promise<{ contents: any[] }>} read
 */

/**
 * The resource and the tools of an app. Throws for what MCP Apps does not define.
 * @param {App} app
 * @param {AppHome} home
 */
export function makeApp(app, home) {
  const { name, title, description, live = [] } = app ?? {};
  if (!NAME.test(name ?? "")) {
    throw new RefusedOffer(`An app needs a name of 1 to 100 letters, digits, "_", "." and "-", not ${JSON.stringify(name)}`);
  }
  if ((app.html === undefined) === (app.url === undefined)) throw new RefusedOffer(`App "${name}" needs either html or url`);
  const uri = `ui://${name}`;
  const watch = live.length ? `${name}_watch` : undefined;
  const ui = pageMeta(app);
  const _meta = Object.keys(ui).length ? { ui } : undefined;
  const resource = {
    uri, name, title, description, mimeType: TYPE, _meta,
    async read() {
      const text = withView(await pageOf(app), await viewScript(home.relay), name, watch);
      return { contents: [{ uri, mimeType: TYPE, text, ...(_meta && { _meta }) }] };
    },
  };
  const tools = [shownBy(uri, app), ...(watch ? [watchTool(watch, uri, app, home)] : [])];
  return { resource, tools };
}

/**
 * The tool whose results the page shows. Where it returns nothing, the client gets a text.
 * @param {string} uri
 * @param {App} app
 * @returns {Tool}
 */
function shownBy(uri, { name, title, description, tool, live = [] }) {
  const state = live.length ? ` Its state is in ${live.join(" and ")}.` : "";
  const text = `${title ?? name} is an app: clients with MCP Apps show it to the user.${state} The same is on the page ${location.href}`;
  const ui = { resourceUri: uri, .../** @type {object} */ (tool?._meta?.ui) };
  return {
    name, title, description, ...tool,
    _meta: { ...tool?._meta, ui },
    async execute(args, context) {
      return (await tool?.execute?.(args, context)) ?? text;
    },
  };
}

/**
 * @param {string} name
 * @param {string} uri
 * @param {App} app
 * @param {AppHome} home
 * @returns {Tool}
 */
function watchTool(name, uri, { name: app, live = [] }, { changes, read }) {
  return {
    name,
    description: `For the page of the app ${app}: returns a resource when it differs from a version.`,
    inputSchema: {
      type: "object",
      properties: { uri: { type: "string" }, version: { type: "string" } },
      required: ["uri"],
    },
    annotations: { readOnlyHint: true },
    visibility: ["app"],
    _meta: { ui: { resourceUri: uri } },
    async execute({ uri: followed, version = "" }, context) {
      if (!live.includes(followed)) throw new Error(`This app does not follow ${followed}.`);
      const look = async () => {
        const { contents } = await read(followed, context);
        return { version: await versionOf(contents), contents };
      };
      const change = changes.next(followed, WATCH_MS, context.signal);
      let seen = await look();
      if (seen.version === version) {
        await change;
        seen = await look();
      }
      return seen.version === version ? { version } : seen;
    },
  };
}

/** @param {unknown} contents */
async function versionOf(contents) {
  const text = JSON.stringify(contents);
  // Where the page is not secure there is no digest; the text itself identifies the contents too.
  if (!globalThis.crypto?.subtle) return text;
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(digest, 0, 8)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// -- the page ------------------------------------------------------------------------------------------------------------

/**
 * What the page needs, as `_meta.ui` of its resource. A page with a URL may use its own origin.
 * @param {App} app
 */
function pageMeta({ name, url, csp = {}, permissions = [], domain, prefersBorder }) {
  for (const [key, origins] of Object.entries(csp)) {
    if (!CSP.includes(key) || !Array.isArray(origins)) throw new RefusedOffer(`App "${name}": csp has lists of origins by ${CSP.join(", ")}`);
  }
  for (const permission of permissions) {
    if (!PERMISSIONS.includes(permission)) throw new RefusedOffer(`App "${name}": there is no permission "${permission}"; there are ${PERMISSIONS.join(", ")}`);
  }
  /** @type {Record<string, string[]>} */
  const origins = { ...csp };
  if (url !== undefined) {
    const { origin } = new URL(url, location.href);
    for (const key of ["resourceDomains", "baseUriDomains"]) origins[key] = [...new Set([...(origins[key] ?? []), origin])];
  }
  return {
    ...(Object.keys(origins).length && { csp: origins }),
    ...(permissions.length && { permissions: Object.fromEntries(permissions.map((permission) => [permission, {}])) }),
    ...(domain !== undefined && { domain }),
    ...(prefersBorder !== undefined && { prefersBorder }),
  };
}

/** The HTML text of the page, as it is now. @param {App} app */
async function pageOf({ name, html, url }) {
  if (html !== undefined) return typeof html === "function" ? await html() : html;
  const address = new URL(/** @type {string | URL} */ (url), location.href);
  const answer = await fetch(address, { cache: "no-cache" });
  if (!answer.ok) throw new Error(`App "${name}": ${address} answered ${answer.status}`);
  return inHead(await answer.text(), `<base href="${address.href.replaceAll("&", "&amp;").replaceAll('"', "&quot;")}">\n`);
}

/** @type {Map<string, Promise<string>>} */
const scripts = new Map();

/** The text of app_view.js, which one request fetches for all apps. @param {string} relay */
function viewScript(relay) {
  const known = scripts.get(relay);
  if (known) return known;
  const text = fetch(new URL("/-/app_view.js", relay)).then((answer) => {
    if (!answer.ok) throw new Error(`The relay has no app_view.js: it answered ${answer.status}`);
    return answer.text();
  });
  // A relay that is restarting does not answer; the next read tries again.
  text.catch(() => scripts.delete(relay));
  scripts.set(relay, text);
  return text;
}

/**
 * The page with the script that connects it to its client, before all other scripts. handlers/apps.py does the same.
 * @param {string} html
 * @param {string} script
 * @param {string} name
 * @param {string | undefined} watch
 */
function withView(html, script, name, watch) {
  const watched = watch ? ` data-watch="${watch}"` : "";
  return inHead(html, `<script data-app="${name}"${watched}>\n${script}</script>\n`);
}

const COMMENTS = String.raw`(?:\s*<!--[^]*?-->)*`;
const MEMBERS = String.raw`\b(?:[^>"']|"[^"]*"|'[^']*')*>`;
/** Where a page begins, up to the tag of its head. Comments and attributes may contain anything. */
const HEAD = new RegExp(String.raw`^${COMMENTS}(?:\s*<!doctype[^>]*>)?${COMMENTS}(?:\s*<html${MEMBERS})?${COMMENTS}(?:\s*<head${MEMBERS})?`, "i");

/**
 * @param {string} html
 * @param {string} first
 */
function inHead(html, first) {
  const at = HEAD.exec(html)?.[0].length ?? 0;
  return html.slice(0, at) + first + html.slice(at);
}
