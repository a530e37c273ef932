"""Results of tabs that are forwarded without parsing: clients get the same as if they were parsed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tabserver.handlers.toolbox import Toolbox
from tabserver.tabs.hub import Hub
from tabserver.wire.frames import Kind
from tests.support.fake_port import FakePort
from tests.support.nodejs import node
from tests.support.paths import SUPPORT
from tests.support.server_harness import MODERN, READY, CoreHarness

SCRIPT = SUPPORT / "plain_results.mjs"
TEXT = {"type": "text", "text": "hello"}
PLAIN = [
    '{"content":[]}',
    json.dumps({"content": [TEXT]}),
    json.dumps({"content": [TEXT], "structuredContent": {"a": [1, None, 1.5e300]}}),
    json.dumps({"structuredContent": {}, "content": [TEXT]}),
    json.dumps({"content": [{"type": "text", "text": 'äöü 👍 "quoted" \\ {}'}]}, ensure_ascii=False),
]
READ_FIRST = {
    "no JSON": "{",
    "two values": '{"content":[]}{"content":[]}',
    "no object": '["content"]',
    "nothing": "null",
    "more than one line": '{"content":\n[]}',
    "space before it": ' {"content":[]}',
    "space after it": '{"content":[]} ',
    "no content": '{"structuredContent":{}}',
    "content that is no list": '{"content":{"type":"text"}}',
    "a block that is no object": '{"content":["text"]}',
    "a block that is a list": '{"content":[["type"]]}',
    "a block that is null": '{"content":[null]}',
    "a block without a type": '{"content":[{"text":"a"}]}',
    "structured content that is null": '{"structuredContent":null,"content":[]}',
    "structured content that is a list": '{"content":[],"structuredContent":[{}]}',
    "an error": '{"content":[],"isError":true}',
    "a meta of its own": '{"content":[],"_meta":{"a":1}}',
    "a type of result": '{"content":[],"resultType":"input_required"}',
    "a prototype": '{"content":[],"__proto__":{}}',
    "a type by inheritance": '{"content":[{"__proto__":{"type":"text"}}]}',
    "half a surrogate pair, spelt": '{"content":[{"type":"text","text":"\\ud800"}]}',
    "half a surrogate pair": '{"content":[{"type":"text","text":"\ud800"}]}',
    "a text that closes the message": '{"content":[]}},{"a":{}}',
}


async def test_only_sound_and_simple_results_are_passed_on_unread(tmp_path: Path) -> None:
    file = tmp_path / "texts.json"
    file.write_text(json.dumps([*PLAIN, *READ_FIRST.values()]))
    ended = await node(SCRIPT, file)
    assert ended.code == 0, ended.err
    outcomes = json.loads(ended.out)
    assert outcomes[: len(PLAIN)] == [True] * len(PLAIN)
    assert [name for name, is_plain in zip(READ_FIRST, outcomes[len(PLAIN) :], strict=True) if is_plain] == []


def answer(caller: Any, text: str, *, is_plain: bool) -> Any:
    """The client's view of a tab's result."""
    hub = Hub(Toolbox(), now_ms=lambda: 0.0, defer=lambda due: None, later=lambda delay_ms, ring: None)
    bench, port = CoreHarness(hub), FakePort()
    hub.attach(port, {"id": "a", "title": 'Tab "a"', "visible": True})
    hub.receive(port, {"t": "offer", "tools": [{"name": "info"}]})
    if caller is MODERN:
        bench.modern("tools/call", {"name": "info"}, channel="c")
    else:
        bench.open(caller)
        bench.request("tools/call", {"name": "info"})
    hub.receive_result(port, port.last("call")["call"], text, is_plain)
    [message] = [message for _, kind, message, _, _ in bench.sent if kind is Kind.RES]
    return message["result"]


@pytest.mark.parametrize("text", PLAIN)
@pytest.mark.parametrize(
    "caller",
    [MODERN, *(replace(READY, version=version) for version in ("2024-11-05", "2025-06-18", "2025-11-25"))],
    ids=lambda caller: str(caller.version),
)
def test_a_client_gets_the_same_whether_or_not_it_was_read(caller: Any, text: str) -> None:
    passed_on, read = (answer(caller, text, is_plain=is_plain) for is_plain in (True, False))
    assert passed_on == read
    assert passed_on["_meta"]["tabrelay/tab"] == {"id": "a", "title": 'Tab "a"'}


def test_each_result_names_its_own_tab_also_when_tabs_alternate_or_change_their_title() -> None:
    hub = Hub(Toolbox(), now_ms=lambda: 0.0, defer=lambda due: None, later=lambda delay_ms, ring: None)
    bench, ports = CoreHarness(hub), {id: FakePort() for id in "ab"}
    for id, port in ports.items():
        hub.attach(port, {"id": id, "title": id.upper(), "visible": True})
        hub.receive(port, {"t": "offer", "tools": [{"name": id}]})

    def call(name: str, id: int | str) -> Any:
        bench.modern("tools/call", {"name": name}, id=id, channel=f"c{id}")
        hub.receive_result(ports[name], ports[name].last("call")["call"], '{"content":[]}', True)
        return bench.sent[-1][2]["id"], bench.sent[-1][2]["result"]["_meta"]["tabrelay/tab"]

    assert [call("a", 1), call("b", 'text "2"'), call("b", 3), call("a", 4)] == [
        (1, {"id": "a", "title": "A"}),
        ('text "2"', {"id": "b", "title": "B"}),
        (3, {"id": "b", "title": "B"}),
        (4, {"id": "a", "title": "A"}),
    ]
    hub.receive(ports["a"], {"t": "tab", "title": "Another", "visible": True})
    assert call("a", 5) == (5, {"id": "a", "title": "Another"})
