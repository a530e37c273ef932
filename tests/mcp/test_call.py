"""Questions in the middle of a request: one handler for both eras, protected against changed answers and states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tabserver.handlers.context import Context
from tabserver.handlers.questions import ClientError, Elicit, InputRequired, ListRoots, MissingCapability, Sample
from tabserver.handlers.toolbox import Toolbox, prompt, resource, tool
from tabserver.mcp import questions
from tabserver.mcp.parked_calls import MOST_PARKED, TTL_S, ParkedHandles, StateSeal, digest
from tabserver.wire.events import Received
from tabserver.wire.frames import Caller, Kind
from tests.support.server_harness import MODERN, READY, CoreHarness

ALL: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
CLIENT = replace(MODERN, capabilities=ALL)
SESSION = replace(READY, version="2025-11-25", capabilities=ALL)

ALICE: dict[str, Any] = {"action": "accept", "content": {"name": "Alice"}}
SAID = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Bonjour"}}
ROOTS = {"roots": [{"uri": "file:///a", "name": "A"}]}


@dataclass
class Name:
    name: str


@pytest.fixture
def box() -> Toolbox:
    return Toolbox()


@pytest.fixture
def bench(box: Toolbox) -> CoreHarness:
    return CoreHarness(box)


def text_of(result: Any) -> str:
    return str(result["content"][0]["text"])


def offer_greeting(box: Toolbox, runs: list[str] | None = None) -> None:
    @tool(toolbox=box)
    async def greet(ctx: Context) -> Any:
        if runs is not None:
            runs.append("run")
        answer = await ctx.elicit("What is your name?", Name, key="user_name")
        return f"Hello, {answer.data.name}!" if answer.accepted else answer.action


def call(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def retry(first: Any, answers: dict[str, Any], name: str = "greet", **more: Any) -> dict[str, Any]:
    return call(name, inputResponses=answers, requestState=first["requestState"], **more)


# -- sessions: a request of the server ---------------------------------------------------------------------------------


async def test_a_session_is_asked_by_a_request_that_belongs_to_the_call(box: Toolbox, bench: CoreHarness) -> None:
    offer_greeting(box)
    bench.open(SESSION)
    bench.request("tools/call", call("greet"), id=5)
    (asked,) = await bench.until(Kind.REQ)
    assert bench.sent[-1][4] == 5
    assert asked["method"] == "elicitation/create"
    assert asked["params"] == {
        "message": "What is your name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    }
    bench.answer(asked["id"], {"result": ALICE})
    (done,) = await bench.until(Kind.RES)
    assert (done["id"], text_of(done["result"])) == (5, "Hello, Alice!")


async def test_questions_to_several_sessions_have_ids_of_their_own(box: Toolbox, bench: CoreHarness) -> None:
    offer_greeting(box)
    for channel in ("a", "b"):
        bench.open(SESSION, channel)
        bench.request("tools/call", call("greet"), channel=channel)
    asked = await bench.until(Kind.REQ, 2)
    assert asked[0]["id"] != asked[1]["id"]
    bench.answer(asked[0]["id"], {"result": ALICE}, "b")
    bench.answer(asked[1]["id"], {"result": ALICE}, "b")
    assert text_of(await bench.reply("b")) == "Hello, Alice!"
    assert not [sent for sent in bench.sent if sent[0] == "a" and sent[1] is Kind.RES]


async def test_an_error_of_the_client_reaches_the_handler(box: Toolbox, bench: CoreHarness) -> None:
    seen: list[int] = []

    @tool(toolbox=box)
    async def greet(ctx: Context) -> Any:
        try:
            await ctx.sample("Hi")
        except ClientError as error:
            seen.append(error.code)
            raise

    bench.open(SESSION)
    bench.request("tools/call", call("greet"))
    (asked,) = await bench.until(Kind.REQ)
    bench.answer(asked["id"], {"error": {"code": -1, "message": "User rejected sampling request"}})
    result = await bench.reply("c")
    assert result["isError"] and "User rejected sampling request (-1)" in text_of(result)
    assert seen == [-1]


@pytest.mark.parametrize("text", ["{", "[]", '{"jsonrpc":"2.0","id":7,"result":{}}', '{"jsonrpc":"2.0","id":"x"}'])
async def test_an_answer_to_nothing_is_dropped(box: Toolbox, bench: CoreHarness, text: str) -> None:
    offer_greeting(box)
    bench.open(SESSION)
    bench.server.receive(Received("c", Kind.RES, None, None, text, None))
    assert bench.sent == []


async def test_a_call_that_is_cancelled_withdraws_its_question(box: Toolbox, bench: CoreHarness) -> None:
    offer_greeting(box)
    bench.open(SESSION)
    bench.request("tools/call", call("greet"), id=5)
    (asked,) = await bench.until(Kind.REQ)
    bench.note("notifications/cancelled", {"requestId": 5})
    (error,) = await bench.until(Kind.RES)
    assert error["error"]["code"] == -32800
    (note,) = await bench.until(Kind.NOTE)
    assert (note["method"], note["params"]["requestId"]) == ("notifications/cancelled", asked["id"])


async def test_the_wait_for_a_session_that_does_not_answer_has_a_deadline(
    box: Toolbox, bench: CoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "ASK_S", 0.0)
    offer_greeting(box)
    bench.open(SESSION)
    bench.request("tools/call", call("greet"))
    result = await bench.reply("c")
    assert result["isError"] and "did not answer in time" in text_of(result)
    assert bench.notes()[0][0] == "notifications/cancelled"


async def test_an_address_to_open_has_an_id_in_a_session_and_none_for_a_modern_client(
    box: Toolbox, bench: CoreHarness
) -> None:
    @tool(toolbox=box)
    async def sign_in(ctx: Context) -> Any:
        answer = await ctx.elicit_url("Please sign in", "https://example.com/in")
        return answer.action

    bench.open(SESSION)
    bench.request("tools/call", call("sign_in"))
    (asked,) = await bench.until(Kind.REQ)
    assert asked["params"].pop("elicitationId")
    plain = {"mode": "url", "message": "Please sign in", "url": "https://example.com/in"}
    assert asked["params"] == plain
    bench.answer(asked["id"], {"result": {"action": "accept"}})
    assert text_of(await bench.reply("c")) == "accept"
    first = await bench.ask("m1", "tools/call", call("sign_in"), CLIENT)
    assert first["inputRequests"] == {"elicit-1": {"method": "elicitation/create", "params": plain}}


# -- modern: the request is answered with the question -----------------------------------------------------------------


async def test_a_modern_client_gets_the_question_as_the_answer_and_the_handler_goes_on_with_the_retry(
    box: Toolbox, bench: CoreHarness
) -> None:
    runs: list[str] = []
    offer_greeting(box, runs)
    first = await bench.ask("m1", "tools/call", call("greet"), CLIENT)
    assert first["resultType"] == "input_required" and isinstance(first["requestState"], str)
    assert first["inputRequests"]["user_name"]["method"] == "elicitation/create"
    second = await bench.ask("m2", "tools/call", retry(first, {"user_name": ALICE}), CLIENT)
    assert (second["resultType"], text_of(second)) == ("complete", "Hello, Alice!")
    assert runs == ["run"]
    assert not [sent for sent in bench.sent if sent[1] is Kind.REQ]


async def test_what_is_asked_together_is_one_round_and_what_is_missing_is_asked_again(
    box: Toolbox, bench: CoreHarness
) -> None:
    @tool(toolbox=box)
    async def all_three(ctx: Context) -> Any:
        name, said, roots = await asyncio.gather(
            ctx.elicit("Name?", Name, key="name"), ctx.sample("Greet", key="greeting"), ctx.roots()
        )
        return f"{said.text} {name.data.name} {roots[0].uri}"

    first = await bench.ask("m1", "tools/call", call("all_three"), CLIENT)
    assert list(first["inputRequests"]) == ["name", "greeting", "roots-1"]
    answers = {"name": ALICE, "roots-1": ROOTS, "nobody_asked": {}}
    second = await bench.ask("m2", "tools/call", retry(first, answers, "all_three"), CLIENT)
    assert second["resultType"] == "input_required" and list(second["inputRequests"]) == ["greeting"]
    assert second["requestState"] != first["requestState"]
    third = await bench.ask("m3", "tools/call", retry(second, {"greeting": SAID}, "all_three"), CLIENT)
    assert text_of(third) == "Bonjour Alice file:///a"


async def test_one_question_after_the_other_is_a_round_each(box: Toolbox, bench: CoreHarness) -> None:
    @tool(toolbox=box)
    async def two_steps(ctx: Context) -> Any:
        names = [(await ctx.elicit("Name?", Name)).data.name for _ in range(2)]
        return " and ".join(names)

    first = await bench.ask("m1", "tools/call", call("two_steps"), CLIENT)
    second = await bench.ask("m2", "tools/call", retry(first, {"elicit-1": ALICE}, "two_steps"), CLIENT)
    assert list(second["inputRequests"]) == ["elicit-2"]
    third = await bench.ask("m3", "tools/call", retry(second, {"elicit-2": ALICE}, "two_steps"), CLIENT)
    assert text_of(third) == "Alice and Alice"


async def test_prompts_and_resources_may_ask_too(box: Toolbox, bench: CoreHarness) -> None:
    @prompt(toolbox=box)
    async def letter(ctx: Context) -> str:
        return f"Write to {(await ctx.elicit('To whom?', Name, key='who')).data.name}."

    @resource("notes://mine", toolbox=box)
    async def mine(ctx: Context) -> str:
        return f"Notes of {(await ctx.elicit('Who are you?', Name, key='who')).data.name}"

    first = await bench.ask("p1", "prompts/get", {"name": "letter"}, CLIENT)
    second = await bench.ask("p2", "prompts/get", retry(first, {"who": ALICE}, "letter"), CLIENT)
    assert second["messages"][0]["content"]["text"] == "Write to Alice."
    params: dict[str, Any] = {"uri": "notes://mine"}
    first = await bench.ask("r1", "resources/read", params, CLIENT)
    assert "ttlMs" not in first
    params |= {"inputResponses": {"who": ALICE}, "requestState": first["requestState"]}
    second = await bench.ask("r2", "resources/read", params, CLIENT)
    assert (second["contents"][0]["text"], second["ttlMs"]) == ("Notes of Alice", 0)


async def test_progress_and_log_go_to_the_request_that_waits_now(box: Toolbox, bench: CoreHarness) -> None:
    @tool(toolbox=box)
    async def greet(ctx: Context) -> Any:
        ctx.progress(1)
        await ctx.elicit("Name?", Name, key="user_name")
        ctx.progress(2)
        return "done"

    first = await bench.ask("m1", "tools/call", call("greet", _meta={"progressToken": "a"}), CLIENT)
    await bench.ask("m2", "tools/call", retry(first, {"user_name": ALICE}, _meta={"progressToken": "b"}), CLIENT)
    notes = [(channel, message["params"]) for channel, kind, message, *_ in bench.sent if kind is Kind.NOTE]
    assert notes == [("m1", {"progressToken": "a", "progress": 1}), ("m2", {"progressToken": "b", "progress": 2})]


async def test_a_client_that_answers_before_it_is_asked_needs_no_second_round(box: Toolbox, bench: CoreHarness) -> None:
    offer_greeting(box)
    result = await bench.ask("m1", "tools/call", call("greet", inputResponses={"user_name": ALICE}), CLIENT)
    assert text_of(result) == "Hello, Alice!"
    result = await bench.ask("m2", "tools/call", call("greet", inputResponses={"wrong": ALICE}), CLIENT)
    assert result["resultType"] == "input_required"


@pytest.mark.parametrize("answers", [None, 3, [], {"user_name": 12345}, {"user_name": None}])
async def test_answers_that_are_none_are_refused(box: Toolbox, bench: CoreHarness, answers: Any) -> None:
    offer_greeting(box)
    error = await bench.ask("m1", "tools/call", call("greet", inputResponses=answers), CLIENT)
    assert error["code"] == -32602 and error["message"].startswith("params.inputResponses")


async def test_an_answer_that_does_not_fit_the_form_names_the_field(box: Toolbox, bench: CoreHarness) -> None:
    offer_greeting(box)
    first = await bench.ask("m1", "tools/call", call("greet"), CLIENT)
    wrong = {"action": "accept", "content": {"name": 3}}
    result = await bench.ask("m2", "tools/call", retry(first, {"user_name": wrong}), CLIENT)
    assert result["isError"] and "content.name: expected string, got number 3" in text_of(result)


async def test_a_user_who_declines_is_an_answer_too(box: Toolbox, bench: CoreHarness) -> None:
    offer_greeting(box)
    first = await bench.ask("m1", "tools/call", call("greet"), CLIENT)
    result = await bench.ask("m2", "tools/call", retry(first, {"user_name": {"action": "decline"}}), CLIENT)
    assert text_of(result) == "decline"


# -- the state that a client carries -----------------------------------------------------------------------------------


def flip(state: str) -> str:
    return ("B" if state[0] == "A" else "A") + state[1:]


@pytest.mark.parametrize(
    "forge",
    [
        lambda state: flip(state),
        lambda state: state[:-1] + ("A" if state[-1] != "A" else "B"),
        lambda state: "",
        lambda state: "é.é",
        lambda state: state.partition(".")[0],
        lambda state: 7,
        lambda state: {},
    ],
)
async def test_a_state_that_was_touched_is_refused_and_the_real_one_still_works(
    box: Toolbox, bench: CoreHarness, forge: Callable[[str], Any]
) -> None:
    offer_greeting(box)
    first = await bench.ask("m1", "tools/call", call("greet"), CLIENT)
    forged = {"requestState": forge(first["requestState"])}
    error = await bench.ask("m2", "tools/call", retry(first, {"user_name": ALICE}) | forged, CLIENT)
    assert error["code"] == -32602 and "requestState" in error["message"]
    result = await bench.ask("m3", "tools/call", retry(first, {"user_name": ALICE}), CLIENT)
    assert text_of(result) == "Hello, Alice!"


@pytest.mark.parametrize("is_stateless", [False, True])
async def test_a_state_is_good_for_its_principal_and_its_request_only(
    box: Toolbox, bench: CoreHarness, is_stateless: bool
) -> None:
    @tool(toolbox=box)
    async def greet(ctx: Context, n: int = 0) -> Any:
        if not is_stateless:
            return (await ctx.elicit("Name?", Name, key="user_name")).data.name
        answer = ctx.answer("user_name", Elicit("Name?", Name))
        return answer.data.name if answer else InputRequired({"user_name": Elicit("Name?", Name)}, state=1)

    first = await bench.ask("m1", "tools/call", call("greet", arguments={"n": 1}), CLIENT)
    good = retry(first, {"user_name": ALICE}, arguments={"n": 1})
    other = replace(CLIENT, principal="token:other")
    for channel, params, caller in (
        ("a", good, other),
        ("b", good | {"arguments": {"n": 2}}, CLIENT),
        ("c", good | {"name": "else"}, CLIENT),
    ):
        assert (await bench.ask(channel, "tools/call", params, caller))["code"] == -32602
    bench.now += TTL_S - 1
    assert text_of(await bench.ask("d", "tools/call", good, CLIENT)) == "Alice"


async def test_a_parked_call_is_resumed_once(box: Toolbox, bench: CoreHarness) -> None:
    offer_greeting(box)
    first = await bench.ask("m1", "tools/call", call("greet"), CLIENT)
    good = retry(first, {"user_name": ALICE})
    await bench.ask("m2", "tools/call", good, CLIENT)
    assert (await bench.ask("m3", "tools/call", good, CLIENT))["code"] == -32602


async def test_a_state_expires(box: Toolbox, bench: CoreHarness) -> None:
    offer_greeting(box)
    first = await bench.ask("m1", "tools/call", call("greet"), CLIENT)
    bench.now += TTL_S
    assert (await bench.ask("m2", "tools/call", retry(first, {"user_name": ALICE}), CLIENT))["code"] == -32602


async def test_a_parked_call_without_a_retry_is_stopped(
    box: Toolbox, bench: CoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "TTL_S", 0.0)
    stopped = asyncio.Event()

    @tool(toolbox=box)
    async def greet(ctx: Context) -> Any:
        try:
            await ctx.elicit("Name?", Name)
        except asyncio.CancelledError:
            stopped.set()
            raise

    await bench.ask("m1", "tools/call", call("greet"), CLIENT)
    async with asyncio.timeout(60):
        await stopped.wait()


async def test_one_principal_can_not_park_without_end(box: Toolbox, bench: CoreHarness) -> None:
    offer_greeting(box)
    for n in range(MOST_PARKED):
        first = await bench.ask(f"m{n}", "tools/call", call("greet"), CLIENT)
        assert first["resultType"] == "input_required"
    error = await bench.ask("last", "tools/call", call("greet"), CLIENT)
    assert (error["code"], error["data"]["reason"]) == (-31013, "busy")
    other = await bench.ask("other", "tools/call", call("greet"), replace(CLIENT, principal="token:other"))
    assert other["resultType"] == "input_required"
    done = await bench.ask("done", "tools/call", retry(first, {"user_name": ALICE}), CLIENT)
    assert text_of(done) == "Hello, Alice!"
    assert (await bench.ask("again", "tools/call", call("greet"), CLIENT))["resultType"] == "input_required"


async def test_a_caller_that_leaves_the_retry_stops_the_handler(box: Toolbox, bench: CoreHarness) -> None:
    waiting, stopped = asyncio.Event(), asyncio.Event()

    @tool(toolbox=box)
    async def greet(ctx: Context) -> Any:
        await ctx.elicit("Name?", Name, key="user_name")
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    first = await bench.ask("m1", "tools/call", call("greet"), CLIENT)
    bench.modern("tools/call", retry(first, {"user_name": ALICE}), channel="m2", caller=CLIENT)
    async with asyncio.timeout(60):
        await waiting.wait()
        bench.close("m2")
        await stopped.wait()


async def test_a_handler_that_ends_while_it_is_parked_gives_its_result_to_the_retry(
    box: Toolbox, bench: CoreHarness
) -> None:
    give_up = asyncio.Event()

    @tool(toolbox=box)
    async def greet(ctx: Context) -> Any:
        question = asyncio.ensure_future(ctx.elicit("Name?", Name, key="user_name"))
        await give_up.wait()
        question.cancel()
        return "did without"

    first = await bench.ask("m1", "tools/call", call("greet"), CLIENT)
    give_up.set()
    result = await bench.ask("m2", "tools/call", retry(first, {"user_name": ALICE}), CLIENT)
    assert text_of(result) == "did without"


def test_a_seal_opens_only_for_its_purpose_and_a_digest_ignores_what_a_round_adds() -> None:
    seal, mark = StateSeal(), digest("tools/call", {"name": "x", "_meta": {"a": 1}})
    assert mark == digest("tools/call", {"name": "x", "requestState": "s", "inputResponses": {}})
    assert mark != digest("prompts/get", {"name": "x"})
    state = seal.close({"s": "é"}, "me", mark, until=10.0)
    opened = seal.open(state, "me", mark, now=9.0)
    assert opened is not None and (opened["s"], opened["x"]) == ("é", 10.0)
    assert seal.close({"s": "é"}, "me", mark, until=10.0) != state
    assert seal.open(state, "me", mark, now=10.0) is None
    assert StateSeal().open(state, "me", mark, now=0.0) is None


def test_a_parked_call_is_taken_once_and_frees_its_place() -> None:
    parking: ParkedHandles[str] = ParkedHandles(most=1)
    handle = parking.park("call", "me")
    assert not parking.has_room("me") and parking.has_room("you")
    assert (parking.take("nothing"), parking.take(handle), parking.take(handle)) == (None, "call", None)
    assert parking.has_room("me") and len(parking) == 0


# -- capabilities that a client lacks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "ask", "needed"),
    [
        ({}, lambda ctx: ctx.elicit("?", Name), {"elicitation": {"form": {}}}),
        ({"elicitation": {"url": {}}}, lambda ctx: ctx.elicit("?", Name), {"elicitation": {"form": {}}}),
        ({"elicitation": {}}, lambda ctx: ctx.elicit_url("?", "https://x"), {"elicitation": {"url": {}}}),
        ({"elicitation": {}}, lambda ctx: ctx.sample("?"), {"sampling": {}}),
        ({"sampling": {}}, lambda ctx: ctx.sample("?", tools=[]), {"sampling": {"tools": {}}}),
        ({"sampling": {}}, lambda ctx: ctx.roots(), {"roots": {}}),
    ],
)
async def test_only_what_the_client_declared_is_asked(
    box: Toolbox,
    bench: CoreHarness,
    capabilities: dict[str, Any],
    ask: Callable[[Context], Any],
    needed: dict[str, Any],
) -> None:
    @tool(toolbox=box)
    async def curious(ctx: Context) -> Any:
        return await ask(ctx)

    @prompt(toolbox=box)
    async def curious_prompt(ctx: Context) -> str:
        return str(await ask(ctx))

    modern = await bench.ask("m", "tools/call", call("curious"), replace(MODERN, capabilities=capabilities))
    assert (modern["code"], modern["data"]) == (-32021, {"requiredCapabilities": needed, "help": "TR150"})
    bench.open(replace(READY, capabilities=capabilities))
    bench.request("tools/call", call("curious"), id=1)
    (legacy,) = await bench.until(Kind.RES, channel="c")
    assert legacy["result"]["isError"] and "This client does not support" in text_of(legacy["result"])
    bench.request("prompts/get", {"name": "curious_prompt"}, id=2)
    error = (await bench.until(Kind.RES, 2, channel="c"))[1]["error"]
    assert error["code"] == -32600 and "does not support" in error["message"]


async def test_a_question_after_the_end_of_a_call_is_refused(box: Toolbox, bench: CoreHarness) -> None:
    contexts: list[Context] = []

    @tool(toolbox=box)
    def leave(ctx: Context) -> Any:
        contexts.append(ctx)
        return "left"

    await bench.ask("m", "tools/call", call("leave"), CLIENT)
    with pytest.raises(RuntimeError, match="the request is over"):
        await contexts[0].roots()


async def test_a_handler_may_do_without(box: Toolbox, bench: CoreHarness) -> None:
    @tool(toolbox=box)
    async def modest(ctx: Context) -> Any:
        try:
            ctx.require("sampling")
        except MissingCapability:
            return f"{ctx.can('sampling')} {ctx.can(ListRoots())}"

    result = await bench.ask("m", "tools/call", call("modest"), replace(MODERN, capabilities={"roots": {}}))
    assert text_of(result) == "False True"


# -- handlers that return their questions ------------------------------------------------------------------------------


def offer_counting(box: Toolbox, rounds: int) -> None:
    @tool(toolbox=box)
    def count(ctx: Context) -> Any:
        reached = ctx.request_state or 0
        if reached < rounds:
            return InputRequired({"n": Elicit(f"Round {reached}", Name)}, state=reached + 1)
        return f"{reached} {ctx.input_responses['n']['content']['name']} {ctx.era}"


async def test_a_returned_question_enters_the_handler_again_with_its_state(box: Toolbox, bench: CoreHarness) -> None:
    offer_counting(box, 2)
    first = await bench.ask("m1", "tools/call", call("count"), CLIENT)
    second = await bench.ask("m2", "tools/call", retry(first, {"n": ALICE}, "count"), CLIENT)
    assert second["inputRequests"]["n"]["params"]["message"] == "Round 1"
    third = await bench.ask("m3", "tools/call", retry(second, {"n": ALICE}, "count"), CLIENT)
    assert text_of(third) == "2 Alice modern"


async def test_a_session_gets_returned_questions_as_requests(box: Toolbox, bench: CoreHarness) -> None:
    offer_counting(box, 2)
    bench.open(SESSION)
    bench.request("tools/call", call("count"))
    for n in range(2):
        asked = (await bench.until(Kind.REQ, n + 1))[n]
        assert asked["params"]["message"] == f"Round {n}"
        bench.answer(asked["id"], {"result": ALICE})
    assert text_of(await bench.reply("c")) == "2 Alice legacy"


async def test_a_session_is_not_asked_without_end(box: Toolbox, bench: CoreHarness) -> None:
    offer_counting(box, 1000)
    bench.open(SESSION)
    bench.request("tools/call", call("count"))
    for n in range(questions.MOST_ROUNDS):
        bench.answer((await bench.until(Kind.REQ, n + 1))[n]["id"], {"result": ALICE})
    error = await bench.reply("c")
    assert error["code"] == -32603 and "after 8 rounds" in error["message"]


async def test_a_client_error_ends_a_returned_question(box: Toolbox, bench: CoreHarness) -> None:
    @tool(toolbox=box)
    def both(ctx: Context) -> Any:
        return InputRequired({"a": Elicit("?", Name), "b": Sample("?")})

    bench.open(SESSION)
    bench.request("tools/call", call("both"))
    asked = await bench.until(Kind.REQ, 2)
    bench.answer(asked[1]["id"], {"error": {"code": -1, "message": "no"}})
    result = await bench.reply("c")
    assert result["isError"] and "no (-1)" in text_of(result)
    # The other question is no longer needed.
    (note,) = await bench.until(Kind.NOTE)
    assert note["params"]["requestId"] == asked[0]["id"]


@pytest.mark.parametrize("caller", [MODERN, READY])
async def test_a_returned_question_that_the_client_can_not_take_is_a_clear_error(
    box: Toolbox, bench: CoreHarness, caller: Caller
) -> None:
    offer_counting(box, 1)
    if caller is MODERN:
        assert (await bench.ask("m", "tools/call", call("count")))["code"] == -32021
    else:
        bench.open(caller)
        assert bench.request("tools/call", call("count"))["result"]["isError"]


async def test_a_state_alone_is_a_reason_to_come_again(box: Toolbox, bench: CoreHarness) -> None:
    @tool(toolbox=box)
    def later(ctx: Context) -> Any:
        return "now" if ctx.request_state else InputRequired(state={"since": 1})

    first = await bench.ask("m1", "tools/call", call("later"))
    assert "inputRequests" not in first
    second = await bench.ask("m2", "tools/call", call("later", requestState=first["requestState"]))
    assert text_of(second) == "now"
