/**
 * Visible output of a Python program: printed text, and the images that its tools returned.
 *
 * Text goes in as text nodes. The view keeps a bounded amount: later text is counted, and only the last images stay.
 */

const MAX_TEXT = 100_000; // characters of one run
const MAX_IMAGES = 4;

/**
 * @typedef {{ t: "clear" } | { t: "printed", stream: string, text: string } | { t: "images", images: { data: string, mimeType: string }[] }} Output
 */

export class OutputView {
  #text = document.createElement("pre");
  #images = document.createElement("div");
  #length = 0;

  /** @param {HTMLElement} place */
  constructor(place) {
    this.#text.className = "output";
    this.#text.setAttribute("aria-label", "Output");
    place.append(this.#text, this.#images);
  }

  /** @param {Output} output */
  show(output) {
    if (output.t === "clear") this.#clear();
    else if (output.t === "printed") this.#print(output.stream, output.text);
    else for (const image of output.images) this.#draw(image);
  }

  #clear() {
    this.#text.replaceChildren();
    this.#images.replaceChildren();
    this.#length = 0;
  }

  /**
   * @param {string} stream
   * @param {string} text
   */
  #print(stream, text) {
    const room = MAX_TEXT - this.#length;
    this.#length += text.length;
    if (room <= 0) return;
    const part = document.createElement("span");
    part.className = stream;
    part.textContent = text.length < room ? text : `${text.slice(0, room)}\n… (the rest is not shown)`;
    this.#text.append(part);
  }

  /** @param {{ data: string, mimeType: string }} image */
  #draw({ data, mimeType }) {
    const shown = document.createElement("img");
    shown.alt = "Image that a tool returned";
    shown.src = `data:${mimeType};base64,${data}`;
    this.#images.append(shown);
    while (this.#images.childElementCount > MAX_IMAGES) this.#images.firstElementChild?.remove();
  }
}
