/**
 * Example of a WebMCP page: its tools are registered with the browser. The script tag `webmcp.js` in the page's head offers them
 * to MCP clients. Only the last lines use Tabrelay, for the parts of the page beside the shop.
 */

import "./standin.js";
import { connect } from "/-/client.js";
import { showExample } from "../example_page.js";

const PRODUCTS = [
  { id: "atlas", name: "Atlas of small islands", kind: "book", price: 24 },
  { id: "tea", name: "Tea from the hills", kind: "food", price: 9 },
  { id: "novel", name: "A novel in letters", kind: "book", price: 14 }, // style: ok (a title)
  { id: "bread", name: "Rye bread", kind: "food", price: 4 },
];
/** @type {typeof PRODUCTS} */
let basket = [];
/** Withdraws the tool `check_out`. @type {AbortController | undefined} */
let withdrawal;

const { modelContext } = /** @type {any} */ (document);

modelContext.registerTool({
  name: "find_products",
  description: "What the shop has, by a word of its name or kind.",
  inputSchema: { type: "object", properties: { word: { type: "string" } } },
  annotations: { readOnlyHint: true },
  execute: (/** @type {{ word?: string }} */ { word = "" }) => ({
    products: PRODUCTS.filter(({ name, kind }) => `${name} ${kind}`.toLowerCase().includes(word.toLowerCase())),
  }),
});

modelContext.registerTool({
  name: "add_to_basket",
  description: "Put a product into the basket.",
  inputSchema: { type: "object", properties: { id: { type: "string" } }, required: ["id"] },
  execute(/** @type {{ id: string }} */ { id }) {
    const product = PRODUCTS.find((one) => one.id === id);
    if (!product) throw new Error(`The shop has no “${id}”. Call find_products for the ids.`);
    basket.push(product);
    draw();
    return `${product.name} is in the basket.`;
  },
});

/** The tool `check_out` is registered only while the basket is not empty. */
function offerCheckOut() {
  if (basket.length && !withdrawal) {
    withdrawal = new AbortController();
    modelContext.registerTool({
      name: "check_out",
      description: "Buy what is in the basket.",
      inputSchema: { type: "object", properties: {} },
      annotations: { consequentialHint: true },
      execute() {
        const paid = total();
        basket = [];
        draw();
        return `Paid ${paid} €. Thank you.`;
      },
    }, { signal: withdrawal.signal });
  } else if (!basket.length) {
    withdrawal?.abort();
    withdrawal = undefined;
  }
}

const total = () => basket.reduce((sum, { price }) => sum + price, 0);

/**
 * @param {string} id
 * @param {typeof PRODUCTS} products
 */
function fill(id, products) {
  document.querySelector(id)?.replaceChildren(...products.map(({ name, price }) => {
    const row = document.createElement("li");
    row.append(Object.assign(document.createElement("span"), { className: "name", textContent: name }));
    row.append(Object.assign(document.createElement("span"), { className: "price", textContent: `${price} €` }));
    return row;
  }));
}

function draw() {
  fill("#shelf", PRODUCTS);
  fill("#basket", basket);
  const sum = /** @type {HTMLElement} */ (document.querySelector("#total"));
  sum.textContent = basket.length ? `Total: ${total()} €` : "The basket is empty.";
  offerCheckOut();
}

draw();
// The connection that webmcp.js made: connect() returns the same one for the same server.
showExample(connect({ server: "shop" }), {
  server: "shop",
  files: [["shop.js", "the shop, and its tools in the way of WebMCP"], ["index.html", "its page, with one script tag for Tabrelay"], ["standin.js", "WebMCP for browsers that lack it"]],
  example: { tool: "find_products", arguments: { word: "book" }, prompt: "Find something to read and put it in the basket." },
  values: { find_products: { word: "book" }, add_to_basket: { id: "novel" } },
});
