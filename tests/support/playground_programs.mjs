// Shared and saved programs of the playground, and its copies as pages: a script for tests, prints JSON.

import { deflateRawSync } from "node:zlib";
import { fromFragment, MAX_SOURCE, toFragment } from "../../web_demo/playground/share.js";
import { MAX_SNIPPETS, Snippets } from "../../web_demo/playground/snippets.js";

const outcome = (promise) => promise.then((value) => ({ value }), (error) => ({ error: error.message }));
const packed = (text) => deflateRawSync(Buffer.from(text)).toString("base64url");

async function share() {
  const program = { language: "python", source: "# é, 漢字, 🙂\nprint('x')\n" + "x = 1\n".repeat(2000) };
  const fragment = await toFragment(program);
  return {
    length: fragment.length,
    isSame: JSON.stringify(await fromFragment(fragment)) === JSON.stringify(program),
    isSafe: /^#program=python\.[A-Za-z0-9_-]+$/.test(fragment),
    none: await fromFragment("#pair=x"),
    empty: await fromFragment(""),
    cut: await outcome(fromFragment(fragment.slice(0, -9))),
    other: await outcome(fromFragment("#program=ruby.AAAA")),
    odd: await outcome(fromFragment("#program=python.!!")),
    bomb: await outcome(fromFragment(`#program=python.${packed("x".repeat(10_000_000))}`)),
    most: (await outcome(fromFragment(`#program=python.${packed("x".repeat(MAX_SOURCE))}`))).value?.source.length,
    long: await outcome(fromFragment(`#program=python.${"A".repeat(100_000)}`)),
    tooLong: await outcome(toFragment({ language: "python", source: "x".repeat(MAX_SOURCE + 1) })),
    max: MAX_SOURCE,
  };
}

function save() {
  const store = new Map();
  const storage = { getItem: (key) => store.get(key) ?? null, setItem: (key, value) => void store.set(key, value) };
  const snippets = new Snippets(storage);
  const attempt = (work) => {
    try {
      return work() ?? null;
    } catch (error) {
      return error.message;
    }
  };
  const program = { language: "python", source: "x = 1" };
  snippets.save({ name: " first ", ...program });
  snippets.save({ name: "second", ...program, source: "y" });
  snippets.save({ name: "first", ...program, source: "z" });
  const list = snippets.list();
  snippets.remove("second");
  const left = snippets.list().map(({ name }) => name);
  const unnamed = attempt(() => snippets.save({ name: " ", ...program }));
  for (let count = 0; count < MAX_SNIPPETS - 1; count++) snippets.save({ name: `n${count}`, ...program });
  const full = attempt(() => snippets.save({ name: "one more", ...program }));
  const again = attempt(() => snippets.save({ name: "first", ...program }));
  for (const key of store.keys()) store.set(key, JSON.stringify([{ name: 1 }, null, { name: "ok", ...program }, { name: "x", language: "ruby", source: "" }]));
  const checked = snippets.list().map(({ name }) => name);
  for (const key of store.keys()) store.set(key, "{");
  const broken = snippets.list();
  const refusing = new Snippets({ getItem: () => null, setItem: () => { throw new Error("quota"); } });
  return { list, left, unnamed, full, again, checked, broken, blocked: attempt(() => refusing.save({ name: "x", ...program })) };
}

console.log(JSON.stringify(await { share, save }[process.argv[2]]()));
