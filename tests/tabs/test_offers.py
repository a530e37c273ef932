"""Resources, prompts and completions of tabs: offered over a port, used by clients of both eras, answered by the tab.

The core holds everything it says to the official models.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tabserver.handlers.toolbox import Toolbox, prompt, resource
from tabserver.tabs.hub import Hub
from tests.support.core import READY, Bench
from tests.support.port import FakePort

NOTE = {"uri": "notes://today", "name": "today", "mimeType": "text/plain"}
NOTES = {"uriTemplate": "notes://{folder}/{name*}", "name": "notes"}
REVIEW = {"name": "review", "arguments": [{"name": "code", "required": True}, {"name": "tone"}]}


class House:
    """A core, the hub behind it, and tabs that the test speaks for."""

    def __init__(self) -> None:
        self.box = Toolbox()
        self.due: list[Any] = []
        self.hub = Hub(self.box, now_ms=lambda: 0.0, defer=self.due.append, later=lambda delay_ms, ring: None)
        self.bench = Bench(self.hub)
        self.hub.on_change = self.bench.server.catalogue_changed
        self.hub.on_update = self.bench.server.resource_updated

    def tab(self, id: str, **offers: Any) -> FakePort:
        port = FakePort()
        self.hub.attach(port, {"id": id, "title": f"Tab {id}", "url": f"http://localhost/{id}", "visible": True})
        self.hub.receive(port, {"t": "offer", **offers})
        return port

    def answer(self, port: FakePort, result: object) -> None:
        self.hub.receive_result(port, port.last("call")["call"], json.dumps(result), False)

    def fail(self, port: FakePort, **error: Any) -> None:
        self.hub.receive(port, {"t": "error", "call": port.last("call")["call"], **error})

    def settle(self) -> None:
        while self.due:
            self.due.pop(0)()

    async def ask(self, method: str, params: dict[str, Any], is_modern: bool) -> None:
        if is_modern:
            self.bench.modern(method, params)
        else:
            self.bench.open(READY)
            self.bench.request(method, params)

    async def reply(self, is_modern: bool) -> Any:
        return await self.bench.reply("m" if is_modern else "c")


@pytest.fixture
async def house() -> House:
    return House()


ERAS = pytest.mark.parametrize("is_modern", [True, False])


# -- lists -------------------------------------------------------------------------------------------------------------


async def test_what_tabs_offer_is_listed_after_the_workers_own(house: House) -> None:
    @resource("app://version", toolbox=house.box)
    def version() -> str:
        return "1"

    @prompt(toolbox=house.box)
    def zoom() -> str:
        return ""

    house.tab("a", resources=[NOTE], templates=[NOTES], prompts=[REVIEW])
    house.bench.open(READY)
    listed = house.bench.request("resources/list", id=1)["result"]["resources"]
    assert [item["uri"] for item in listed] == ["app://version", "notes://today"]
    templates = house.bench.request("resources/templates/list", id=2)["result"]["resourceTemplates"]
    assert templates == [NOTES]
    prompts = house.bench.request("prompts/list", id=3)["result"]["prompts"]
    assert [item["name"] for item in prompts] == ["zoom", "review"]


async def test_each_list_that_changed_is_told_by_its_own_name(house: House) -> None:
    house.bench.open(READY)
    port = house.tab("a", prompts=[REVIEW])
    house.settle()
    assert [method for method, _, _ in house.bench.notes()] == ["notifications/prompts/list_changed"]
    house.hub.receive(port, {"t": "offer", "resources": [NOTE]})
    house.hub.receive(port, {"t": "withdraw", "prompts": ["review"]})
    house.settle()
    told = [method for method, _, _ in house.bench.notes()][1:]
    assert sorted(told) == ["notifications/prompts/list_changed", "notifications/resources/list_changed"]
    assert house.hub.prompts() == []


async def test_pages_are_told_who_offers_what_of_every_kind(house: House) -> None:
    port = house.tab("a", resources=[NOTE], templates=[NOTES], prompts=[REVIEW])
    house.settle()
    told = port.last("catalogue")
    assert told["resources"][0]["uri"] == "notes://today" and told["resources"][0]["owner"] == "a"
    assert told["templates"][0]["uriTemplate"] == NOTES["uriTemplate"]
    assert told["prompts"][0]["name"] == "review" and told["tools"] == []


@pytest.mark.parametrize(
    ("kind", "offered", "fault"),
    [
        ("resources", {"uri": "today"}, "scheme"),
        ("resources", {"name": "today"}, "uri"),
        ("resources", {"uri": "notes://{name}"}, "no {variable}"),
        ("resources", {"uri": "notes://today", "size": "large"}, "size"),
        ("resources", {"uri": "notes://today", "name": 3}, "name"),
        ("templates", {"uriTemplate": "notes://today"}, "at least one {variable}"),
        ("templates", {"uriTemplate": "notes://{a}/{a}"}, "twice"),
        ("templates", {"uriTemplate": "notes://{?q}"}, "written {name}"),
        ("templates", {"uriTemplate": "notes://{a*}/{b*}"}, "only one"),
        ("prompts", {"name": ""}, "name"),
        ("prompts", {"name": "p", "arguments": ["code"]}, "arguments"),
        ("prompts", {"name": "p", "description": ["?"]}, "description"),
        ("prompts", "review", "object"),
    ],
)
async def test_a_bad_offer_is_refused_with_what_is_wrong(house: House, kind: str, offered: Any, fault: str) -> None:
    port = house.tab("a", **{kind: [offered]})
    refused = port.last("refused")
    assert refused["kind"] == kind and fault in refused["message"]
    assert (house.hub.resources(), house.hub.templates(), house.hub.prompts()) == ([], [], [])


# -- reading -----------------------------------------------------------------------------------------------------------


@ERAS
async def test_a_resource_of_a_tab_is_read_there(house: House, is_modern: bool) -> None:
    port = house.tab("a", resources=[NOTE])
    await house.ask("resources/read", {"uri": "notes://today"}, is_modern)
    call = port.last("call")
    assert (call["kind"], call["name"], call["uri"]) == ("resources", "notes://today", "notes://today")
    house.answer(port, {"contents": [{"uri": "notes://today", "text": "Buy milk."}]})
    assert (await house.reply(is_modern))["contents"][0]["text"] == "Buy milk."


async def test_a_template_of_a_tab_gets_the_variables_of_the_uri(house: House) -> None:
    port = house.tab("a", templates=[NOTES])
    await house.ask("resources/read", {"uri": "notes://home/lists/a%20b"}, is_modern=True)
    call = port.last("call")
    assert (call["kind"], call["name"]) == ("templates", NOTES["uriTemplate"])
    assert call["uri"] == "notes://home/lists/a%20b" and call["arguments"] == {"folder": "home", "name": "lists/a b"}


async def test_what_is_spelt_out_in_a_tab_comes_before_a_template_of_the_worker(house: House) -> None:
    @resource("notes://{name}", toolbox=house.box)
    def note(name: str) -> str:
        return f"worker: {name}"

    port = house.tab("a", resources=[NOTE])
    await house.ask("resources/read", {"uri": "notes://today"}, is_modern=True)
    assert port.last("call")["kind"] == "resources"
    result = house.bench.modern("resources/read", {"uri": "notes://other"}, channel="m2")
    assert result["result"]["contents"][0]["text"] == "worker: other"


@ERAS
async def test_a_resource_that_its_tab_does_not_find_is_not_found(house: House, is_modern: bool) -> None:
    port = house.tab("a", templates=[NOTES])
    await house.ask("resources/read", {"uri": "notes://a/b"}, is_modern)
    house.fail(port, name="ResourceNotFound", message="no", code=-32602, data={"uri": "notes://a/b"})
    error = await house.reply(is_modern)
    assert error["code"] == (-32602 if is_modern else -32002) and error["data"] == {"uri": "notes://a/b"}


@pytest.mark.parametrize(
    ("method", "params", "offers"),
    [
        ("resources/read", {"uri": "notes://today"}, {"resources": [NOTE]}),
        ("prompts/get", {"name": "review", "arguments": {"code": "x"}}, {"prompts": [REVIEW]}),
    ],
)
async def test_a_tab_that_leaves_or_fails_is_an_error_of_the_protocol(
    house: House, method: str, params: dict[str, Any], offers: dict[str, Any]
) -> None:
    port = house.tab("a", **offers)
    await house.ask(method, params, is_modern=True)
    house.fail(port, message="out of ink")
    assert await house.reply(is_modern=True) == {"code": -32603, "message": "out of ink"}
    house.bench.modern(method, params, channel="m2")
    house.answer(port, {"content": []})
    assert "is not a valid result" in (await house.bench.reply("m2"))["message"]
    house.bench.modern(method, params, channel="m3")
    house.hub.detach(port)
    gone = await house.bench.reply("m3")
    assert "was closed or left" in gone["message"] and gone["data"]["reason"] == "tab_gone"


async def test_a_cancelled_read_is_cancelled_in_the_tab(house: House) -> None:
    port = house.tab("a", resources=[NOTE])
    house.bench.open(READY)
    house.bench.request("resources/read", {"uri": "notes://today"}, id=4)
    house.bench.note("notifications/cancelled", {"requestId": 4, "reason": "enough"})
    assert port.last("cancel")["reason"] == "enough"


async def test_an_update_of_a_tab_reaches_those_who_subscribed(house: House) -> None:
    port = house.tab("a", resources=[NOTE], templates=[NOTES])
    house.settle()
    house.bench.open(READY)
    for number, uri in enumerate(("notes://today", "notes://home/list"), 1):
        assert house.bench.request("resources/subscribe", {"uri": uri}, id=number)["result"] == {}
    assert house.bench.request("resources/subscribe", {"uri": "notes://nowhere"}, id=3)["error"]["code"] == -32002
    for uri in ("notes://today", "notes://home/list", "notes://home/other"):
        house.hub.receive(port, {"t": "updated", "uri": uri})
    updated = [params["uri"] for method, params, _ in house.bench.notes() if method.endswith("resources/updated")]
    assert updated == ["notes://today", "notes://home/list"]


# -- prompts and completion --------------------------------------------------------------------------------------------


@ERAS
async def test_a_prompt_of_a_tab_is_made_there(house: House, is_modern: bool) -> None:
    port = house.tab("a", prompts=[REVIEW])
    await house.ask("prompts/get", {"name": "review", "arguments": {"code": "x = 1"}}, is_modern)
    call = port.last("call")
    assert (call["kind"], call["name"], call["arguments"]) == ("prompts", "review", {"code": "x = 1"})
    house.answer(port, {"messages": [{"role": "user", "content": {"type": "text", "text": "Review x = 1"}}]})
    assert (await house.reply(is_modern))["messages"][0]["content"]["text"] == "Review x = 1"


async def test_an_unknown_prompt_is_refused_with_its_neighbours(house: House) -> None:
    house.tab("a", prompts=[REVIEW])
    house.bench.open(READY)
    error = house.bench.request("prompts/get", {"name": "revue"})["error"]
    assert error["code"] == -32602 and '"review"' in error["message"]


@ERAS
@pytest.mark.parametrize(
    ("ref", "argument", "of"),
    [
        ({"type": "ref/prompt", "name": "review"}, "tone", "prompts"),
        ({"type": "ref/resource", "uri": NOTES["uriTemplate"]}, "folder", "templates"),
    ],
)
async def test_arguments_are_completed_in_the_tab_and_make_no_noise(
    house: House, is_modern: bool, ref: dict[str, Any], argument: str, of: str
) -> None:
    port = house.tab("a", prompts=[REVIEW], templates=[NOTES])
    asked = {
        "ref": ref,
        "argument": {"name": argument, "value": "s"},
        "context": {"arguments": {"code": "x"}},
    }
    await house.ask("completion/complete", asked, is_modern)
    call = port.last("call")
    assert (call["kind"], call["of"], call["argument"], call["typed"]) == ("completion", of, argument, "s")
    assert call["arguments"] == {"code": "x"}
    house.answer(port, {"completion": {"values": ["strict"], "total": 1, "hasMore": False}})
    assert (await house.reply(is_modern))["completion"]["values"] == ["strict"]
    assert port.of("activity") == []


async def test_an_argument_that_a_tabs_prompt_does_not_have_is_refused(house: House) -> None:
    port = house.tab("a", prompts=[REVIEW])
    house.bench.open(READY)
    asked = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "colour", "value": ""}}
    error = house.bench.request("completion/complete", asked)["error"]
    assert error["code"] == -32602 and "colour" in error["message"] and port.of("call") == []


async def test_reads_and_prompts_are_told_to_the_pages_as_activity(house: House) -> None:
    @resource("app://version", toolbox=house.box)
    def version() -> str:
        return "1"

    port = house.tab("a", prompts=[REVIEW])
    house.bench.open(READY)
    house.bench.request("resources/read", {"uri": "app://version"}, id=1)
    house.bench.request("prompts/get", {"name": "review", "arguments": {}}, id=2)
    house.fail(port, message="no code")
    told = [(said["kind"], said["name"], said["owner"], said["phase"]) for said in port.of("activity")]
    assert told == [
        ("resources", "app://version", "worker", "started"),
        ("resources", "app://version", "worker", "done"),
        ("prompts", "review", "a", "started"),
        ("prompts", "review", "a", "failed"),
    ]
