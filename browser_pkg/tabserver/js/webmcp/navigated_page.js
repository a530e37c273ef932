/**
 * Result of a tool that navigated a frame: the first JSON-LD of the page that was loaded.
 *
 * A browser's `executeTool` returns null for a form that navigates. It reads pages of this origin only.
 */

const LOAD_MS = 15_000;
const LEFT = "The page was left while the tool ran. Whether it took effect is unknown.";

/**
 * @param {Window | undefined} frame the window of the tool
 * @returns {Promise<unknown>}
 */
export async function readNavigatedFrame(frame) {
  const element = frame && frame !== window ? frameElement(frame) : null;
  if (!element) throw new Error(LEFT);
  await new Promise((resolve, reject) => {
    element.addEventListener("load", resolve, { once: true });
    setTimeout(() => reject(new Error(`${LEFT} Its next page was not loaded within ${LOAD_MS / 1_000} s.`)), LOAD_MS);
  });
  return readJsonLd(element.contentDocument);
}

/**
 * The page's first JSON-LD, or what the page is.
 * @param {Document | null} page null: of another origin
 */
export function readJsonLd(page) {
  if (!page) throw new Error("The tool led to a page of another origin, whose answer can't be read.");
  for (const script of page.querySelectorAll('script[type="application/ld+json"]')) {
    try {
      return JSON.parse(script.textContent ?? "");
    } catch (error) {
      throw new Error(`The tool led to ${page.location.href}, whose JSON-LD can't be read: ${error}`);
    }
  }
  return `The tool led to the page "${page.title}" (${page.location.href}), which has no JSON-LD.`;
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
