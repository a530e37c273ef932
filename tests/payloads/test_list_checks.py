"""Checks of lists and descriptions from servers, before clients get them."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tabrelay.payloads import list_checks
from tabrelay.payloads.json_limits import is_deeper_than
from tabrelay.payloads.list_checks import ListBounds, Rejection, inspect, read_server_description
from tabrelay.routing.catalogue_store import Catalogue, CatalogueStore
from tabrelay.routing.catalogues import LOG_BURST, MAX_FLAWS
from tabrelay.routing.registry import Registry
from tests.support.checked_reply import check_reply
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S, pause

BOUNDS = ListBounds(tools=3, list_bytes=2000, description=50, schema_depth=4)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels - 1):
        schema = {"x": schema}
    return schema


def tool(name: Any = "t", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Does it.", "inputSchema": {"type": "object"}, **more}


@pytest.mark.parametrize(
    "name",
    [
        *("", None, 7, ["a"], "x" * 129),
        *("a\nb", "a\x1b[31mb", "a\x00b", "a\x7fb", "a\x9bb"),  # control characters; the last starts an ANSI command
        *("a\u202eb", "a\u2066b", "\u200ea", "\u061ca"),  # bidi
        *("a\u200bb", "a\u00adb", "\ufeffa", "a\U000e0041b", "a\u2028b", "a\ue000b"),  # invisible
    ],
)
def test_a_name_that_is_not_what_it_looks_like_is_left_out(name: Any) -> None:
    kept, flaws = inspect("tools", [tool(name), tool("fine")], BOUNDS)
    assert [item["name"] for item in kept] == ["fine"]
    [flaw] = flaws
    assert "name" in flaw.why
    assert flaw.name.isprintable() and flaw.name.isascii()


@pytest.mark.parametrize("name", ["a", "get_note", "a.b-c/d", "Größe", "名前", "x" * 128])
def test_an_ordinary_name_is_kept(name: str) -> None:
    assert inspect("tools", [tool(name)], BOUNDS) == ([tool(name)], [])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"description": "x" * 51}, "description"),
        ({"description": 7}, "description"),
        ({"description": "Runs \x1b[2J this"}, "description"),
        ({"description": "Runs \u202eelif\u202c"}, "description"),
        ({"description": "Does it.\U000e0049\U000e0067"}, "description"),
        ({"title": "x" * 257}, "title"),
        ({"title": "two\nlines"}, "title"),
        ({"annotations": {"title": "\u202etxet"}}, "title"),
        ({"inputSchema": nested(5)}, "deeper than 4"),
        ({"outputSchema": nested(5)}, "deeper than 4"),
        ({"inputSchema": {"a": [[[[]]]]}}, "deeper than 4"),
    ],
)
def test_a_tool_that_is_too_much_or_misleading_is_left_out(more: dict[str, Any], why: str) -> None:
    kept, flaws = inspect("tools", [tool("bad", **more), tool("fine")], BOUNDS)
    assert [item["name"] for item in kept] == ["fine"]
    assert flaws[0].name == "bad" and why in flaws[0].why


HIDDEN = "\U000e0069\U000e0067"


@pytest.mark.parametrize(
    "more",
    [
        {"inputSchema": {"type": "object", "properties": {"a": {"description": f"A{HIDDEN}"}}}},
        {"inputSchema": {"type": "object", "properties": {f"a{HIDDEN}": {}}}},
        {"outputSchema": {"enum": ["a", "b\x1b[31m"]}},
        {"inputSchema": {"default": "a\u202eb"}},
        {"annotations": {"note": f"a{HIDDEN}"}},
        {"_meta": {"x": "a\u200bb"}},
        {"icons": [{"src": f"a{HIDDEN}"}]},
        {"description": "Does it.\ufe0f\ufe0e"},
        {"title": "Emoji ✔\U000e0154"},
    ],
)
def test_a_tool_with_hidden_text_anywhere_is_left_out(more: dict[str, Any]) -> None:
    kept, flaws = inspect("tools", [tool("bad", **more), tool("fine")], BOUNDS)
    assert [item["name"] for item in kept] == ["fine"] and [flaw.name for flaw in flaws] == ["bad"]


def test_names_that_look_alike_are_kept_and_flagged() -> None:
    kept, flaws = inspect("tools", [tool("scope"), tool("sc\u043epe"), tool("other")], BOUNDS)
    assert [item["name"] for item in kept] == ["scope", "sc\u043epe", "other"]
    [flaw] = flaws
    assert (flaw.is_left_out, flaw.why) == (False, 'looks like "scope"') and flaw.name.isascii()


def test_of_a_member_that_comes_twice_clients_get_the_one_that_was_checked() -> None:
    text = (
        '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"b","name":"a","inputSchema":{}}],"tools":[{"name":"c"}]}}'
    )
    sifted, flaws = check_reply("tools/list", text, BOUNDS)
    assert (json.loads(sifted)["result"], list(flaws)) == ({"tools": [{"name": "c"}]}, [])
    assert sifted.count('"tools"') == 1
    twice = '{"jsonrpc":"2.0","id":1,"result":{"instructions":"a\\u202eb","instructions":"fine"}}'
    assert check_reply("server/discover", twice, BOUNDS)[0].count("instructions") == 1


def test_the_description_of_a_server_has_no_hidden_text() -> None:
    about = read_server_description(
        {
            "instructions": f"Be kind.{HIDDEN}",
            "serverInfo": {"name": "notes", "version": "1", "title": "a\u202eb", "icons": [{"src": HIDDEN}]},
            "capabilities": {"tools": {}},
            "_meta": {"a": HIDDEN, "b": 1},
            f"x{HIDDEN}": 1,
        }
    )
    assert about == {"serverInfo": {"name": "notes", "version": "1"}, "capabilities": {"tools": {}}, "_meta": {"b": 1}}
    assert "serverInfo" not in read_server_description({"serverInfo": {"name": "a\x1bb", "version": "1"}})


async def test_no_client_gets_hidden_instructions_and_the_status_shows_names_that_look_alike(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        worker = SyntheticWorker(relay.url, relay.token, "notes")
        worker.tools = [tool("scope"), tool("sc\u043epe")]
        worker.instructions = f"Be kind.{HIDDEN}"
        async with worker:
            status = await relay.has_read("notes")
            assert [row["why"] for row in status["suspicious"]] == ['looks like "scope"'] and not status["left_out"]
            found = await relay.http.post("/notes", **relay.modern("server/discover"))
            assert found.status_code == 200 and "Be kind" not in found.text
            await relay.http.post("/notes", **relay.modern("tools/list"))
        found = await relay.http.post("/notes", **relay.modern("server/discover"))
        assert "Be kind" not in found.text


def test_what_is_at_the_limit_is_kept() -> None:
    fine = tool("t", description="x" * 50, inputSchema=nested(4), title="Emoji 👩‍💻 and\u00a0more")
    assert inspect("tools", [fine, tool("u", description="Two\nlines,\tand a tab")], BOUNDS)[1] == []


def test_a_list_is_bounded_in_tools_and_bytes() -> None:
    kept, flaws = inspect("tools", [tool(f"t{n}") for n in range(5)], BOUNDS)
    assert len(kept) == 3
    assert [(flaw.name, flaw.why) for flaw in flaws] == [(f"t{n}", "is one of more than 3") for n in (3, 4)]
    kept, flaws = inspect("tools", [tool("large", x="x" * 2000), tool("small")], BOUNDS)
    assert [item["name"] for item in kept] == ["small"]
    assert "larger than 2,000 bytes" in flaws[0].why


def test_a_second_tool_of_a_name_cannot_replace_the_first() -> None:
    kept, flaws = inspect("tools", [tool("t"), tool("t", description="Another.")], BOUNDS)
    assert kept == [tool("t")]
    assert flaws == [Rejection("t", "has the same name as another one")]


@pytest.mark.parametrize("items", [None, {}, "tools", 7])
def test_what_is_no_list_is_an_empty_one(items: Any) -> None:
    kept, flaws = inspect("tools", items, BOUNDS)
    assert kept == [] and len(flaws) == 1


def test_resources_templates_and_prompts_are_checked_too() -> None:
    resources = [{"uri": "a:b", "name": "A, with spaces"}, {"uri": "a:\x1bb", "name": "b"}, {"name": "c"}, 7]
    assert [item["uri"] for item in inspect("resources", resources, BOUNDS)[0]] == ["a:b"]
    templates = [{"uriTemplate": "a:{b}", "name": "A"}, {"uriTemplate": "a:\u202e{b}", "name": "B"}]
    assert len(inspect("resourceTemplates", templates, BOUNDS)[0]) == 1
    argument = {"name": "x", "description": "y" * 51}
    prompts = [{"name": "p"}, {"name": "q\u202e"}, {"name": "r", "arguments": [argument]}]
    prompts += [{"name": "s", "arguments": [{"name": "x\x1b[2J"}]}, {"name": "t", "arguments": [7]}]
    assert [item["name"] for item in inspect("prompts", prompts, BOUNDS)[0]] == ["p"]


@pytest.mark.parametrize(
    ("front", "why"),
    [
        (None, "no frontmatter"),
        ({"description": "x"}, "no name"),
        ({"name": "a\u202eb", "description": "x"}, "invisible"),
        ({"name": "a", "description": "x\x1b[2J"}, "invisible"),
        ({"name": "a", "description": "x", "license": "\U000e0041"}, "invisible"),
        ({"name": "a", "description": "x" * 9000}, "more than"),
    ],
)
def test_a_skill_with_a_misleading_frontmatter_is_left_out(front: Any, why: str) -> None:
    good = {"uri": "skill://b/SKILL.md", "frontmatter": {"name": "b", "description": "B."}, "resources": []}
    kept, flaws = inspect("skills", [{"uri": "skill://a/SKILL.md", "frontmatter": front}, good], ListBounds())
    assert kept == [good]
    assert why in flaws[0].why


def test_an_answer_with_nothing_to_leave_out_is_passed_on_whole() -> None:
    payload = '{"jsonrpc": "2.0",  "id": 1, "result": {"tools": [ {"name": "a"} ], "nextCursor": "x"}}'
    sifted, flaws = check_reply("tools/list", payload, BOUNDS)
    assert (json.loads(sifted), list(flaws)) == (json.loads(payload), [])
    error = '{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}'
    assert check_reply("tools/list", error, BOUNDS) == (error, ())


def test_of_a_list_of_garbage_only_the_beginning_is_checked() -> None:
    kept, flaws = inspect("tools", [*[1] * 5000, tool("late")], BOUNDS)
    assert kept == [] and len(flaws) == list_checks.MAX_FLAWS + 1
    assert flaws[-1].why == "has 4,001 more items, which were not checked"


def test_depth_is_counted_without_recursion() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    assert is_deeper_than(value, 99_999)
    assert not is_deeper_than([[1], {"a": 2}], 2)
    assert is_deeper_than([[[]]], 2)


async def test_clients_and_the_status_get_no_rejected_tool(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    poisoned = tool("pay\u202e", description="Looks fine.")
    huge = tool("huge", description="x" * 9000)
    deep = tool("deep", inputSchema=nested(40))
    many = [tool(f"t{n:03}") for n in range(300)]
    async with RunningRelay(tmp_path) as relay:
        worker = SyntheticWorker(relay.url, relay.token, "notes")
        worker.tools = [poisoned, huge, deep, *many]
        async with worker:
            status = await relay.has_read("notes")
            listed = (await relay.http.post("/notes", **relay.modern("tools/list"))).json()["result"]["tools"]
            names = [item["name"] for item in listed]
            assert names == [f"t{n:03}" for n in range(256)] == [item["name"] for item in status["tools"]]
            left_out = {row["name"]: row["why"] for row in status["left_out"]}
            assert {"pay?", "huge", "deep"} <= set(left_out)
            assert len(left_out) == 32
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("pay?" in record.getMessage() for record in warnings) == 1
    assert "\u202e" not in caplog.text


async def test_what_is_offered_better_is_no_longer_flagged(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        worker = SyntheticWorker(relay.url, relay.token, "notes")
        worker.tools = [tool("pay\u202e")]
        async with worker:
            assert len((await relay.has_read("notes"))["left_out"]) == 1
            await worker.offer([tool("pay")])
            async with asyncio.timeout(BOUND_S):
                while (await relay.has_read("notes"))["left_out"]:
                    await pause()


def test_a_server_whose_lists_change_all_the_time_does_not_fill_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    registry = Registry(CatalogueStore(tmp_path / "servers.json"), declared=["notes"], clock=lambda: now)

    def flag(*names: str) -> None:
        registry.catalogues.flag(
            "notes", "tools/list", [Rejection(name, "is strange") for name in names], is_whole=True
        )

    flag("a", "b", "c", "d", "e")
    [line] = [record.getMessage() for record in caplog.records]
    assert line == 'notes: wrong in tools/list: "a" is strange, "b" is strange, "c" is strange; and 2 more'
    for _ in range(9):
        flag("a", "b", "c", "d", "e")
    assert len(caplog.records) == 1
    registry.catalogues.mark_used(registry.find("notes"))
    for number in range(500):
        now += 0.1
        flag(*(f"t{number}-{each}" for each in range(40)))
        registry.catalogues.keep("notes", Catalogue({}, tools=(tool(f"t{number}"),)))
    assert len(caplog.records) <= 2 * LOG_BURST
    assert list(registry.find("notes").flaws["tools/list"]) == [f"t499-{each}" for each in range(MAX_FLAWS)]
    assert registry.find("notes").drift
    # After a while a log line is allowed again for this server; other servers are not affected.
    before, now = len(caplog.records), now + 60
    flag("z")
    registry.declare("other")
    registry.catalogues.flag("other", "tools/list", [Rejection("z", "is strange")], is_whole=True)
    assert len(caplog.records) == before + 2


def test_a_member_that_is_too_large_is_left_out_and_the_others_are_kept() -> None:
    large = {"more": "x" * (list_checks.MAX_MEMBERS + 1)}
    known = {"capabilities": {"tools": {}}, "protocolVersion": "2025-11-25"}
    assert read_server_description(large | known) == known
    many = {f"m{number}": "x" * 1_000 for number in range(list_checks.MAX_MEMBERS // 1_000)}
    assert known.items() <= read_server_description(many | known).items()
    page = {"jsonrpc": "2.0", "id": 1, "result": large | {"nextCursor": "2", "tools": []}}
    text, _ = check_reply("tools/list", json.dumps(page), list_checks.ANY_SIZE)
    assert json.loads(text)["result"] == {"nextCursor": "2", "tools": []}
