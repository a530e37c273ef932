"""Offers of a page: what is logged about tools, and for how many of them."""

from __future__ import annotations

from tests.js.test_reasons import evaluated

OFFER = """(() => {
  const lines = [];
  console.warn = (line) => lines.push(line);
  const offers = new m.Offers();
  const offer = (name) => offers.addTool({ name, execute() {} });
  offer("first");
  offer("first");
  const before = lines.length;
  for (let n = 0; n < 256; n++) offer(`made_up_${n}`);
  offer("first");
  return [before, lines.length, lines.at(-1)];
})()"""


async def test_a_tool_is_warned_of_once_and_the_names_that_are_kept_for_it_have_a_bound() -> None:
    before, after, last = await evaluated("client/offers.js", OFFER)
    assert before == 1
    assert after == 1 + 256 + 2 and last.startswith('tabrelay: Tool "first" replaces another one of this name.')
