/**
 * Complete HTML page with a program of the playground, for a folder of its reader's app.
 *
 * The page loads the relay's loader (`tabrelay.js`), which lies beside it. The source is written into a script element; what would end
 * that element is written as an escape, which means the same inside a string. It does not check whether the program runs.
 *
 * @import { Program } from "./share.js"
 */

const PAGE_SERVER = "notes";
const WHAT_ENDS_A_SCRIPT = /<(?=\/script|!--)/gi;

/**
 * @param {Program} program
 * @returns {string}
 */
export function pageOf({ language, source }) {
  const script = (language === "python" ? pythonScript : javascriptScript)(source.trimEnd());
  return `<!doctype html>
<!-- Save this as index.html in a folder. "tabrelay init FOLDER" writes the loader, tabrelay.js, beside it; "tabrelay dev FOLDER" serves both. -->
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width">
    <title>${PAGE_SERVER}</title>
  </head>
  <body>
${script}
  </body>
</html>
`;
}

/** @param {string} source */
function javascriptScript(source) {
  return `    <script type="module">
import { load } from "./tabrelay.js";

const { connect } = await load();
const connection = connect({ server: "${PAGE_SERVER}", worker: "tabrelay.js" });
const offerTool = (tool, options) => connection.offerTool(tool, options);

${source.replace(WHAT_ENDS_A_SCRIPT, "\\x3c")}
    </script>`;
}

/** @param {string} source */
function pythonScript(source) {
  return `    <script type="module">
      import { load } from "./tabrelay.js";

      load("pyscript.js");
    </script>
    <script type="py">
${source.replace(WHAT_ENDS_A_SCRIPT, "\\x3c")}

from pyscript.js_modules import tabrelay
from tabserver.page import offer

offer(tabrelay.connect, server="${PAGE_SERVER}", worker="tabrelay.js")
    </script>`;
}
