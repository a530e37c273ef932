// Progress of a download whose bytes are counted: a script for tests, prints the reports as JSON.

const [, , encoding, length] = process.argv;

async function* chunks() {
  for (let count = 0; count < 4; count++) {
    await new Promise((resolve) => setTimeout(resolve, 110)); // progress is reported every 100 ms
    yield new Uint8Array(600);
  }
}

const headers = { ...(length ? { "content-length": length } : {}), ...(encoding ? { "content-encoding": encoding } : {}) };
globalThis.self = { fetch: async () => new Response(ReadableStream.from(chunks()), { headers }) };
const { DownloadProgress } = await import("../../browser_pkg/tabserver/js/worker/download_progress.js");

const reports = [];
const progress = new DownloadProgress(60_000, (loaded, total) => reports.push([loaded, total ?? null]));
await (await progress.fetch("http://127.0.0.1/file")).arrayBuffer();
progress.stop();
console.log(JSON.stringify(reports));
