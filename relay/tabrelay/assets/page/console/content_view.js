/**
 * Result of a call as people read it: texts, images, audio and links of `content`, and the contents of resources and prompts.
 *
 * Nothing is executed: texts are text nodes, HTML is shown as its source, SVG only as an image, in which no script runs. Images are
 * data addresses, which the page's policy allows; audio is decoded and played by the Web Audio API, because the policy allows no
 * media elements. A link is shown as text with its address.
 */

import { duration, element } from "../element.js";
import { bytesText } from "./rows.js";

const IMAGE = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/;
const AUDIO = /^audio\//;
const MAX_BLOCKS = 50;
const MAX_TEXT = 20_000;
const MAX_DATA = 32 * 1024 * 1024;

/** @typedef {Record<string, any>} Block */

/**
 * The readable parts of a result; null if it has none.
 *
 * @param {Block} result
 * @returns {HTMLElement | null}
 */
export function contentView(result) {
  const blocks = blocksOf(result);
  if (!blocks.length) return null;
  const shown = blocks.slice(0, MAX_BLOCKS).map(blockView);
  const left = blocks.length - shown.length;
  return element("div", { class: "content stack" }, ...shown, left > 0 ? element("p", { class: "hint" }, `${left} more parts, in the JSON below.`) : null);
}

/** Content blocks of results of tools, resources and prompts. @param {Block} result @returns {Block[]} */
function blocksOf(result) {
  const content = Array.isArray(result.content) ? result.content : [];
  const contents = Array.isArray(result.contents) ? result.contents.map((/** @type {Block} */ resource) => ({ type: "resource", resource })) : [];
  const messages = Array.isArray(result.messages)
    ? result.messages.flatMap((/** @type {Block} */ message) => [message.content].flat().map((/** @type {Block} */ block) => ({ ...block, role: message.role })))
    : [];
  return [...content, ...contents, ...messages].filter((block) => block && typeof block === "object");
}

/** @param {Block} block @returns {HTMLElement} */
function blockView(block) {
  const role = typeof block.role === "string" ? element("p", { class: "hint" }, block.role) : null;
  const view = viewOf(block);
  return role ? element("div", {}, role, view) : view;
}

/** @param {Block} block @returns {HTMLElement} */
function viewOf(block) {
  if (block.type === "text") return textView(String(block.text ?? ""));
  if (block.type === "image") return dataView(String(block.mimeType ?? ""), String(block.data ?? ""));
  if (block.type === "audio") return dataView(String(block.mimeType ?? ""), String(block.data ?? ""));
  if (block.type === "resource_link") return element("p", {}, `Link: ${block.title ?? block.name ?? ""} `, element("code", {}, String(block.uri ?? "")));
  if (block.type === "resource" && block.resource) {
    const { uri = "", text, blob, mimeType = "" } = block.resource;
    const name = element("p", { class: "hint" }, element("code", {}, String(uri)), mimeType ? ` · ${mimeType}` : "");
    const view = typeof text === "string" ? textView(text) : dataView(String(mimeType), String(blob ?? ""));
    return element("div", { class: "stack is-close" }, name, view);
  }
  return element("p", { class: "hint" }, `Content of the type “${String(block.type)}”, in the JSON below.`);
}

/** @param {string} text */
function textView(text) {
  const place = element("pre", { class: "content-text", tabindex: 0 });
  const isLong = text.length > MAX_TEXT;
  place.append(isLong ? text.slice(0, MAX_TEXT) : text);
  if (!isLong) return place;
  const more = element("button", { type: "button", class: "button is-small" }, `Show ${text.length - MAX_TEXT} more characters`);
  more.addEventListener("click", () => {
    place.textContent = text;
    more.remove();
  });
  return element("div", { class: "stack is-close" }, place, more);
}

/** @param {string} type @param {string} data in base64 */
function dataView(type, data) {
  const about = `${type || "data"}, ${bytesText(Math.floor((data.length * 3) / 4))}`;
  if (data.length > MAX_DATA || data === "[redacted]") return element("p", { class: "hint" }, about);
  // Any other type could be markup, and stays text.
  if (IMAGE.test(type)) {
    const image = element("img", { src: `data:${type};base64,${data}`, alt: `Image of the result (${about})` });
    return element("figure", { class: "content-image" }, image, element("figcaption", { class: "hint" }, about));
  }
  if (AUDIO.test(type)) return audioView(about, data);
  return element("p", { class: "hint" }, about);
}

/** @param {string} about @param {string} data */
function audioView(about, data) {
  const button = element("button", { type: "button", class: "button" }, "Play");
  const status = element("span", { class: "hint", role: "status" }, about);
  /** @type {{ context: AudioContext, source: AudioBufferSourceNode } | null} */
  let playing = null;
  const stop = () => {
    playing?.source.stop();
    void playing?.context.close();
    playing = null;
    button.textContent = "Play";
  };
  button.addEventListener("click", async () => {
    if (playing) return stop();
    const context = new AudioContext();
    try {
      const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
      const buffer = await context.decodeAudioData(bytes.buffer);
      const source = context.createBufferSource();
      source.buffer = buffer;
      source.connect(context.destination);
      source.addEventListener("ended", () => playing?.source === source && stop());
      playing = { context, source };
      button.textContent = "Stop";
      status.textContent = `${about}, ${duration(buffer.duration * 1000)}`;
      source.start();
    } catch {
      await context.close();
      status.textContent = `${about}. This browser cannot decode it.`;
    }
  });
  return element("div", { class: "row content-audio" }, button, status);
}
