"""Return values of JavaScript handlers: written as JSON, or refused with one sentence that names what to return."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.js.test_reasons import evaluated

WRITTEN = {
    "({ a: 1, b: [true, null, 'x'], c: undefined })": '{"a":1,"b":[true,null,"x"]}',
    "new Date(0)": '"1970-01-01T00:00:00.000Z"',
    "new URL('http://localhost/')": '"http://localhost/"',
    "new (class Point { x = 1; #y = 2; })()": '{"x":1}',
    "Object.create(null)": "{}",
    "[new String('x'), new Number(1), new Boolean(true)]": '["x",1,true]',
    "({ toJSON: () => ({ a: [1] }) })": '{"a":[1]}',
    "(() => { const shared = {}; return [shared, shared]; })()": "[{},{}]",
}


@pytest.mark.parametrize("value", WRITTEN)
async def test_a_value_with_a_json_form_is_written(value: str) -> None:
    assert await evaluated("client/json_values.js", f"m.writeJson({value}, 'Tool')") == WRITTEN[value]


UNWRITABLE = {
    "new Map([[1, 2]])": ("a Map", "Object.fromEntries(map)"),
    "{ when: { rows: [new Set()] } }": ("a Set at result.when.rows[0]", "[...set]"),
    "NaN": ("NaN", "null or a text"),
    "[1, Infinity]": ("Infinity at result[1]", "finite"),
    "() => 1": ("a function", "what the function returns"),
    "{ a: 1, f() {} }": ("a function at result.f", "what the function returns"),
    "Symbol('x')": ("a symbol", "description"),
    "{ id: 1n }": ("a BigInt at result.id", "String(value)"),
    "(() => { const a = { b: {} }; a.b.c = a; return a; })()": (
        "an object that contains itself at result.b.c",
        "a copy",
    ),
    "{ d: new Date(NaN) }": ("a Date at result.d", "invalid"),
    "new Uint8Array(3)": ("a Uint8Array", "[...array]"),
    "{ b: new ArrayBuffer(1) }": ("an ArrayBuffer at result.b", "Blob"),
    "[undefined]": ("undefined at result[0]", "null"),
    "[1, , 2]": ("undefined at result[1]", "null"),
    "new (class Secret { #x = 1; get x() { return this.#x; } })()": ("a Secret", "plain object"),
    "new Error('boom')": ("an Error", "Throw it"),
    "{ p: Promise.resolve(1) }": ("a Promise at result.p", "Await"),
    "/x/": ("a RegExp", "source"),
    "new WeakMap()": ("a WeakMap", "plain object"),
    "new URLSearchParams('a=1')": ("a URLSearchParams", "Object.fromEntries"),
    "{ blob: new Blob(['x']) }": ("a Blob at result.blob", "by itself"),
    "{ toJSON: () => new Map() }": ("an object", "plain object"),
}


async def test_a_value_without_a_json_form_is_named_with_its_place_and_what_to_return() -> None:
    attempt = (
        "((value) => { try { return m.writeJson(value, 'Tool \"t\"'); } catch (error) { return error.message; } })"
    )
    attempts = ", ".join(f"{attempt}({value})" for value in UNWRITABLE)
    said: list[Any] = await evaluated("client/json_values.js", f"[{attempts}]")
    for (value, (kind, advice)), text in zip(UNWRITABLE.items(), said, strict=True):
        kind = kind.replace("an object", "an Object") if "toJSON" in value else kind
        assert text.startswith(f'Tool "t" returned {kind}, which has no JSON form. '), (value, text)
        assert advice in text, (value, text)


async def test_the_text_of_a_result_is_what_the_whole_result_would_be() -> None:
    values = "['x', 1, null, [1], { a: { b: 'é\\n' } }, [], {}, true]"
    both = f"await Promise.all({values}.map(async (value) => [m.resultText(value, 'T'), await m.toResult(value)]))"
    for text, whole in await evaluated("client/results.js", both):
        assert json.loads(text) == whole


async def test_a_value_that_nests_too_deeply_is_named() -> None:
    value = "(() => { let a = {}; for (let i = 0; i < 100_000; i++) a = { a }; return a; })()"
    attempt = f"(() => {{ try {{ m.writeJson({value}, 'T'); }} catch (error) {{ return error.message; }} }})()"
    assert str(await evaluated("client/json_values.js", attempt)).startswith(
        "T returned a value that nests too deeply."
    )


async def test_a_list_that_is_called_content_is_data_unless_it_has_blocks_of_content() -> None:
    texts = "{ content: ['a', 'b'], title: 't' }"
    values = (
        f"[{texts}, {{ content: [{{ type: 'text' }}] }}, {{ content: [{{ type: 'later', x: 1 }}] }}, {{ content: [] }}]"
    )
    data, lacking, later, empty = await evaluated(
        "client/results.js", f"await Promise.all({values}.map((value) => m.toResult(value)))"
    )
    assert data["structuredContent"] == {"content": ["a", "b"], "title": "t"}
    assert lacking["structuredContent"] == {"content": [{"type": "text"}]}
    assert later == {"content": [{"type": "later", "x": 1}]} and empty == {"content": []}


async def test_what_is_thrown_and_is_not_an_error_is_shown() -> None:
    thrown = (
        "[undefined, null, 42, { code: 5 }, {}, '', 1n, { message: 'mine' }, 'plain', new Error('why'), new Error()]"
    )
    said = await evaluated("client/errors.js", f"{thrown}.map(m.describe)")
    assert said[-4:] == ["mine", "plain", "why", "Error"]
    for text, shown in zip(said, ("undefined", "null", "42", '{"code":5}', "{}", "an empty text", "1"), strict=False):
        assert text == f'What was thrown is not an Error: {shown}. Throw new Error("what happened") instead.'


async def test_what_a_value_itself_throws_is_the_callers_error() -> None:
    value = "{ get x() { throw new RangeError('mine'); } }"
    attempt = f"(() => {{ try {{ m.writeJson({value}, 'T'); }} catch (error) {{ return error.message; }} }})()"
    assert await evaluated("client/json_values.js", attempt) == "mine"
