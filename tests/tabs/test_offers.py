"""Resources, prompts and completions of tabs: offered over a port, used by clients of both eras, answered by the tab.

Every message of the core is checked against the official models.
"""

from __future__ import annotations

from typing import Any

import pytest

from tabserver.handlers.toolbox import prompt, resource
from tabserver.tabs.offers import check_tool
from tests.support.fake_port import FakePort
from tests.support.hub_harness import CoreRig
from tests.support.server_harness import READY

NOTE = {"uri": "notes://today", "name": "today", "mimeType": "text/plain"}
NOTES = {"uriTemplate": "notes://{folder}/{name*}", "name": "notes"}
REVIEW = {"name": "review", "arguments": [{"name": "code", "required": True}, {"name": "tone"}]}


class Rig(CoreRig):
    """A core with tabs whose messages the test sends."""

    def tab(self, id: str, **offers: Any) -> FakePort:
        port = FakePort()
        self.hub.attach(port, {"id": id, "title": f"Tab {id}", "url": f"http://localhost/{id}", "visible": True})
        self.hub.receive(port, {"t": "offer", **offers})
        return port

    def fail(self, port: FakePort, **error: Any) -> None:
        self.hub.receive(port, {"t": "error", "call": port.last("call")["call"], **error})

    async def ask(self, method: str, params: dict[str, Any], is_modern: bool) -> None:
        if is_modern:
            self.bench.modern(method, params)
        else:
            self.bench.open(READY)
            self.bench.request(method, params)

    async def reply(self, is_modern: bool) -> Any:
        return await self.bench.reply("m" if is_modern else "c")


@pytest.fixture
async def rig() -> Rig:
    return Rig()


ERAS = pytest.mark.parametrize("is_modern", [True, False])


# -- lists -------------------------------------------------------------------------------------------------------------


async def test_what_tabs_offer_is_listed_after_the_workers_own(rig: Rig) -> None:
    @resource("app://version", toolbox=rig.box)
    def version() -> str:
        return "1"

    @prompt(toolbox=rig.box)
    def zoom() -> str:
        return ""

    rig.tab("a", resources=[NOTE], templates=[NOTES], prompts=[REVIEW])
    rig.bench.open(READY)
    listed = rig.bench.request("resources/list", id=1)["result"]["resources"]
    assert [item["uri"] for item in listed] == ["app://version", "notes://today"]
    templates = rig.bench.request("resources/templates/list", id=2)["result"]["resourceTemplates"]
    assert templates == [NOTES]
    prompts = rig.bench.request("prompts/list", id=3)["result"]["prompts"]
    assert [item["name"] for item in prompts] == ["zoom", "review"]


async def test_each_list_that_changed_has_its_own_notification(rig: Rig) -> None:
    rig.bench.open(READY)
    port = rig.tab("a", prompts=[REVIEW])
    rig.settle()
    assert [method for method, _, _ in rig.bench.notes()] == ["notifications/prompts/list_changed"]
    rig.hub.receive(port, {"t": "offer", "resources": [NOTE]})
    rig.hub.receive(port, {"t": "withdraw", "prompts": ["review"]})
    rig.settle()
    seen = [method for method, _, _ in rig.bench.notes()][1:]
    assert sorted(seen) == ["notifications/prompts/list_changed", "notifications/resources/list_changed"]
    assert rig.hub.prompts() == []


async def test_pages_receive_the_owner_of_every_item_of_every_kind(rig: Rig) -> None:
    port = rig.tab("a", resources=[NOTE], templates=[NOTES], prompts=[REVIEW])
    rig.settle()
    seen = port.last("catalogue")
    assert seen["resources"][0]["uri"] == "notes://today" and seen["resources"][0]["owner"] == "a"
    assert seen["templates"][0]["uriTemplate"] == NOTES["uriTemplate"]
    assert seen["prompts"][0]["name"] == "review" and seen["tools"] == []


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
async def test_a_bad_offer_is_refused_with_what_is_wrong(rig: Rig, kind: str, offered: Any, fault: str) -> None:
    port = rig.tab("a", **{kind: [offered]})
    refused = port.last("refused")
    assert refused["kind"] == kind and fault in refused["message"]
    assert (rig.hub.resources(), rig.hub.templates(), rig.hub.prompts()) == ([], [], [])


# -- reading -----------------------------------------------------------------------------------------------------------


@ERAS
async def test_a_resource_of_a_tab_is_read_there(rig: Rig, is_modern: bool) -> None:
    port = rig.tab("a", resources=[NOTE])
    await rig.ask("resources/read", {"uri": "notes://today"}, is_modern)
    call = port.last("call")
    assert (call["kind"], call["name"], call["uri"]) == ("resources", "notes://today", "notes://today")
    rig.answer(port, {"contents": [{"uri": "notes://today", "text": "Buy milk."}]})
    assert (await rig.reply(is_modern))["contents"][0]["text"] == "Buy milk."


async def test_a_template_of_a_tab_gets_the_variables_of_the_uri(rig: Rig) -> None:
    port = rig.tab("a", templates=[NOTES])
    await rig.ask("resources/read", {"uri": "notes://home/lists/a%20b"}, is_modern=True)
    call = port.last("call")
    assert (call["kind"], call["name"]) == ("templates", NOTES["uriTemplate"])
    assert call["uri"] == "notes://home/lists/a%20b" and call["arguments"] == {"folder": "home", "name": "lists/a b"}


async def test_a_literal_uri_of_a_tab_comes_before_a_template_of_the_worker(rig: Rig) -> None:
    @resource("notes://{name}", toolbox=rig.box)
    def note(name: str) -> str:
        return f"worker: {name}"

    port = rig.tab("a", resources=[NOTE])
    await rig.ask("resources/read", {"uri": "notes://today"}, is_modern=True)
    assert port.last("call")["kind"] == "resources"
    result = rig.bench.modern("resources/read", {"uri": "notes://other"}, channel="m2")
    assert result["result"]["contents"][0]["text"] == "worker: other"


@ERAS
async def test_a_resource_that_its_tab_does_not_find_is_not_found(rig: Rig, is_modern: bool) -> None:
    port = rig.tab("a", templates=[NOTES])
    await rig.ask("resources/read", {"uri": "notes://a/b"}, is_modern)
    rig.fail(port, name="ResourceNotFound", message="no", code=-32602, data={"uri": "notes://a/b"})
    error = await rig.reply(is_modern)
    assert error["code"] == (-32602 if is_modern else -32002) and error["data"]["uri"] == "notes://a/b"


@pytest.mark.parametrize(
    ("method", "params", "offers"),
    [
        ("resources/read", {"uri": "notes://today"}, {"resources": [NOTE]}),
        ("prompts/get", {"name": "review", "arguments": {"code": "x"}}, {"prompts": [REVIEW]}),
    ],
)
async def test_a_tab_that_leaves_or_fails_is_an_error_of_the_protocol(
    rig: Rig, method: str, params: dict[str, Any], offers: dict[str, Any]
) -> None:
    port = rig.tab("a", **offers)
    await rig.ask(method, params, is_modern=True)
    rig.fail(port, message="out of ink")
    assert await rig.reply(is_modern=True) == {"code": -32603, "message": "out of ink", "data": {"help": "TR113"}}
    rig.bench.modern(method, params, channel="m2")
    rig.answer(port, {"content": []})
    assert "is not a valid result" in (await rig.bench.reply("m2"))["message"]
    rig.bench.modern(method, params, channel="m3")
    rig.hub.detach(port)
    gone = await rig.bench.reply("m3")
    assert "was closed or left" in gone["message"] and gone["data"]["reason"] == "tab_gone"


async def test_a_cancelled_read_is_cancelled_in_the_tab(rig: Rig) -> None:
    port = rig.tab("a", resources=[NOTE])
    rig.bench.open(READY)
    rig.bench.request("resources/read", {"uri": "notes://today"}, id=4)
    rig.bench.note("notifications/cancelled", {"requestId": 4, "reason": "enough"})
    assert port.last("cancel")["reason"] == "enough"


async def test_an_update_of_a_tab_reaches_those_who_subscribed(rig: Rig) -> None:
    port = rig.tab("a", resources=[NOTE], templates=[NOTES])
    rig.settle()
    rig.bench.open(READY)
    for number, uri in enumerate(("notes://today", "notes://home/list"), 1):
        assert rig.bench.request("resources/subscribe", {"uri": uri}, id=number)["result"] == {}
    assert rig.bench.request("resources/subscribe", {"uri": "notes://nowhere"}, id=3)["error"]["code"] == -32002
    for uri in ("notes://today", "notes://home/list", "notes://home/other"):
        rig.hub.receive(port, {"t": "updated", "uri": uri})
    updated = [params["uri"] for method, params, _ in rig.bench.notes() if method.endswith("resources/updated")]
    assert updated == ["notes://today", "notes://home/list"]


# -- prompts and completion --------------------------------------------------------------------------------------------


@ERAS
async def test_a_prompt_of_a_tab_is_made_there(rig: Rig, is_modern: bool) -> None:
    port = rig.tab("a", prompts=[REVIEW])
    await rig.ask("prompts/get", {"name": "review", "arguments": {"code": "x = 1"}}, is_modern)
    call = port.last("call")
    assert (call["kind"], call["name"], call["arguments"]) == ("prompts", "review", {"code": "x = 1"})
    rig.answer(port, {"messages": [{"role": "user", "content": {"type": "text", "text": "Review x = 1"}}]})
    assert (await rig.reply(is_modern))["messages"][0]["content"]["text"] == "Review x = 1"


async def test_an_unknown_prompt_is_refused_with_similar_names(rig: Rig) -> None:
    rig.tab("a", prompts=[REVIEW])
    rig.bench.open(READY)
    error = rig.bench.request("prompts/get", {"name": "revue"})["error"]
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
    rig: Rig, is_modern: bool, ref: dict[str, Any], argument: str, of: str
) -> None:
    port = rig.tab("a", prompts=[REVIEW], templates=[NOTES])
    asked = {
        "ref": ref,
        "argument": {"name": argument, "value": "s"},
        "context": {"arguments": {"code": "x"}},
    }
    await rig.ask("completion/complete", asked, is_modern)
    call = port.last("call")
    assert (call["kind"], call["of"], call["argument"], call["typed"]) == ("completion", of, argument, "s")
    assert call["arguments"] == {"code": "x"}
    rig.answer(port, {"completion": {"values": ["strict"], "total": 1, "hasMore": False}})
    assert (await rig.reply(is_modern))["completion"]["values"] == ["strict"]
    assert port.of("activity") == []


async def test_an_argument_that_a_tabs_prompt_does_not_have_is_refused(rig: Rig) -> None:
    port = rig.tab("a", prompts=[REVIEW])
    rig.bench.open(READY)
    asked = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "colour", "value": ""}}
    error = rig.bench.request("completion/complete", asked)["error"]
    assert error["code"] == -32602 and "colour" in error["message"] and port.of("call") == []


async def test_reads_and_prompts_are_sent_to_the_pages_as_activity(rig: Rig) -> None:
    @resource("app://version", toolbox=rig.box)
    def version() -> str:
        return "1"

    port = rig.tab("a", prompts=[REVIEW])
    rig.bench.open(READY)
    rig.bench.request("resources/read", {"uri": "app://version"}, id=1)
    rig.bench.request("prompts/get", {"name": "review", "arguments": {}}, id=2)
    rig.fail(port, message="no code")
    seen = [(message["kind"], message["name"], message["owner"], message["phase"]) for message in port.of("activity")]
    assert seen == [
        ("resources", "app://version", "worker", "started"),
        ("resources", "app://version", "worker", "done"),
        ("prompts", "review", "a", "started"),
        ("prompts", "review", "a", "failed"),
    ]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"required": "a"}, '"required" of its inputSchema must be a list of names'),
        ({"required": [1]}, '"required" of its inputSchema must be a list of names'),
        ({"properties": ["a"]}, '"properties" of its inputSchema must be an object'),
        ({"properties": {"a": "string"}}, '"properties" of its inputSchema must be an object'),
    ],
)
def test_a_schema_for_which_clients_refuse_the_whole_list_is_refused_itself(schema: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        check_tool({"name": "t", "inputSchema": {"type": "object", **schema}})
    with pytest.raises(ValueError, match=told.replace("inputSchema", "outputSchema")):
        check_tool({"name": "t", "outputSchema": {"type": "object", **schema}})
