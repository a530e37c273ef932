/**
 * Result of a tool that navigated: the first JSON-LD of the page that its frame loads, or where the tab goes.
 *
 * A browser's `executeTool` returns null for a form that navigates, before the page is left. A page of another origin can't be
 * read, and neither can the page that follows this one in its own tab.
 */

const LOAD_MS = 15_000;

/** Where this page goes; the Navigation API is not in all browsers. */
let destination = "";
const { navigation } = /** @type {{ navigation?: EventTarget }} */ (/** @type {any} */ (globalThis));
navigation?.addEventListener("navigate", (event) => {
  ({ url: destination } = /** @type {{ destination: { url: string } }} */ (/** @type {any} */ (event)).destination);
});

/**
 * @param {Window | undefined} frame the window of the tool
 * @returns {Promise<unknown>}
 */
export async function readNavigatedPage(frame) {
  if (!frame || frame === window) {
    const where = destination ? `to ${destination}` : "to its next page";
    return `The form was submitted, and the tab goes ${where}. The tools of that page are listed when it has loaded.`;
  }
  const element = frameElement(frame);
  if (!element) return "The form was submitted, and its frame goes to its next page, which can't be read: it is of another origin.";
  await new Promise((resolve, reject) => {
    element.addEventListener("load", resolve, { once: true });
    const text = `The form was submitted, and its next page was not loaded within ${LOAD_MS / 1_000} s.`;
    setTimeout(() => reject(new Error(text)), LOAD_MS);
  });
  return readJsonLd(element.contentDocument);
}

/**
 * The page's first JSON-LD, or what the page is.
 * @param {Document | null} page null: of another origin
 */
function readJsonLd(page) {
  if (!page) return "The form was submitted and led to a page of another origin, which can't be read.";
  const script = page.querySelector('script[type="application/ld+json"]');
  if (!script) return `The form led to the page "${page.title}" (${page.location.href}), which has no JSON-LD.`;
  try {
    return JSON.parse(script.textContent ?? "");
  } catch (error) {
    throw new Error(`The form led to ${page.location.href}, whose JSON-LD can't be read: ${error} [TR477]`);
  }
}

/**
 * Null for a frame of another origin.
 * @param {Window} frame
 */
function frameElement(frame) {
  try {
    return frame.frameElement && /** @type {HTMLIFrameElement} */ (frame.frameElement);
  } catch {
    return null;
  }
}
