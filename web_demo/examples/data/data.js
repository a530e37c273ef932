/** Status line of the PyScript example: the tools of this page are in data.py. */

import { connect } from "/-/client.js";
import { showStatus } from "../status.js";

showStatus(connect({ server: "weather" }));
