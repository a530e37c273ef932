"""Tables with bounds of their own that clients, pages, servers or editors fill: each is filled past its bound."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tabrelay.acp import router
from tabrelay.acp.message import AcpMessage
from tabrelay.admission import oauth, oauth_keys
from tabrelay.bridge import messages as bridge_messages
from tabrelay.bridge import session as bridge_session
from tabrelay.bridge import tool_headers
from tabrelay.bus import envelope
from tabrelay.faces.mcp import event_store, subscriptions
from tabrelay.peers.browsers import peer as browser_peer
from tabrelay.peers.browsers import plain_session
from tabrelay.peers.upstreams import request_headers
from tabrelay.routing.question_limits import QuestionLimits
from tabrelay.translation import to_modern
from tabserver.wire import jsonrpc
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay

LISTEN: dict[str, Any] = {"notifications": {"toolsListChanged": True}}


def test_keys_of_an_authorization_server_are_so_many() -> None:
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    key = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(public)) | {"alg": "ES256"}
    listed = [key | {"kid": str(number)} for number in range(2 * oauth_keys.MAX_KEYS)]
    assert len(oauth_keys._keys({"keys": listed})) == oauth_keys.MAX_KEYS


def test_access_tokens_that_were_verified_are_so_many() -> None:
    verifier = oauth.TokenVerifier("https://a.example", "https://r.example", oauth_keys.JwksCache("https://a.example"))
    payload = {"sub": "me", "aud": "https://r.example", "exp": 1}
    for number in range(2 * oauth.MAX_VERIFIED):
        verifier._read(payload, f"digest-{number}")
    assert len(verifier._verified) == oauth.MAX_VERIFIED
    assert f"digest-{2 * oauth.MAX_VERIFIED - 1}" in verifier._verified


async def test_of_initialize_requests_without_an_answer_only_the_last_count() -> None:
    written: list[Any] = []
    socket: Any = SimpleNamespace(write=lambda frames: written.extend(json.loads(text) for text, _ in frames))
    reported: list[object] = []
    owner: Any = SimpleNamespace(initialized=reported.append, sender_of=lambda session, id: None)
    session = plain_session.PlainSession(
        "notes",
        "me",
        socket,
        owner,
        ids=iter(range(1, 1000)),
        repeat_s=60,
        limits=QuestionLimits(1, 1, 1),
        max_values=1000,
    )
    for _ in range(plain_session.MAX_INITIALIZE_IDS + 5):
        session.send_initialize()
    assert len(session._initialize_ids) == plain_session.MAX_INITIALIZE_IDS
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    await session.receive(json.dumps(jsonrpc.result_message(written[0]["id"], about)))
    assert reported == []
    await session.receive(json.dumps(jsonrpc.result_message(written[-1]["id"], about)))
    assert reported == [session]
    session.end("over")


async def refused(relay: RunningRelay) -> str:
    """Why one more client can't listen."""
    answer = await relay.http.post("/notes", **relay.modern("subscriptions/listen", LISTEN, id="one more"))
    return str(answer.json()["error"]["data"]["reason"])


async def test_callers_that_listen_to_a_browser_are_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_peer, "MAX_LISTENERS", 2)
    async with (
        RunningRelay(tmp_path, in_flight_server=2) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        asked: list[object] = []
        worker.on_listen = asked.append
        params = [relay.modern("subscriptions/listen", LISTEN, id=f"l{number}") for number in range(2)]
        tasks = [asyncio.create_task(relay.http.post("/notes", **each)) for each in params]
        await worker.until(lambda: len(asked) == 2)
        assert await refused(relay) == "busy"
        for task in tasks:
            task.cancel()


async def test_callers_that_wait_for_a_browser_are_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_HELD", 1)
    async with RunningRelay(tmp_path, servers=("notes",)) as relay:
        listen = relay.modern("subscriptions/listen", LISTEN, id="first")
        async with relay.http.stream("POST", "/notes", **listen) as response:
            await anext(response.aiter_lines())  # it is acknowledged
            assert await refused(relay) == "busy"


def test_questions_of_one_round_are_so_many() -> None:
    translator: Any = object.__new__(to_modern.LegacyToModern)
    call: Any = SimpleNamespace(rounds=0, state="s")
    asked = {str(number): {"method": "roots/list"} for number in range(to_modern.MAX_QUESTIONS + 1)}
    assert "at most 64 are passed on" in str(translator._problem(call, asked))


def test_tools_that_want_headers_are_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    tools = [{"name": f"t{number}", "inputSchema": schema} for number in range(9)]
    monkeypatch.setattr(request_headers, "MAX_TOOLS", 3)
    monkeypatch.setattr(tool_headers, "MAX_TOOLS", 3)
    routing = request_headers.RoutingHeaders("notes")
    assert len(routing.filter_tools(tools)) == 9 and len(routing._tools) == 3
    bridge = tool_headers.ToolHeaders()
    assert [bridge._learn(tool) for tool in tools] == [True] * 9 and len(bridge._tools) == 3


def test_subscriptions_that_a_new_session_repeats_are_so_many() -> None:
    session = bridge_session.ClientSession()
    for number in range(2 * bridge_session.MAX_KEPT):
        request = jsonrpc.request(number, "resources/subscribe", {"uri": f"x:{number}"})
        session.keep(bridge_messages.parse(json.dumps(request).encode()))
    assert len(session.kept()) == bridge_session.MAX_KEPT


def test_finished_streams_of_a_session_are_so_many() -> None:
    streams = event_store.SessionStreams(event_store.EventStore())
    for number in range(5 * event_store.MAX_FINISHED):
        stream = streams.open(number)
        stream.add(b"{}")
        stream.finish()
    assert len(streams._by_id) == event_store.MAX_FINISHED


def test_parts_of_a_message_on_the_bus_are_so_many_and_so_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def part(number: int, index: int, count: int, size: int = 1) -> bytes:
        header = {"op": "part", "from": "n", "x": number, "q": index, "n": count}
        return orjson.dumps(header) + b"\n" + b"x" * size

    assembly = envelope.Assembly()
    with pytest.raises(envelope.BadEnvelope, match="wrong index"):
        assembly.add(part(1, 0, envelope.MAX_PARTS + 1))
    monkeypatch.setattr(envelope, "MAX_UNFINISHED", 100)
    assert assembly.add(part(1, 0, 3, 60)) is None
    with pytest.raises(envelope.BadEnvelope, match="too many"):
        assembly.add(part(2, 0, 3, 60))
    assert assembly._unfinished["n"] == {}


def test_requests_of_an_editor_without_an_answer_are_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "MAX_WAITING", 8)
    found = router.Router(*[lambda message: False] * 4)
    for number in range(100):
        for method in ("initialize", "session/close", "session/prompt"):
            request = jsonrpc.request(f"{method} {number}", method, {"sessionId": "s"})
            found.from_editor(AcpMessage.read(json.dumps(request).encode()))
    assert len(found._waiting) == 8
    assert len(found._initialize_keys) + len(found._closings) <= 8
