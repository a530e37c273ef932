// Loaded into a client before it starts: its clock runs fast. A client gives a call up after a minute, and reports that as
// it always does; a test has no minute.
const { setTimeout: later } = globalThis;
globalThis.setTimeout = (run, delay = 0, ...rest) => later(run, delay >= 30_000 ? delay / 30 : delay, ...rest);
