/**
 * Overview: one dense row for each server, with state, place, counts, latency and activity; a row opens the server's drawer.
 *
 * Rows are made once and then updated, so that focus and selected text survive. Counts of calls are the relay's own; errors and
 * quantiles are of the calls that the console has. It requests nothing.
 */

import { byId, duration, element, setText } from "../element.js";
import { presenceOf, stateLook } from "./server_texts.js";
import { BINS } from "./server_stats.js";
import { svgElement } from "./svg_element.js";

/**
 * @typedef {import("./server_texts.js").Server} Server
 * @typedef {import("./server_stats.js").ServerStats} ServerStats
 * @typedef {ReturnType<typeof serverRow>} ServerRow
 */

/** @type {[name: string, label: string, isNumber: boolean, about: string][]} */
const COLUMNS = [
  ["name", "Server", false, ""],
  ["state", "State", false, ""],
  ["place", "Location", false, "Where the tools run"],
  ["tab-count", "Tabs", true, ""],
  ["tools", "Tools", true, ""],
  ["calls", "Calls", true, "Since the relay started"],
  ["errors", "Errors", true, "Of the calls below"],
  ["p50", "p50", true, "Median duration of the calls below"],
  ["p95", "p95", true, "95th percentile of the calls below"],
  ["last", "Last call", true, ""],
  ["activity", "5 minutes", false, "Calls in the last five minutes"],
];
const SPARK_HEIGHT = 18;
const SPARK_STEP = 3;

export class Overview {
  #body;
  /** @type {Map<string, ServerRow>} */
  #rows = new Map();
  #open;
  #selected = "";

  /** @param {(name: string) => void} open */
  constructor(open) {
    this.#open = open;
    this.#body = element("tbody");
    const head = COLUMNS.map(([name, label, isNumber, about]) => element("th", { scope: "col", class: `${name}${isNumber ? " number" : ""}`, title: about || null }, label));
    const table = element("table", { class: "servers" }, element("caption", { class: "is-hidden" }, "Servers"), element("thead", {}, element("tr", {}, ...head)), this.#body);
    byId("servers", HTMLElement).replaceChildren(table);
  }

  /** @param {string} name */
  select(name) {
    this.#selected = name;
    for (const [each, { root }] of this.#rows) root.classList.toggle("is-selected", each === name);
  }

  /**
   * @param {Server[]} servers
   * @param {Map<string, ServerStats>} stats
   */
  update(servers, stats) {
    const names = new Set(servers.map(({ name }) => name));
    for (const [name, row] of this.#rows) {
      if (names.has(name)) continue;
      row.root.remove();
      this.#rows.delete(name);
    }
    servers.forEach((server, index) => {
      let row = this.#rows.get(server.name);
      if (!row) {
        row = serverRow(server.name, this.#open);
        this.#rows.set(server.name, row);
        row.root.classList.toggle("is-selected", server.name === this.#selected);
      }
      if (this.#body.children[index] !== row.root) this.#body.insertBefore(row.root, this.#body.children[index] ?? null);
      row.update(server, stats.get(server.name));
    });
  }
}

/**
 * @param {string} name
 * @param {(name: string) => void} open
 */
function serverRow(name, open) {
  const button = element("button", { type: "button", class: "link" }, name);
  const title = element("span", { class: "hint" });
  const marks = element("span", { class: "marks" });
  const badge = element("span", { class: "badge" });
  const spark = sparkline();
  /** @type {Record<string, HTMLElement>} */
  const cells = Object.fromEntries(COLUMNS.map(([key, , isNumber]) => [key, element("td", { class: `${key}${isNumber ? " number" : ""}` })]));
  cells.name?.append(button, marks, title);
  cells.state?.append(badge);
  cells.activity?.append(spark.root);
  const root = element("tr", { "data-server": name }, ...Object.values(cells));
  root.addEventListener("click", (event) => {
    // A selection of text is no click.
    if (event.target === button || getSelection()?.isCollapsed !== false) open(name);
  });
  const text = (/** @type {string} */ key, /** @type {string} */ value) => cells[key] && setText(cells[key], value);

  return {
    root,
    /** @param {Server} server @param {ServerStats | undefined} stats */
    update(server, stats) {
      root.dataset.state = server.state;
      setText(title, server.title && server.title !== name ? server.title : "");
      badge.className = `badge ${stateLook(server)}`;
      badge.title = presenceOf(server);
      setText(badge, server.state === "offline" && server.connection ? server.connection : server.state);
      drawMarks(marks, server);
      text("place", placeOf(server));
      text("tab-count", tabCount(server));
      text("tools", String(server.tools.length));
      text("calls", server.in_flight ? `${server.calls} (${server.in_flight} running)` : String(server.calls));
      text("errors", stats ? String(stats.errors) : "");
      cells.errors?.classList.toggle("is-bad", Boolean(stats?.errors));
      text("p50", stats && stats.p50 !== null ? duration(stats.p50) : "");
      text("p95", stats && stats.p95 !== null ? duration(stats.p95) : "");
      text("last", stats?.last ? `${duration(Math.max(0, Date.now() - stats.last))} ago` : "");
      spark.draw(stats);
    },
  };
}

/** @param {HTMLElement} place @param {Server} server */
function drawMarks(place, server) {
  const wanted = [server.drift ? "tools changed" : "", server.left_out?.length ? `${server.left_out.length} left out` : "", server.error ? "trouble" : ""].filter(Boolean);
  if ([...place.children].map((each) => each.textContent).join() === wanted.join()) return;
  place.replaceChildren(...wanted.map((text) => element("span", { class: "badge is-warn" }, text)));
}

/** @param {Server} server */
function placeOf({ kind, browser, instances, node }) {
  if (instances) return instances.length === 1 ? (instances[0]?.browser ?? "1 browser") : `${instances.length} browsers`;
  if (node) return `relay ${node}`;
  return browser ?? (kind === "browser" ? "browser" : (kind ?? ""));
}

/** @param {Server} server */
function tabCount({ tabs, instances }) {
  if (instances) return String(instances.reduce((sum, each) => sum + each.tabs.length, 0));
  return tabs ? String(tabs.length) : "";
}

function sparkline() {
  const width = BINS * SPARK_STEP;
  const line = svgElement("path", { class: "spark-line" });
  const bad = svgElement("path", { class: "spark-bad" });
  const title = svgElement("title");
  const root = svgElement("svg", { class: "spark", viewBox: `0 0 ${width} ${SPARK_HEIGHT}`, width, height: SPARK_HEIGHT, role: "img" }, title, line, bad);
  return {
    root,
    /** @param {ServerStats | undefined} stats */
    draw(stats) {
      const most = Math.max(1, ...(stats?.bins ?? []));
      const path = (/** @type {number[]} */ bins) =>
        bins.map((count, index) => (count ? `M${index * SPARK_STEP + 1} ${SPARK_HEIGHT}V${SPARK_HEIGHT - Math.max(2, (count / most) * SPARK_HEIGHT)}` : "")).join("");
      line.setAttribute("d", path(stats?.bins ?? []));
      bad.setAttribute("d", path(stats?.badBins ?? []));
      setText(title, `${(stats?.bins ?? []).reduce((sum, count) => sum + count, 0)} calls in five minutes`);
    },
  };
}
