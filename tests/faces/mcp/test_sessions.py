"""Legacy sessions that outlive pages, browsers and the relay process."""

from __future__ import annotations

import asyncio
import json
import stat
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tabrelay.config.settings import Settings
from tabrelay.errors import BadRequest
from tabrelay.faces.mcp.session_ids import MAX_ID, SessionIdCodec
from tabrelay.faces.mcp.session_store import MAX_SUBSCRIPTIONS, SessionRecord, SessionStore, digest
from tabrelay.faces.mcp.sessions import Session, Sessions
from tabserver.wire import jsonrpc
from tabserver.wire.eras import Era
from tabserver.wire.events import Opened, Received
from tabserver.wire.frames import Caller, Kind
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

CALLER = Caller(Era.LEGACY, "2025-06-18", "token:me", {"name": "c", "version": "1"}, {"sampling": {}}, ready=True)


class Wall:
    """A wall clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def sessions(home: Path, wall: Wall, ended: list[str] | None = None, **settings: Any) -> Sessions:
    numbers = iter(range(1000))

    def on_end(session: Session, why: str) -> None:
        if ended is not None:
            ended.append(why)

    given = Settings(home=home, **settings)
    return Sessions(
        given,
        SessionIdCodec(b"k"),
        SessionStore(home / "sessions.json", max_records=given.kept_sessions, max_characters=given.max_subscribed),
        new_channel=lambda: f"c{next(numbers)}",
        on_end=on_end,
        wall=wall,
    )


class Echoing(SyntheticWorker):
    """Accepts log levels and subscriptions too."""

    def _received(self, event: Received[str]) -> None:
        message = json.loads(event.payload)
        if message.get("method") in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            self.answer(event, {})
        else:
            super()._received(event)

    def asked(self, channel: str) -> list[tuple[str, Any]]:
        """Requests on a channel, in order."""
        found = [e for e in self.seen if isinstance(e, Received) and e.kind is Kind.REQ and e.channel == channel]
        return [(message["method"], message.get("params")) for message in (json.loads(e.payload) for e in found)]


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=2) as relay:
        yield relay


async def ask(relay: RunningRelay, headers: dict[str, str], method: str, params: dict[str, Any]) -> dict[str, Any]:
    response = await relay.http.post("/notes", json=jsonrpc.request(9, method, params), headers=headers)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


CALL: dict[str, Any] = {"name": "echo", "arguments": {}}


@pytest.mark.requirement("session-outlives-page")
async def test_a_new_worker_receives_level_and_subscriptions_before_the_first_call(relay: RunningRelay) -> None:
    async with Echoing(relay.url, relay.token, "notes", inst="first"):
        _, headers = await relay.initialize("notes")
        await ask(relay, headers, "logging/setLevel", {"level": "debug"})
        await ask(relay, headers, "resources/subscribe", {"uri": "a:1"})
        await ask(relay, headers, "resources/subscribe", {"uri": "a:2"})
        await ask(relay, headers, "resources/unsubscribe", {"uri": "a:1"})
    async with Echoing(relay.url, relay.token, "notes", inst="second") as second:
        assert "result" in await ask(relay, headers, "tools/call", CALL)
        channel = next(e.channel for e in second.seen if isinstance(e, Received) and "tools/call" in e.payload)
        assert second.asked(channel) == [
            ("logging/setLevel", {"level": "debug"}),
            ("resources/subscribe", {"uri": "a:2"}),
            ("tools/call", CALL),
        ]
        await ask(relay, headers, "tools/call", CALL)
        assert len(second.asked(channel)) == 4


@pytest.mark.requirement("session-outlives-relay")
async def test_a_session_outlives_the_relay_with_all_its_settings(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, Echoing(relay.url, relay.token, "notes", inst="first") as worker:
        _, headers = await relay.initialize("notes", "2025-06-18")
        [first] = [e.caller for e in worker.seen if isinstance(e, Opened) and e.caller.session]
        await ask(relay, headers, "logging/setLevel", {"level": "error"})
        await ask(relay, headers, "resources/subscribe", {"uri": "a:1"})
    async with RunningRelay(tmp_path) as relay, Echoing(relay.url, relay.token, "notes", inst="second") as worker:
        answer = await relay.http.post("/notes", json=jsonrpc.request(9, "tools/call", CALL), headers=headers)
        assert "result" in answer.json(), answer.text
        assert answer.headers["mcp-session-id"] == headers["Mcp-Session-Id"]
        [opened] = [e for e in worker.seen if isinstance(e, Opened) and e.caller.ready]
        assert opened.caller.version == "2025-06-18"
        # On another channel, but with the same name, which does not reveal the id.
        assert opened.caller.session == first.session and first.session not in (None, headers["Mcp-Session-Id"])
        assert opened.caller.client == {"name": "test", "version": "1"}
        assert [method for method, _ in worker.asked(opened.channel)] == [
            "logging/setLevel",
            "resources/subscribe",
            "tools/call",
        ]


@pytest.mark.requirement("session-outlives-relay")
async def test_a_get_stream_of_an_earlier_relay_goes_on_as_a_new_one(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes",)) as relay:
        _, headers = await relay.initialize("notes")
    async with (
        RunningRelay(tmp_path) as relay,
        Echoing(relay.url, relay.token, "notes") as worker,
        relay.http.stream("GET", "/notes", headers={**headers, "Last-Event-ID": "get-abc_7"}) as stream,
    ):
        assert stream.status_code == 200
        await worker.until(lambda: any(isinstance(e, Opened) and e.caller.ready for e in worker.seen))
        channel = next(e.channel for e in reversed(worker.seen) if isinstance(e, Opened) and e.caller.ready)
        note = json.dumps(jsonrpc.notification("notifications/resources/updated", {"uri": "note:///1"}))
        worker.link.send(channel, Kind.NOTE, note, asyncio.get_running_loop().time())
        await worker.flush()
        async for line in stream.aiter_lines():
            # The relay reads the lists of the new worker at the same time, and may notify of them first.
            if line.startswith("data: ") and "list_changed" not in line:
                assert "resources/updated" in line
                break


@pytest.mark.requirement("session-delete")
async def test_a_deleted_session_stays_deleted_over_a_restart(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes",)) as relay:
        _, kept = await relay.initialize("notes")
        _, ended = await relay.initialize("notes")
        assert (await relay.http.delete("/notes", headers=ended)).status_code == 204
        assert (await relay.http.delete("/notes", headers=ended)).status_code == 404
    async with RunningRelay(tmp_path) as relay:
        listing = jsonrpc.request(1, "tools/list")
        assert (await relay.http.post("/notes", json=listing, headers=ended)).status_code == 404
        assert (await relay.http.post("/notes", json=listing, headers=kept)).status_code == 200


@pytest.mark.requirement("session-of-one-credential")
async def test_another_credential_can_not_rebuild_a_session(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes", "other")) as relay:
        _, headers = await relay.initialize("notes")
        thief = relay.tokens.issue_for_page(None, None, ("call",))
    async with RunningRelay(tmp_path) as relay:
        listing = jsonrpc.request(1, "tools/list")
        stolen = {**headers, "Authorization": f"Bearer {thief}"}
        assert (await relay.http.post("/notes", json=listing, headers=stolen)).status_code == 404
        assert (await relay.http.post("/other", json=listing, headers=headers)).status_code == 404
        assert (await relay.http.post("/notes", json=listing, headers=headers)).status_code == 200


@pytest.mark.requirement("session-of-one-credential")
async def test_the_key_is_private_and_ids_are_not_in_the_file(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes",)) as relay:
        _, headers = await relay.initialize("notes")
    assert stat.S_IMODE((tmp_path / "session.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "sessions.json").stat().st_mode) == 0o600
    assert headers["Mcp-Session-Id"] not in (tmp_path / "sessions.json").read_text()


@pytest.mark.requirement("initialize-opens-session")
def test_an_id_is_visible_ascii_bounded_and_contains_the_session() -> None:
    session_ids = SessionIdCodec(b"k")
    id = session_ids.issue("notes", CALLER, 5.0)
    assert len(id) <= MAX_ID and all(0x21 <= ord(character) <= 0x7E for character in id)
    assert id != session_ids.issue("notes", CALLER, 5.0)
    named = replace(CALLER, session="random text")
    contents = session_ids.read(session_ids.issue("notes", named, 5.0), "notes", "token:me")
    assert contents is not None and (contents.caller, contents.issued) == (named, 5.0)


@pytest.mark.parametrize("size", [10, 1_000, 100_000])
@pytest.mark.requirement("initialize-opens-session")
def test_a_client_with_too_much_information_gets_a_shorter_id(size: int) -> None:
    import random

    noise = "".join(random.Random(size).choices("abcdefghij0123456789", k=size))
    client = {"name": "c" + noise, "version": "1", "icons": [{"src": noise}]}
    caller = Caller(Era.LEGACY, "2025-11-25", "p", client, {"elicitation": {"form": {}}, "experimental": {noise: {}}})
    session_ids = SessionIdCodec(b"k")
    id = session_ids.issue("notes", caller, 5.0)
    contents = session_ids.read(id, "notes", "p")
    assert len(id) <= MAX_ID and contents is not None
    assert "elicitation" in contents.caller.capabilities


@pytest.mark.requirement("session-of-one-credential")
def test_an_id_that_was_changed_or_made_with_another_key_is_rejected() -> None:
    session_ids = SessionIdCodec(b"k")
    id = session_ids.issue("notes", CALLER, 5.0)
    assert session_ids.read(id, "other", "token:me") is None
    assert session_ids.read(id, "notes", "token:you") is None
    assert SessionIdCodec(b"other key").read(id, "notes", "token:me") is None
    for at in range(len(id)):
        changed = id[:at] + ("A" if id[at] != "A" else "B") + id[at + 1 :]
        assert session_ids.read(changed, "notes", "token:me") is None
    for nonsense in ("", "s1.", "s1.é", "x" * 5000, id + "=", id + "A", id.upper()):
        assert session_ids.read(nonsense, "notes", "token:me") is None


@pytest.mark.requirement("session-limits")
def test_idle_memory_is_put_away_and_the_id_stays_good(tmp_path: Path) -> None:
    wall, ended = Wall(), list[str]()
    room = sessions(tmp_path, wall, ended, session_idle_s=100, session_life_s=1000)
    session = room.open("notes", "c", CALLER)
    session.level = "debug"
    wall.now += 101
    room.unload_idle()
    assert (ended, room.all()) == (["idle"], [])
    again = room.find(session.id, "notes", "token:me")
    assert (again.id, again.level, again.channel != session.channel) == (session.id, "debug", True)
    wall.now += 1001
    room.unload_idle()
    with pytest.raises(BadRequest) as gone:
        room.find(session.id, "notes", "token:me")
    assert gone.value.status == 404


@pytest.mark.requirement("session-limits")
def test_a_session_that_is_listening_is_never_idle(tmp_path: Path) -> None:
    wall = Wall()
    room = sessions(tmp_path, wall, session_idle_s=100)
    session = room.open("notes", "c", CALLER)
    session.streams.get_stream.reader = object()
    wall.now += 1000
    room.unload_idle()
    assert room.all() == [session]


@pytest.mark.requirement("session-limits")
def test_at_the_cap_a_new_session_is_refused_while_all_are_in_use(tmp_path: Path) -> None:
    room = sessions(tmp_path, Wall(), max_sessions=1)
    busy = room.open("notes", "c", CALLER)
    busy.streams.get_stream.reader = object()
    with pytest.raises(BadRequest, match="1 open sessions") as full:
        room.open("notes", "d", replace(CALLER, principal="token:other"))
    assert (full.value.status, full.value.reason) == (503, "too_many_sessions")
    busy.streams.get_stream.reader = None
    room.open("notes", "d", CALLER)


@pytest.mark.requirement("session-limits")
def test_past_its_share_a_token_loses_its_longest_idle_session_and_no_session_of_another_token(tmp_path: Path) -> None:
    room = sessions(tmp_path, Wall(), max_sessions=10, max_sessions_token=3)
    other = room.open("notes", "x", replace(CALLER, principal="token:other"))
    mine = [room.open("notes", f"c{number}", CALLER) for number in range(3)]
    room.find(mine[0].id, "notes", "token:me")  # used now, so the second one is idle for longest
    for number in range(20):
        room.open("notes", f"d{number}", CALLER)
        assert len(room) == 4
    assert other in room.all()
    assert mine[1] not in room.all()
    # Nothing is lost: its id is still valid.
    assert room.find(mine[1].id, "notes", "token:me").id == mine[1].id
    assert len(room) == 4


@pytest.mark.requirement("session-limits")
def test_a_token_whose_sessions_are_all_in_use_gets_an_error_about_its_share(tmp_path: Path) -> None:
    room = sessions(tmp_path, Wall(), max_sessions=10, max_sessions_token=2)
    for number in range(2):
        room.open("notes", f"c{number}", CALLER).streams.get_stream.reader = object()
    with pytest.raises(BadRequest, match="2 sessions in use") as full:
        room.open("notes", "d", CALLER)
    assert (full.value.status, full.value.reason) == (429, "too_many_sessions")
    room.open("notes", "d", replace(CALLER, principal="token:other"))


@pytest.mark.requirement("session-limits")
def test_in_a_full_table_a_newcomer_gets_room_from_the_token_that_has_most(tmp_path: Path) -> None:
    room = sessions(tmp_path, Wall(), max_sessions=6, max_sessions_token=4)
    greedy = [room.open("notes", f"g{number}", replace(CALLER, principal="token:greedy")) for number in range(4)]
    modest = [room.open("notes", f"m{number}", replace(CALLER, principal="token:modest")) for number in range(2)]
    room.open("notes", "n", CALLER)
    assert [session in room.all() for session in (*greedy, *modest)] == [False, True, True, True, True, True]
    assert len(room) == 6


@pytest.mark.requirement("session-limits")
async def test_one_token_can_not_use_up_the_sessions_of_another(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes",), max_sessions=40, max_sessions_token=10, rate_s=0) as relay:
        other = {"Authorization": f"Bearer {relay.tokens.issue_named('other', ['call'])}"}
        _, theirs = await relay.initialize("notes", headers=other)
        for _ in range(60):
            await relay.initialize("notes")
        answer, _ = await relay.initialize("notes", headers=other)
        assert answer.status_code == 200
        pong = await relay.http.post("/notes", json=jsonrpc.request(2, "ping"), headers=theirs | other)
        assert pong.status_code == 200


@pytest.mark.requirement("session-outlives-relay")
def test_a_damaged_session_store_does_not_prevent_the_start(tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    for damage in ("", "[]", '{"a": 1}', '{"a": {}}'):
        path.write_text(damage)
        store = SessionStore(path)
        store.write("id", SessionRecord(1.0, "info"), now=True)
        assert SessionStore(path).find("id") == SessionRecord(1.0, "info")


@pytest.mark.requirement("session-limits")
def test_what_another_relay_or_a_file_reports_of_a_session_is_bounded(tmp_path: Path) -> None:
    row = {"last_used": 1, "tab": "x" * 1_000_000, "level": "y" * 1_000_000}
    row["subscriptions"] = ["z" * 1_000_000, *(f"a:{number}" for number in range(1_000))]
    (tmp_path / "sessions.json").write_text(json.dumps({digest("a"): row, "b" * 1_000_000: row}))
    store = SessionStore(tmp_path / "sessions.json", max_records=2)
    expected = SessionRecord(1.0, None, tuple(f"a:{number}" for number in range(1_000 - MAX_SUBSCRIPTIONS, 1_000)))
    assert store.records == {digest("a"): expected}
    assert store.receive(digest("b"), row) == expected
    assert store.receive("c" * 1_000_000, row) is None
    store.write("d", SessionRecord(2.0))
    assert list(store.records) == [digest("b"), digest("d")]


@pytest.mark.requirement("session-limits")
def test_an_ended_session_takes_less_than_180_bytes_and_is_not_forgotten_early() -> None:
    store = SessionStore(None)
    tracemalloc.start()
    for number in range(5_000):
        store.end(f"id {number}", 1_000.0 + number / 100)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / 5_000 < 180
    store.forget(older_than=1_000.0)
    assert len(store) == 5_000
    store.forget(older_than=1_000.0 + 50 + 60)
    assert len(store) == 0


@pytest.mark.requirement("session-limits")
def test_subscriptions_of_all_sessions_have_a_limit_together(tmp_path: Path) -> None:
    kept = sessions(tmp_path, Wall(), max_subscribed=10_000)
    crowd = [kept.open("notes", f"c{number}", CALLER) for number in range(20)]
    for session in crowd:
        for number in range(10):
            session.subscriptions[f"x:{number}".ljust(200)] = None
            kept.changed(session)
    assert sum(len(uri) for session in crowd for uri in session.subscriptions) <= 10_000
    assert len(crowd[0].subscriptions) == 10
    # An ended session makes room, also in the file, which does not grow without a limit.
    for session in crowd[:10]:
        kept.end(session, "the client ended it")
    late = kept.open("notes", "late", CALLER)
    late.subscriptions["x:late".ljust(2_000)] = None
    kept.changed(late)
    assert len(late.subscriptions) == 1
    assert (tmp_path / "sessions.json").stat().st_size < 30_000
    assert SessionStore(tmp_path / "sessions.json").find(late.id) == SessionRecord(
        1_000_000, None, tuple(late.subscriptions)
    )


@pytest.mark.requirement("session-limits")
async def test_a_level_that_is_none_is_not_kept(relay: RunningRelay) -> None:
    async with Echoing(relay.url, relay.token, "notes"):
        _, session = await relay.initialize("notes")
        for level in ("x" * 100_000, "error"):
            body = jsonrpc.request(1, "logging/setLevel", {"level": level})
            await relay.http.post("/notes", json=body, headers=session)
    path = relay.settings.home / "sessions.json"
    await until(lambda: path.exists() and '"error"' in path.read_text())
    assert "xxx" not in path.read_text()


@pytest.mark.requirement("session-limits")
def test_sessions_are_put_away_when_idle_also_after_the_time_of_day_was_set_back(tmp_path: Path) -> None:
    wall, ended = Wall(), list[str]()
    table = sessions(tmp_path, wall, ended, session_idle_s=1800.0)
    table.open("notes", "c", CALLER)
    wall.now -= 86_400
    table.unload_idle()
    assert ended == []
    wall.now += 1801
    table.unload_idle()
    assert ended == ["idle"]
