// The shipped types must be those of the code: whatever client.d.ts declares is held against what client.js exports.
// tsc reads this file and nobody runs it.

import type * as declared from "../tabserver/js/client.js";
import type * as declaredStatus from "../tabserver/js/status.js";
import { connect } from "../tabserver/js/client/connect.js";
import { Connection } from "../tabserver/js/client/connection.js";
import { McpError, ResourceNotFound } from "../tabserver/js/client/errors.js";
import { pair } from "../tabserver/js/client/redeem_code.js";
import { InputRequired } from "../tabserver/js/client/running_calls.js";
import { toResult } from "../tabserver/js/client/results.js";
import { StatusElement } from "../tabserver/js/client/status_element.js";

// A Connection comes from connect() alone, so what counts is what it can do, not how it is made.
type Values = Omit<typeof declared, "Connection">;

export const values: Values = {
  connect: connect as (options: declared.ConnectOptions) => Connection & declared.Connection,
  InputRequired,
  McpError,
  pair,
  ResourceNotFound,
  toResult,
};

// Everything that is declared on a connection is there, and takes and gives what the declaration says.
export const can = (connection: Connection): Omit<declared.Connection, keyof EventTarget> => connection;

// Its property takes the connection that connect() returns.
type Status = Omit<declaredStatus.TabrelayStatus, "connection">;
export const status = (element: StatusElement): Status => element;
