"""The express: a call like one before it is carried out by JavaScript, and only counted by Python.

A single call costs Python several times what one of many costs. What Python would decide is known as long as nothing
has changed: the same caller, without extra wishes, calls the same tool. So a plain call is a *grant* for calls that
differ from it in their arguments only. `js/worker/granted_calls.js` sends such a call to its tab, and the tab's answer
to the relay. Python gets the records of many calls at once, a little later. Any change revokes all grants, and calls
take the fast path of Python again.

Nobody sees that the books are behind: what JavaScript hears for Python comes after what was carried out, and before
anything here gets a number or looks for calls under way, `catch_up` asks for it.

What is counted here is what the lane, the link and the ledger count for every call, so that nobody can tell which way
one came, and what is lost with a socket is said again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn, Protocol

from ..mcp.outbox import written_response
from ..tabs.hub import Hub
from ..transport.connection import LinkSession
from ..wire.events import Received
from ..wire.frames import Kind
from ..wire.jsonrpc import RequestId
from .fast_path import CallGrant, WorkerFastPath

# Of callers and tools. With more, the last one is as good as the first.
MAX_GRANTS: Final = 256
# Letters of a result; a longer one may have to be sliced, which the link does.
MAX_RESULT_CHARACTERS: Final = 48 * 1024
# How many answers JavaScript may have written that are not counted yet, and their letters: its own bounds, and one more
# answer, with all that is around it.
MAX_UNRECORDED: Final = 64 + 1
MAX_UNRECORDED_CHARACTERS: Final = 512 * 1024

_decode: Final = json.JSONDecoder().raw_decode


class JsCallPort(Protocol):
    """js/worker/python_bridge.js."""

    def revoke(self) -> None:
        """Carry out nothing more."""

    def unrecorded(self) -> str:
        """What was carried out and not told yet, as `book` reads it. From then on the next number is Python's."""


class GrantedCalls:
    """`allow` tells JavaScript of a grant for a tool of the worker's own: its number, the channel of the call that it
    is given for, and the `_meta` of answers. Of one for a tab's, the port is told."""

    def __init__(
        self,
        hub: Hub,
        fast_path: WorkerFastPath,
        session: LinkSession[str],
        allow: Callable[[int, str, str], None],
        js: JsCallPort,
    ) -> None:
        self._fast_path, self._session, self._calls = fast_path, session, hub.calls
        self._allow, self._js = allow, js
        # With the `_meta` of their answers.
        self._grants: list[tuple[CallGrant, str]] = []
        # How to go on with a tool that has just run, if its result is not text.
        self._last_run: tuple[CallGrant, Callable[[], Any]] | None = None
        fast_path.grant, fast_path.revoke, hub.revoke = self.grant, self.revoke, self.revoke
        session.sync = hub.calls.sync = self.sync

    def grant(self, grant: CallGrant) -> None:
        if len(self._grants) >= MAX_GRANTS:
            self.revoke()
        number = len(self._grants)
        tab = None if grant.destination is None else grant.destination.tab
        meta = self._fast_path.own_meta if tab is None else self._fast_path.meta_of(tab)
        self._grants.append((grant, meta))
        if grant.destination is None or tab is None:
            self._allow(number, grant.channel, meta)
        elif tab.port is not None:
            members = f'"caller":{grant.caller_json},"kind":"tools","name":"{grant.destination.key}"'
            tab.port.allow(number, grant.channel, members, meta, grant.destination.has_rivals)

    def revoke(self) -> None:
        if self._grants:
            # defence: calls that JavaScript carries out: told before a change
            self.sync()
            self._grants = []
            self._js.revoke()

    def sync(self) -> None:
        """Count what was carried out so far. Without a grant there is nothing."""
        if self._grants and (entries := self._js.unrecorded()):
            self.record(entries)

    @property
    def last_received(self) -> int:
        """The number of the last frame that came."""
        return self._session.last_received

    # -- what JavaScript tells ----------------------------------------------------------------------------------------

    def record(self, entries: str) -> int:
        """Count what was carried out: a line with how many requests came, their size, and what the last of them and the
        last answer acknowledged; answers in the order in which they were written; calls that are under way to their
        tabs; and, if another tab could have taken the last call that was answered, when its tab answered, and how many
        calls that tab may have unread. Gives the number that the next answer will have (0: ask)."""
        session, grants = self._session, self._grants
        lines = iter(entries.split("\n"))
        received, size, upto, acknowledged = map(int, next(lines).split(" "))
        answers: list[tuple[str, RequestId, str]] = []
        is_sound = True
        started = []
        for kind in lines:
            if kind == "served":
                grant, meta = grants[int(next(lines))]
                channel, id, result = next(lines), _id(next(lines)), next(lines)
                # defence: calls that JavaScript carries out: a channel that is open, answered
                is_sound = is_sound and not session.is_open(channel)
                if grant.destination is not None and grant.destination.tab is not None:
                    self._calls.served(grant.destination.tab)
                answers.append((channel, id, written_response(id, result, meta)))
            elif kind == "answered":
                answers.append(self._record_answer(next(lines), next(lines)))
            elif kind == "received":
                grant, received_ms, window = grants[int(next(lines))][0], float(next(lines)), int(next(lines))
                assert grant.destination is not None and grant.destination.tab is not None
                # defence: a busy tab: Python learns what JavaScript heard
                self._calls.update_window(grant.destination.tab, received_ms, window)
            else:
                grant, _ = grants[int(next(lines))]
                call, began_ms, channel, id, payload = (next(lines) for _ in range(5))
                started.append((grant, call, float(began_ms), channel, _id(id), payload))
        session.record(received, size, upto, acknowledged, answers)
        for each in started:
            is_sound = self._record_start(*each) and is_sound
        if not is_sound:
            self.revoke()
            session.fail_socket("a request on a channel that is open")
        return self.next_seq()

    def _record_answer(self, call: str, result: str) -> tuple[str, RequestId, str]:
        """A call that was under way."""
        plain = self._calls.plain_calls[call]
        tab, event = plain.tab, plain.event
        assert tab is not None and event.id is not None
        self._fast_path.ended(plain, tab)
        return event.channel, event.id, written_response(event.id, result, self._fast_path.meta_of(tab))

    def _record_start(
        self, grant: CallGrant, call: str, began_ms: float, channel: str, id: RequestId, payload: str
    ) -> bool:
        """A call is under way to its tab. False: it must not have come."""
        # defence: calls that JavaScript carries out: a channel that is open
        if self._session.is_open(channel):
            return False
        self._session.begin_request(channel, id)
        tab = None if grant.destination is None else grant.destination.tab
        assert tab is not None and tab.port is not None
        event = Received(channel, Kind.REQ, id, None, payload, grant.caller)
        self._fast_path.started(event, call, grant.name, began_ms, tab, tab.port)
        return True

    def run(self, number: int, given: str) -> str | None:
        """Run a tool of the worker's own. Returns its result as JSON text. "": the result is none that can be written
        like that, and `finish` goes on. None: nothing was done."""
        grant, _ = self._grants[number]
        tool = grant.tool
        assert tool is not None
        try:
            made = tool.read(_decode(given)[0])
        except Exception:  # whatever it is, the ordinary way meets it too, and says so
            return None
        try:
            value = tool.call(made)
            text = tool.written(value)
            if text is not None and len(text) <= MAX_RESULT_CHARACTERS:
                return text
            self._last_run = grant, partial(_return, value)
        except (Exception, SystemExit) as error:
            self._last_run = grant, partial(_raise, error)
        return ""

    def finish(self, upto: int, channel: str, id: str, size: int, payload: str, result: str) -> None:
        """Answer the call whose tool has just run: with that result, or, if it is "", with what the tool returned."""
        session, number = self._session, _id(id)
        session.receive_request(upto, channel, number, size)
        if result:
            session.send(channel, Kind.RES, written_response(number, result, self._fast_path.own_meta), id=number)
        else:
            assert self._last_run is not None
            (grant, begin), self._last_run = self._last_run, None
            assert grant.tool is not None
            event = Received(channel, Kind.REQ, number, None, payload, grant.caller)
            self._fast_path.run(event, number, grant.name, grant.tool, begin)
        session.flush()

    def next_seq(self) -> int:
        """The number that an answer will have which is written next. 0: answers have to be sent."""
        return self._session.next_seq(MAX_UNRECORDED, MAX_UNRECORDED_CHARACTERS)


def _id(json: str) -> RequestId:
    """JavaScript takes no id that would have to be escaped."""
    return json[1:-1] if json[0] == '"' else int(json)


def _return(value: Any) -> Any:
    return value


def _raise(error: BaseException) -> NoReturn:
    raise error
