/**
 * Share and Copy as page: the program of the playground's editor as an address, and as a complete page.
 *
 * Share writes the program into the fragment of the address, and copies the address. Nothing here executes a program. Without a
 * clipboard (a page that is not secure) a field shows the text, to be copied by hand.
 *
 * @import { Program } from "./share.js"
 */

import { copyText } from "/-/page/code_block.js";
import { byId } from "/-/page/element.js";
import { pageOf } from "./page_copy.js";
import { toFragment } from "./share.js";

/**
 * @param {() => Program} read the program in the editor
 * @param {(text: string) => void} say
 */
export function addActions(read, say) {
  const byHand = byId("by-hand", HTMLTextAreaElement);

  /** @param {string} text @param {string} what @param {string} next */
  const offerText = async (text, what, next) => {
    byHand.value = text;
    byHand.hidden = await copyText(text, byHand);
    if (!byHand.hidden) byHand.select();
    say(`${what} ${byHand.hidden ? "is copied." : "is in the field below: copy it."} ${next}`);
  };

  byId("share", HTMLElement).addEventListener("click", async () => {
    try {
      history.replaceState(null, "", await toFragment(read()));
      await offerText(location.href, "This page's address, with the program in it,", "It runs when its reader presses Run.");
    } catch (error) {
      say(error instanceof Error ? error.message : String(error));
    }
  });
  byId("copy-page", HTMLElement).addEventListener("click", () => {
    void offerText(pageOf(read()), "A complete page with this program", "Save it as index.html beside the loader, tabrelay.js.");
  });
}
