"""Questions of one worker that are answered to the next: the page was reloaded, or its browser restarted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabserver import Context, Elicit, InputRequired
from tabserver.handlers.toolbox import Toolbox, prompt, tool
from tabserver.mcp.parked_calls import MOST_USED_STATES, TTL_S, StateSeal, UsedStates
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay
from tests.support.server_harness import MODERN, CoreHarness

FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ALICE: dict[str, Any] = {"action": "accept", "content": {"name": "Alice"}}
ABLE: dict[str, Any] = {"elicitation": {}}
CLIENT = replace(MODERN, capabilities=ABLE)


def offers(runs: list[str]) -> Toolbox:
    box = Toolbox()

    async def named(ctx: Context, what: str) -> str:
        runs.append(what)
        return f"{what} {(await ctx.elicit('Name?', FORM, key='who')).content}"

    @tool(toolbox=box)
    async def write(ctx: Context) -> str:
        return await named(ctx, "wrote")

    @tool(toolbox=box, read_only=True)
    async def look(ctx: Context) -> str:
        return await named(ctx, "looked")

    @tool(toolbox=box, idempotent=True)
    async def put(ctx: Context) -> str:
        """Its question has no key: it is asked again."""
        runs.append("put")
        return f"put {(await ctx.elicit('Name?', FORM)).content}"

    @prompt(toolbox=box)
    async def letter(ctx: Context) -> str:
        return await named(ctx, "letter")

    @tool(toolbox=box)
    def stateless(ctx: Context) -> Any:
        runs.append("stateless")
        if ctx.request_state is None:
            return InputRequired({"who": Elicit("Name?", FORM)}, state={"step": 1})
        return f"{ctx.request_state} {ctx.input_responses['who']['content']}"

    return box


def worker_of(box: Toolbox, key: str = "of the relay") -> CoreHarness:
    bench = CoreHarness(box)
    bench.server.use_key(key)
    return bench


def retry(first: dict[str, Any], name: str) -> dict[str, Any]:
    key = next(iter(first["inputRequests"]))
    return {"name": name, "inputResponses": {key: ALICE}, "requestState": first["requestState"]}


@pytest.mark.requirement("modern-input-required")
async def test_a_client_gets_an_error_for_a_call_that_ended_with_its_worker() -> None:
    runs: list[str] = []
    first = await worker_of(offers(runs)).ask("m1", "tools/call", {"name": "write"}, CLIENT)
    second = worker_of(offers(runs))
    error = await second.ask("m2", "tools/call", retry(first, "write"), CLIENT)
    assert error["code"] == -31011 and "Make the call again" in error["message"]
    assert error["data"] == {
        "reason": "browser_gone",
        "delivered": "unknown",
        "retryable": False,
        "server": "demo",
        "help": "TR102",
    }
    assert runs == ["wrote"]


@pytest.mark.requirement("modern-input-required")
@pytest.mark.parametrize(
    ("method", "name", "what"), [("tools/call", "look", "looked"), ("prompts/get", "letter", "letter")]
)
async def test_what_changes_nothing_is_run_again_with_the_answer(method: str, name: str, what: str) -> None:
    runs: list[str] = []
    first = await worker_of(offers(runs)).ask("m1", method, {"name": name}, CLIENT)
    result = await worker_of(offers(runs)).ask("m2", method, retry(first, name), CLIENT)
    assert f"{what} {ALICE['content']}" in str(result)
    assert runs == [what, what]


@pytest.mark.requirement("modern-input-required")
async def test_a_question_without_a_key_is_asked_again_and_never_mixed_up() -> None:
    runs: list[str] = []
    first = await worker_of(offers(runs)).ask("m1", "tools/call", {"name": "put"}, CLIENT)
    second = worker_of(offers(runs))
    again = await second.ask("m2", "tools/call", retry(first, "put"), CLIENT)
    assert again["resultType"] == "input_required"
    result = await second.ask("m3", "tools/call", retry(again, "put"), CLIENT)
    assert result["content"][0]["text"] == f"put {ALICE['content']}"


@pytest.mark.requirement("modern-input-required")
async def test_a_state_that_the_client_carries_outlives_the_worker() -> None:
    runs: list[str] = []
    first = await worker_of(offers(runs)).ask("m1", "tools/call", {"name": "stateless"}, CLIENT)
    result = await worker_of(offers(runs)).ask("m2", "tools/call", retry(first, "stateless"), CLIENT)
    assert result["content"][0]["text"] == f"{{'step': 1}} {ALICE['content']}"


@pytest.mark.requirement("modern-input-required")
async def test_a_state_that_the_client_carries_is_good_once() -> None:
    runs: list[str] = []
    bench = worker_of(offers(runs))
    first, other = [await bench.ask(f"m{n}", "tools/call", {"name": "stateless"}, CLIENT) for n in range(2)]
    await bench.ask("m2", "tools/call", retry(first, "stateless"), CLIENT)
    error = await bench.ask("m3", "tools/call", retry(first, "stateless"), CLIENT)
    assert error["code"] == -32602 and "requestState" in error["message"]
    # Another state with the same contents is a different one.
    assert "content" in await bench.ask("m4", "tools/call", retry(other, "stateless"), CLIENT)
    assert len(runs) == 4


@pytest.mark.requirement("modern-input-required")
async def test_a_state_with_which_nothing_was_run_is_still_good() -> None:
    runs: list[str] = []
    box = offers(runs)
    bench = worker_of(box)
    first = await bench.ask("m1", "tools/call", {"name": "stateless"}, CLIENT)
    away = box._tools["stateless"]
    box.remove("stateless")
    error = await bench.ask("m2", "tools/call", retry(first, "stateless"), CLIENT)
    assert error["code"] == -32602 and "requestState" not in error["message"]
    box.add(away)
    assert "content" in await bench.ask("m3", "tools/call", retry(first, "stateless"), CLIENT)


def test_a_used_state_stays_used_however_many_are_used_and_the_table_stays_small() -> None:
    spent = UsedStates()
    states = [{"n": str(number), "x": 600.0 + number} for number in range(3 * MOST_USED_STATES)]
    assert all(spent.use(state) for state in states)
    assert len(spent) <= MOST_USED_STATES
    assert not any(spent.use(state) for state in states)
    # An old state that was never used is no longer valid; a new one is.
    assert not spent.use({"n": "old", "x": 600.0})
    assert spent.use({"n": "new", "x": 9999.0})


@pytest.mark.requirement("modern-input-required")
@pytest.mark.parametrize("name", ["write", "look", "stateless"])
@pytest.mark.parametrize("wrong", ["arguments", "seal", "body", "time", "principal", "key"])
async def test_the_next_worker_is_as_strict_as_the_first(name: str, wrong: str) -> None:
    runs: list[str] = []
    first = await worker_of(offers(runs)).ask("m1", "tools/call", {"name": name}, CLIENT)
    params, state, caller = retry(first, name), first["requestState"], CLIENT
    second = worker_of(offers(runs), "of another page" if wrong == "key" else "of the relay")
    if wrong == "arguments":
        params["arguments"] = {"other": 1}
    elif wrong in ("seal", "body"):
        params["requestState"] = state[:-1] + ("A" if state[-1] != "A" else "B") if wrong == "seal" else "A" + state
    elif wrong == "time":
        second.now = TTL_S + 1
    elif wrong == "principal":
        caller = replace(CLIENT, principal="the user else")
    error = await second.ask("m2", "tools/call", params, caller)
    assert error["code"] == -32602 and "requestState" in error["message"]
    assert len(runs) == 1


@pytest.mark.requirement("modern-input-required")
def test_a_seal_opens_what_was_closed_with_the_key_before() -> None:
    seal = StateSeal()
    seal.use("one")
    state = seal.close({"s": 1}, "me", "d", until=10)
    seal.use("one")
    seal.use("")
    seal.use("two")
    assert (seal.open(state, "me", "d", now=5) or {})["s"] == 1
    assert StateSeal().open(state, "me", "d", now=5) is None
    seal.use("three")
    assert seal.open(state, "me", "d", now=5) is None


@pytest.mark.requirement("modern-input-required")
async def test_over_a_restart_of_the_browser_and_of_the_relay(tmp_path: Path) -> None:
    runs: list[str] = []

    async def call(relay: RunningRelay, params: dict[str, Any]) -> httpx2.Response:
        capabilities = {"io.modelcontextprotocol/clientCapabilities": ABLE}
        return await relay.http.post("/notes", **relay.modern("tools/call", {"_meta": capabilities, **params}))

    async with RunningRelay(tmp_path) as relay:
        async with CPythonWorker(relay.url, relay.token, "notes", offers(runs)):
            asked = {name: (await call(relay, {"name": name})).json()["result"] for name in ("write", "stateless")}
        async with CPythonWorker(relay.url, relay.token, "notes", offers(runs)):
            lost = await call(relay, retry(asked["write"], "write"))
            assert (lost.status_code, lost.json()["error"]["code"]) == (200, -31011)
            assert lost.json()["error"]["data"]["reason"] == "browser_gone"
    async with (
        RunningRelay(tmp_path) as relay,
        CPythonWorker(relay.url, relay.token, "notes", offers(runs)),
    ):
        assert (await call(relay, retry(asked["write"], "write"))).json()["error"]["code"] == -31011
        found = (await call(relay, retry(asked["stateless"], "stateless"))).json()["result"]
        assert found["content"][0]["text"] == f"{{'step': 1}} {ALICE['content']}"
