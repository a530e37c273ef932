/** Example of elicitation: a page that asks its user before it acts. The question appears in the agent's window. */

import { connect } from "/-/client.js";
import { showExample } from "../example_page.js";

/** @type {{ id: number, title: string, blurred: boolean }[]} */
const ALL = [
  { id: 1, title: "Harbour", blurred: false },
  { id: 2, title: "Harbour again", blurred: true },
  { id: 3, title: "Lighthouse", blurred: false },
  { id: 4, title: "Gulls", blurred: true },
  { id: 5, title: "Dunes", blurred: false },
  { id: 6, title: "Evening", blurred: false },
];
let photos = ALL;

const album = /** @type {HTMLElement} */ (document.querySelector("#photos"));
// By default, tools that are marked destructive ask in a dialog of the page. This page asks in its own way.
const connection = connect({ server: "album", approve: "none" });
const restore = /** @type {HTMLButtonElement} */ (document.querySelector("#restore"));

connection.offerTool({
  name: "list_photos",
  description: "The photos of the album.",
  annotations: { readOnlyHint: true },
  execute: () => ({ photos }),
});

connection.offerTool({
  name: "delete_photos",
  description: "Delete photos for good. The user is asked first.",
  inputSchema: {
    type: "object",
    properties: { ids: { type: "array", items: { type: "integer" }, minItems: 1 } },
    required: ["ids"],
    additionalProperties: false,
  },
  annotations: { destructiveHint: true },

  async execute({ ids }, { can, elicit }) {
    const chosen = photos.filter(({ id }) => ids.includes(id));
    if (!chosen.length) throw new Error("None of these photos is in the album.");
    if (!can("elicitation")) throw new Error("Your client can't ask its user, so nothing was deleted.");

    const titles = chosen.map(({ title }) => `“${title}”`).join(", ");
    const { action, content } = await elicit(`Delete ${titles} for good?`, {
      type: "object",
      properties: { delete: { type: "boolean", title: "Yes, delete them", default: false } },
      required: ["delete"],
    });
    if (action !== "accept" || !content?.delete) return "The user said no. Nothing was deleted.";

    photos = photos.filter((photo) => !chosen.includes(photo));
    draw();
    return `Deleted ${titles}. ${photos.length} photos are left.`;
  },
});

/**
 * A picture without a file: sky, sea and sun, blurred or not.
 * @param {number} id
 * @param {boolean} blurred
 */
function picture(id, blurred) {
  const hue = id * 53;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 80 60">
    <defs><filter id="b"><feGaussianBlur stdDeviation="${blurred ? 2.5 : 0}"/></filter></defs>
    <g filter="url(#b)"><rect width="80" height="60" fill="hsl(${hue} 45% 78%)"/>
    <circle cx="${14 + ((id * 17) % 52)}" cy="20" r="8" fill="hsl(${hue + 40} 90% 92%)"/>
    <path d="M0 40 Q20 ${30 + id} 40 40 T80 40 V60 H0Z" fill="hsl(${hue + 160} 35% 45%)"/>
    <path d="M0 48 Q20 44 40 48 T80 48 V60 H0Z" fill="hsl(${hue + 170} 40% 32%)"/></g></svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}

restore.addEventListener("click", () => {
  photos = ALL;
  draw();
});

function draw() {
  restore.hidden = photos.length === ALL.length;
  album.replaceChildren(...photos.map(({ id, title, blurred }) => {
    const item = document.createElement("li");
    item.append(Object.assign(document.createElement("img"), { src: picture(id, blurred), alt: "" }), title);
    return item;
  }));
}

draw();
showExample(connection, {
  server: "album",
  files: [["album.js", "the album, and the tool that asks with elicit()"], ["index.html", "its page"]],
  example: { tool: "list_photos", arguments: {}, prompt: "Delete the photos that are blurred." },
  values: { delete_photos: { ids: [2, 4] } },
});
