// Preloaded into a Node process (node --import): its timers run for 20 times as long. For a program that judges others by its
// clock, on a machine that is busy with something else. It changes nothing but `setTimeout`.

const FACTOR = 20;
const { setTimeout: start } = globalThis;

globalThis.setTimeout = Object.assign((run, ms, ...rest) => start(run, ms * FACTOR, ...rest), start);
