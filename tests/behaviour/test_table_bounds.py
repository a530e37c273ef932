"""Bounds of the tables that clients, pages, servers or editors fill: each is filled past its bound."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tabrelay.acp import browser_servers, line_reader, line_writer, router
from tabrelay.acp.message import AcpMessage, RequestIds
from tabrelay.acp.requests import RequestTable
from tabrelay.acp.sessions import OfferedServer
from tabrelay.admission import oauth, oauth_keys
from tabrelay.admission.pairing import ALPHABET
from tabrelay.admission.tokens import Tokens
from tabrelay.bridge import http as bridge_http
from tabrelay.bridge import messages as bridge_messages
from tabrelay.bridge import session as bridge_session
from tabrelay.bridge import tool_headers
from tabrelay.bridge.target import Address
from tabrelay.bus import envelope, members, nats
from tabrelay.faces.mcp import event_store, subscriptions
from tabrelay.faces.web import pairing as pairing_routes
from tabrelay.peers.browsers import peer as browser_peer
from tabrelay.peers.browsers import plain_session
from tabrelay.peers.upstreams import large_messages, request_headers
from tabrelay.peers.upstreams.transports import stdio
from tabrelay.routing.question_limits import QuestionLimits
from tabrelay.translation import to_modern
from tabserver.handlers.toolbox import Toolbox
from tabserver.mcp.tasks import TaskTerms
from tabserver.wire import jsonrpc
from tests.support.cpython_worker import CPythonWorker
from tests.support.link_worker import SyntheticWorker
from tests.support.memory_bus import MemoryBroker, MemoryBus
from tests.support.nats_server import NatsServer
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S, until

LISTEN: dict[str, Any] = {"notifications": {"toolsListChanged": True}}


def test_the_number_of_keys_of_an_authorization_server_is_bounded() -> None:
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    key = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(public)) | {"alg": "ES256"}
    listed = [key | {"kid": str(number)} for number in range(2 * oauth_keys.MAX_KEYS)]
    assert len(oauth_keys._keys({"keys": listed})) == oauth_keys.MAX_KEYS


def test_the_number_of_access_tokens_that_were_verified_is_bounded() -> None:
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
    """The reason why one more client can't listen."""
    answer = await relay.http.post("/notes", **relay.modern("subscriptions/listen", LISTEN, id="one more"))
    return str(answer.json()["error"]["data"]["reason"])


async def test_the_number_of_callers_that_listen_to_a_browser_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_the_number_of_callers_that_wait_for_a_browser_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_HELD", 1)
    async with RunningRelay(tmp_path, servers=("notes",)) as relay:
        listen = relay.modern("subscriptions/listen", LISTEN, id="first")
        async with relay.http.stream("POST", "/notes", **listen) as response:
            await anext(response.aiter_lines())  # it is acknowledged
            assert await refused(relay) == "busy"


def test_the_number_of_questions_of_one_round_is_bounded() -> None:
    translator: Any = object.__new__(to_modern.LegacyToModern)
    call: Any = SimpleNamespace(rounds=0, state="s")
    asked = {str(number): {"method": "roots/list"} for number in range(to_modern.MAX_QUESTIONS + 1)}
    assert "at most 64 are passed on" in str(translator._problem(call, asked))


def test_the_number_of_tools_that_want_headers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    tools = [{"name": f"t{number}", "inputSchema": schema} for number in range(9)]
    monkeypatch.setattr(request_headers, "MAX_TOOLS", 3)
    monkeypatch.setattr(tool_headers, "MAX_TOOLS", 3)
    routing = request_headers.RoutingHeaders("notes")
    assert len(routing.filter_tools(tools)) == 9 and len(routing._tools) == 3
    bridge = tool_headers.ToolHeaders()
    assert [bridge._learn(tool) for tool in tools] == [True] * 9 and len(bridge._tools) == 3


def test_the_number_of_subscriptions_that_a_new_session_repeats_is_bounded() -> None:
    session = bridge_session.ClientSession()
    for number in range(2 * bridge_session.MAX_KEPT):
        request = jsonrpc.request(number, "resources/subscribe", {"uri": f"x:{number}"})
        session.keep(bridge_messages.parse(json.dumps(request).encode()))
    assert len(session.kept()) == bridge_session.MAX_KEPT


def test_the_number_of_finished_streams_of_a_session_is_bounded() -> None:
    streams = event_store.SessionStreams(event_store.EventStore())
    for number in range(5 * event_store.MAX_FINISHED):
        stream = streams.open(number)
        stream.add(b"{}")
        stream.finish()
    assert len(streams._by_id) == event_store.MAX_FINISHED


def test_parts_of_a_message_on_the_bus_are_bounded_in_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_number_of_requests_of_an_editor_without_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "MAX_WAITING", 8)
    found = router.Router(*[lambda message: False] * 4)
    for number in range(100):
        for method in ("initialize", "session/close", "session/prompt"):
            request = jsonrpc.request(f"{method} {number}", method, {"sessionId": "s"})
            found.from_editor(AcpMessage.read(json.dumps(request).encode()))
    assert len(found._waiting) == 8
    assert len(found._initialize_keys) + len(found._closings) <= 8


async def test_the_number_of_approvals_that_wait_for_their_page_is_bounded(tmp_path: Path) -> None:
    """Each is for a code that is not in the list of waiting pages."""
    policy: Any = None
    routes = pairing_routes.PairingRoutes(Tokens(tmp_path), policy, collect_s=BOUND_S)
    codes = [f"BBBB-{first}{second}22" for first in ALPHABET for second in ALPHABET]
    tasks = [asyncio.create_task(routes._decide(code, approve=True)) for code in codes[: pairing_routes.MAX_COLLECTING]]
    await until(lambda: len(routes._collecting) == pairing_routes.MAX_COLLECTING)
    refused = await routes._decide(codes[-1], approve=True)
    assert refused.status_code == 404 and len(routes._collecting) == pairing_routes.MAX_COLLECTING
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert routes._collecting == {}


async def test_the_bounds_of_tasks_are_sent_to_the_worker(tmp_path: Path) -> None:
    bounds: dict[str, Any] = {
        "max_tasks": 5,
        "max_tasks_token": 4,
        "task_ttl_s": 3.0,
        "max_task_ttl_s": 6.0,
        "task_budget": 2000,
    }
    async with (
        RunningRelay(tmp_path, **bounds) as relay,
        CPythonWorker(relay.url, relay.token, "notes", Toolbox()) as worker,
    ):
        assert worker.core.tasks.terms == TaskTerms(3000, 6000, 5, 4, 2000)


async def test_the_kept_lines_of_stderr_are_bounded_in_number_and_length() -> None:
    reader = asyncio.StreamReader()
    process: Any = SimpleNamespace(stderr=reader, returncode=3)
    limits = large_messages.MessageLimits(1_000, 1_000)
    redact: Any = lambda text, size: text[:size]  # noqa: E731
    pipes = stdio.StdioTransport(process, "notes", limits, redact, lambda *report: None)
    for number in range(1_000):
        reader.feed_data(f"line {number}\n".encode())
    reader.feed_data(b"x" * (2 * stdio.MAX_STDERR_LINE) + b"\n")
    reader.feed_eof()
    await pipes._read_stderr()
    assert list(pipes._stderr_lines) == ["line 996", "line 997", "line 998", "line 999", "…"]
    assert len(pipes._stderr_lines) == stdio.STDERR_LINES
    for end in (pipes._incoming, pipes._read, pipes._write, pipes._outgoing):
        end.close()


async def test_the_number_of_clients_for_earlier_addresses_of_the_relay_is_bounded() -> None:
    where = {"port": 0}
    endpoint = bridge_http.HttpEndpoint(lambda: Address(f"http://127.0.0.1:{where['port']}/notes", is_loopback=True))
    made = []
    for number in range(3 * bridge_http.MAX_OLD_CLIENTS):
        where["port"] = 20_000 + number
        made.append(endpoint._client_for(endpoint._address(), None))
    assert len(endpoint._old_clients) == bridge_http.MAX_OLD_CLIENTS
    await until(lambda: sum(client.is_closed for client in made) == len(made) - bridge_http.MAX_OLD_CLIENTS - 1)
    assert not made[-1].is_closed
    await endpoint.close()
    assert all(client.is_closed for client in made)


def test_relays_that_were_lost_are_remembered_up_to_a_number() -> None:
    membership = members.Membership(MemoryBus(MemoryBroker()), b"key")
    for number in range(2 * members.MOST_LOST):
        membership.nodes[f"n{number}"] = members.Node(f"n{number}", 0.0, {})
        membership._remove(f"n{number}", "it is silent")
    assert len(membership._lost_nodes) == members.MOST_LOST
    assert f"n{2 * members.MOST_LOST - 1}" in membership._lost_nodes


async def test_unread_messages_of_a_subscription_are_dropped_past_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the event loop handles them more slowly than they arrive."""
    monkeypatch.setattr(nats, "MAX_UNREAD", 100_000)
    received: list[int] = []
    async with NatsServer(tmp_path / "nats") as server:
        sender, reader = (nats.NatsBus((server.url,), nats.NatsAuth(), "test") for _ in range(2))
        reader.subscribe("words", lambda message: received.append(len(message.data)))
        for bus in (sender, reader):
            await bus.start()
        await until(lambda: sender.is_up and reader.is_up)
        [wanted] = [each for each in reader._subscriptions if each.subject == "words"]
        subscription: Any = wanted.subscription
        subscription._wait_for_msgs_task.cancel()  # no task reads them
        await sender._flush()
        for _ in range(20):
            sender.send("words", b"x" * 40_000)
        sender.send("words", b"")
        await until(lambda: subscription._pending_size > 0 and subscription.pending_bytes > 40_000)
        await sender._flush()
        await reader._flush()
        assert subscription._pending_size <= nats.MAX_UNREAD
        for bus in (sender, reader):
            await bus.stop()


async def test_the_number_of_unread_messages_of_a_subscription_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats, "MAX_UNREAD_MESSAGES", 5)
    async with NatsServer(tmp_path / "nats") as server:
        sender, reader = (nats.NatsBus((server.url,), nats.NatsAuth(), "test") for _ in range(2))
        reader.subscribe("words", lambda message: None)
        for bus in (sender, reader):
            await bus.start()
        await until(lambda: sender.is_up and reader.is_up)
        [wanted] = [each for each in reader._subscriptions if each.subject == "words"]
        subscription: Any = wanted.subscription
        subscription._wait_for_msgs_task.cancel()  # no task reads them
        for _ in range(20):
            sender.send("words", b"x")
        await until(lambda: subscription._received == 20)
        assert subscription._pending_queue.qsize() == nats.MAX_UNREAD_MESSAGES
        for bus in (sender, reader):
            await bus.stop()


async def test_servers_that_an_editor_session_closed_are_remembered_up_to_a_number() -> None:
    async def write(line: bytes) -> None:
        raise AssertionError(line)

    found = browser_servers.BrowserServers(RequestTable(write, RequestIds()), lambda server, id: pytest.fail(id))
    session: Any = None
    for number in range(2 * browser_servers.MAX_CLOSED):
        offer = OfferedServer(session, "notes", "notes", f"s{number}", "acp")
        found.offer(offer)
        await found.withdraw(offer)
    assert found._offers == {} and len(found._closed) == browser_servers.MAX_CLOSED
    assert f"s{2 * browser_servers.MAX_CLOSED - 1}" in found._closed


async def test_the_number_of_lines_that_are_read_ahead_of_a_client_is_bounded() -> None:
    read = 0

    async def source() -> AsyncIterator[bytes]:
        nonlocal read
        while read < 10 * line_reader.MAX_LINES:
            read += 1
            yield b"x"

    reader = line_reader.LineReader(source())
    await until(lambda: read == line_reader.MAX_LINES)
    await asyncio.sleep(0)
    assert len(reader._lines) == read == line_reader.MAX_LINES
    assert len([line async for line in reader.lines()]) == 10 * line_reader.MAX_LINES


async def test_the_number_of_lines_that_a_client_has_not_read_is_bounded() -> None:
    is_read = asyncio.Event()
    written: list[bytes] = []
    socket: Any = SimpleNamespace(write=written.append, drain=is_read.wait)
    writer = line_writer.LineWriter(socket, stall_timeout_s=BOUND_S)
    blocked = asyncio.create_task(_write_many(writer, 2 * line_writer.MAX_LINES))
    await until(lambda: not writer._has_room.is_set())
    assert writer._lines.qsize() == line_writer.MAX_LINES
    is_read.set()
    await blocked
    await until(lambda: len(written) == 2 * line_writer.MAX_LINES)
    writer._writing.cancel()


async def _write_many(writer: line_writer.LineWriter, number: int) -> None:
    for _ in range(number):
        await writer.write(b"x")
        await asyncio.sleep(0)
