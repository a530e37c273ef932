"""Questions of a server to its client across two relays.

The client is at one relay and the browser at the other: in both eras, with the answer at either relay, and while the
bus is down.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tabserver import Context, tool
from tabserver.handlers.toolbox import Toolbox
from tabserver.wire.events import Closed
from tests.support.cpython_worker import CPythonWorker
from tests.support.relay_pair import Pair, Stream, open_session, request
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
# An address without a listener.
NOWHERE = "http://127.0.0.1:1"
ABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}}
ACCEPT = {"action": "accept", "content": {"name": "Ada"}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "Ada"}, "model": "m"}
# For each tool that asks: its question, and the client's answer.
QUESTIONS = {"greet": "elicitation/create", "complete": "sampling/createMessage"}
ANSWERS = {"greet": ACCEPT, "complete": SAID}


class Asking:
    """Tools that ask their client before they answer; counts their runs."""

    def __init__(self) -> None:
        self.began = 0
        self.box = Toolbox()

        @tool(toolbox=self.box)
        async def greet(ctx: Context) -> str:
            self.began += 1
            said = (await ctx.elicit("Name?", FORM)).content
            return f"Hello {said and said['name']}"

        @tool(toolbox=self.box)
        async def complete(ctx: Context) -> str:
            self.began += 1
            return f"Hello {(await ctx.sample('Name?')).text}"


def call(name: str) -> dict[str, Any]:
    return request("tools/call", {"name": name, "arguments": {}})


def answer(question: dict[str, Any], name: str = "greet") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": question["id"], "result": ANSWERS[name]}


def text_of(message: dict[str, Any]) -> str:
    return str(message["result"]["content"][0]["text"])


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("answers_at", ["a", "b"])
@pytest.mark.parametrize("browser_at", ["a", "b"])
async def test_a_question_asked_at_one_relay_is_answered_at_any(
    pair: Pair, browser_at: str, answers_at: str, name: str
) -> None:
    browser, other, asking = getattr(pair, browser_at), getattr(pair, answers_at), Asking()
    async with CPythonWorker(browser.url, browser.token, "notes", asking.box):
        session = await open_session(pair.a, "notes", ABLE)
        stream = Stream(pair.a, "POST", "notes", json=call(name), headers=session)
        question = await stream.question(QUESTIONS[name])
        said = await other.http.post("/notes", json=answer(question, name), headers=session)
        assert said.status_code == 202
        assert text_of(await stream.end()) == "Hello Ada"
        assert asking.began == 1


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("retries_at", ["a", "b"])
async def test_a_modern_clients_retry_goes_on_at_any_relay(pair: Pair, retries_at: str, name: str) -> None:
    other, asking = getattr(pair, retries_at), Asking()
    meta = {"io.modelcontextprotocol/clientCapabilities": ABLE}
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", asking.box):
        first = await pair.a.call("notes", name, _meta=meta)
        asked = first.json()["result"]
        assert asked["resultType"] == "input_required"
        [(key, question)] = asked["inputRequests"].items()
        assert question["method"] == QUESTIONS[name]
        retry = {"inputResponses": {key: ANSWERS[name]}, "requestState": asked["requestState"], "_meta": meta}
        done = await other.call("notes", name, **retry)
        assert text_of(done.json()) == "Hello Ada"


async def test_a_retry_at_another_relay_with_a_forged_state_is_refused(pair: Pair) -> None:
    asking, name = Asking(), "greet"
    meta = {"io.modelcontextprotocol/clientCapabilities": ABLE}
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", asking.box):
        asked = (await pair.a.call("notes", name, _meta=meta)).json()["result"]
        [key] = asked["inputRequests"]
        state = asked["requestState"][:-4] + "AAAA"
        refused = await pair.b.call("notes", name, inputResponses={key: ACCEPT}, requestState=state, _meta=meta)
        assert "result" not in refused.json()


async def test_a_question_is_answered_after_its_browser_went_to_another_relay(pair: Pair) -> None:
    asking = Asking()
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", asking.box) as worker:
        session = await open_session(pair.a, "notes", ABLE)
        stream = Stream(pair.a, "POST", "notes", json=call("greet"), headers=session)
        question = await stream.question()
        worker.dialer.set_target(pair.a.url)
        worker.dialer.cut()
        await until(lambda: worker.dialer.opened == 2)
        await worker.until("connected")
        await pair.b.http.post("/notes", json=answer(question), headers=session)
        assert text_of(await stream.end()) == "Hello Ada"
        assert asking.began == 1


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("goal", ["a", "b"])
async def test_an_answer_that_is_given_while_the_browser_is_between_two_relays_arrives(
    pair: Pair, goal: str, name: str
) -> None:
    """The answer went to the relay that the browser had already left."""
    source, other = (pair.b, pair.a) if goal == "a" else (pair.a, pair.b)
    asking = Asking()

    async def is_away() -> bool:
        rows = (await source.http.get("/-/status")).json()["servers"]
        return [row["state"] for row in rows if row["name"] == "notes"] == ["offline"]

    async with CPythonWorker(source.url, source.token, "notes", asking.box) as worker:
        session = await open_session(pair.a, "notes", ABLE)
        stream = Stream(pair.a, "POST", "notes", json=call(name), headers=session)
        question = await stream.question(QUESTIONS[name])
        worker.dialer.set_target(NOWHERE)
        worker.dialer.cut()
        await until(is_away)
        assert (await pair.a.http.post("/notes", json=answer(question, name), headers=session)).status_code == 202
        worker.dialer.set_target(other.url)
        assert text_of(await stream.end()) == "Hello Ada"
        assert asking.began == 1


# -- while the bus is down ---------------------------------------------------------------------------------------------


class Held(Asking):
    """A tool that asks when the test permits it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_ask = asyncio.Event()
        self.has_asked = False

        @tool(toolbox=self.box)
        async def later(ctx: Context) -> str:
            self.began += 1
            await self.may_ask.wait()
            self.has_asked = True
            said = (await ctx.elicit("Name?", FORM)).content
            return f"Hello {said and said['name']}"

        @tool(toolbox=self.box)
        async def quick() -> str:
            return "here"

    async def ask(self, relay: RunningRelay) -> None:
        """Ask. Afterwards the browser's relay has received the question, because it has received a later message of the
        browser."""
        self.may_ask.set()
        await until(lambda: self.has_asked)
        assert text_of((await relay.call("notes", "quick")).json()) == "here"


@pytest.mark.parametrize("first", ["both", "caller", "browser"])
async def test_a_question_that_is_asked_while_the_bus_is_away_arrives_when_it_is_back(pair: Pair, first: str) -> None:
    """Either of the two relays may reconnect first."""
    held = Held()
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", held.box):
        session = await open_session(pair.a, "notes", ABLE)
        stream = Stream(pair.a, "POST", "notes", json=call("later"), headers=session)
        await until(lambda: held.began == 1)
        pair.hub.cut()
        await held.ask(pair.b)
        assert stream.methods() == []
        if first != "both":
            in_vain = pair.hub.undelivered
            pair.hub.restore(pair.hub.nodes[0 if first == "caller" else 1])
            if first == "caller":
                # It has queried the location of the browser and the outcome of the call; no relay could answer.
                await until(lambda: pair.hub.undelivered >= in_vain + 2)
        pair.hub.restore()
        question = await stream.question()
        await pair.a.http.post("/notes", json=answer(question), headers=session)
        assert text_of(await stream.end()) == "Hello Ada"
        assert held.began == 1
        assert stream.methods() == ["elicitation/create"]


@pytest.mark.parametrize("answers_at", ["a", "b"])
async def test_an_answer_that_is_given_while_the_bus_is_away_arrives_when_it_is_back(
    pair: Pair, answers_at: str
) -> None:
    asking, other = Asking(), getattr(pair, answers_at)
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", asking.box):
        session = await open_session(pair.a, "notes", ABLE)
        stream = Stream(pair.a, "POST", "notes", json=call("greet"), headers=session)
        question = await stream.question()
        pair.hub.cut()
        assert (await other.http.post("/notes", json=answer(question), headers=session)).status_code == 202
        pair.hub.restore()
        assert text_of(await stream.end()) == "Hello Ada"
        assert asking.began == 1


async def test_what_is_cancelled_while_the_bus_is_away_is_cancelled_when_it_is_back(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes") as worker:
        worker.on_call = lambda *_: None
        left = asyncio.create_task(pair.a.call("notes", "echo"))
        await until(lambda: len(worker.calls) == 1)
        pair.hub.cut()
        left.cancel()
        await until(lambda: pair.a.drain.exchanges.count == 0)  # its relay has noticed
        assert not any(isinstance(event, Closed) for event in worker.seen)
        pair.hub.restore()
        await until(lambda: any(isinstance(event, Closed) for event in worker.seen))


async def test_a_session_that_ends_while_the_bus_is_away_is_ended_at_all_relays_when_it_is_back(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes"):
        session = await open_session(pair.a, "notes")

        async def ping() -> int:
            return (await pair.b.http.post("/notes", json=request("ping"), headers=session)).status_code

        assert await ping() == 200
        pair.hub.cut()
        assert (await pair.a.http.delete("/notes", headers=session)).status_code == 204
        pair.hub.restore()

        async def is_dead() -> bool:
            return await ping() == 404

        await until(is_dead)
