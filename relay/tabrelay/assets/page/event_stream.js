/**
 * Reader of an event stream (`text/event-stream`) whose events are JSON values, from the body of a fetch.
 *
 * EventSource sends no POST and no headers, so the response of a call can't be read with it. Ids and retry times are ignored: the
 * stream of one call is not resumed.
 */

/** Characters of one event. */
const MAX_EVENT = 32 * 1024 * 1024;

/**
 * The values of the events, in order. Events without data are left out: the relay sends comments to keep the stream open.
 *
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} body
 * @returns {AsyncGenerator<Record<string, any>>}
 */
export async function* eventMessages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r?\n\r?\n/);
      rest = lines.pop() ?? "";
      if (rest.length > MAX_EVENT) throw new Error("The relay sent an event that is too large.");
      for (const event of lines) {
        const data = dataOf(event);
        if (data) yield JSON.parse(data);
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** @param {string} event */
function dataOf(event) {
  return event
    .split(/\r?\n/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(line.startsWith("data: ") ? 6 : 5))
    .join("\n");
}
