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


CLASH = """(() => {
  const lines = [];
  console.warn = (line) => lines.push(line);
  const offers = new m.Offers();
  for (const name of ["draw", "erase"]) offers.addTool({ name, description: "d", execute() {} });
  const owners = { draw: "worker", erase: "3f9a12bc", undo: "worker" };
  const tools = Object.entries(owners).map(([name, owner]) => ({ name, owner }));
  offers.compareNames({ tools });
  offers.compareNames({ tools });
  return lines;
})()"""


async def test_a_tool_with_the_name_of_one_of_the_worker_is_warned_of_once() -> None:
    (line,) = await evaluated("client/offers.js", CLASH)
    assert line.startswith('tabrelay: Tool "draw" has the name of a tool of the worker')


DEFINE = """(() => {
  const offers = new m.Offers();
  const define = (tool) => {
    try {
      return offers.addTool({ name: "t", description: "d", execute() {}, ...tool }).offer.tools[0]._meta ?? null;
    } catch (error) {
      return `${error.name}: ${error.message}`;
    }
  };
  return [
    define({ hints: { search: "rain", alwaysLoad: true, maxResultChars: 9, requiresUserInteraction: false } }),
    define({ hints: { alwaysLoad: true }, _meta: { "anthropic/alwaysLoad": false, "mine/x": 1 } }),
    define({ visibility: ["app"], _meta: { ui: { resourceUri: "ui://a" } } }),
    define({}),
    define({ hints: { serach: "rain" } }),
    define({ hints: { maxResultChars: "9" } }),
    define({ hints: { maxResultChars: 0 } }),
    define({ visibility: ["page"] }),
  ];
})()"""


async def test_a_definition_with_a_misspelt_function_or_another_type_is_refused() -> None:
    script = """
    const offers = new m.Offers();
    const refusal = (tool) => {
      try { offers.addTool({ name: "t", ...tool }); } catch (error) { return error.message; }
    };
    return [refusal({ excute() {} }), refusal({ handler() {} }), refusal({ description: 5, execute() {} })];
    """
    said = await evaluated("client/offers.js", f"(() => {{ {script} }})()")
    assert [text.partition(" [")[0] for text in said] == [
        'Tool "t" has no function `execute`, but one that is called `excute`.',
        'Tool "t" has no function `execute`.',
        'Tool "t": description must be text.',
    ]


async def test_hints_and_visibility_are_members_of_meta_and_have_types() -> None:
    every, written, page, none, *wrong = await evaluated("client/offers.js", DEFINE)
    assert every == {
        "anthropic/searchHint": "rain",
        "anthropic/alwaysLoad": True,
        "anthropic/maxResultSizeChars": 9,
        "anthropic/requiresUserInteraction": False,
    }
    assert written == {"anthropic/alwaysLoad": False, "mine/x": 1}
    assert page == {"ui": {"visibility": ["app"], "resourceUri": "ui://a"}}
    assert none is None
    assert all(one.startswith('TypeError: Tool "t": ') for one in wrong)
