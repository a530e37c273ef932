/** Parts of the page beside the PyScript example: its tools are in data.py. */

import { connect } from "/-/client.js";
import { showExample } from "../example_page.js";

showExample(connect({ server: "weather" }), {
  server: "weather",
  files: [["data.py", "the data, two tools and the plot, in Python"], ["index.html", "its page, with PyScript by one tag"]],
  example: { tool: "temperatures", arguments: { cities: ["Oslo"] }, prompt: "Plot Lisbon and Oslo. When do they differ most?" },
  values: { temperatures: { cities: ["Oslo"] }, plot: { cities: ["Lisbon", "Oslo"] } },
});
