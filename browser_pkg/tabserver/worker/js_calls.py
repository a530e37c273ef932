"""Granted calls: JavaScript carries out calls like an earlier one, and Python records them afterwards, many at once.

Invariant: Python's state may lag behind frames that JavaScript already wrote. Before Python handles an event, allocates
a sequence number or looks up running calls, it must apply JavaScript's records (`sync`). Recorded calls leave the same
state in the fast path, the link and the request history as calls that Python carried out, so messages that are lost
with a socket are sent again. Which calls are plain is not decided here: see `fast_path`.
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

# One grant for each caller and tool. At the limit all are revoked, and new calls are granted again.
MAX_GRANTS: Final = 256
# The longest result that JavaScript writes: a longer one may have to be sliced, which only the link does.
MAX_RESULT_CHARACTERS: Final = 48 * 1024
# The most answers that JavaScript may have written and Python has not recorded, and their characters: JavaScript's own
# bounds, and one more answer with its header and envelope.
MAX_UNRECORDED: Final = 64 + 1
MAX_UNRECORDED_CHARACTERS: Final = 512 * 1024

_decode: Final = json.JSONDecoder().raw_decode


class JsCallPort(Protocol):
    """The functions of js/worker/python_bridge.js that this module calls."""

    def revoke(self) -> None:
        """Stop carrying out calls."""

    def unrecorded(self) -> str:
        """The calls that were carried out and not recorded yet, in the form that `record` reads. Afterwards JavaScript
        asks Python for the next sequence number."""


class GrantedCalls:
    """Grants, and the records of the calls that were carried out under them.

    A single call costs Python several times what one of many costs. Python's decision is known while nothing changes:
    the same caller calls the same tool and asks for nothing else. So a plain call is a *grant* for calls that differ
    from it in their arguments only. `js/worker/granted_calls.js` sends such a call to its tab, and the tab's result to
    the relay. Any change revokes all grants, and calls take the fast path of Python again.

    `allow` sends JavaScript a grant for a tool of the worker: its number, the channel of the call that it was given
    for, and the `_meta` of results. A grant for a tab's tool is sent through the tab's port.
    """

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
        # Each grant with the `_meta` of its results.
        self._grants: list[tuple[CallGrant, str]] = []
        # The tool that has just run, and how to continue with its outcome if JavaScript can't write the result.
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
            # defence: calls of JavaScript: reported before a change
            self.sync()
            self._grants = []
            self._js.revoke()

    def sync(self) -> None:
        """Record what JavaScript has carried out so far. Without a grant there is nothing to record."""
        if self._grants and (entries := self._js.unrecorded()):
            self.record(entries)

    @property
    def last_received(self) -> int:
        """The sequence number of the last frame that was received."""
        return self._session.last_received

    # -- called by JavaScript -----------------------------------------------------------------------------------------

    def record(self, entries: str) -> int:
        """Record what was carried out. The first line has the number of requests, their size, and what the last request
        and the last answer acknowledged. Then follow the answers in the order in which they were written; the calls
        that were posted to tabs and have no answer yet; and, if another tab could have taken the last answered call,
        when its tab answered and how many calls that tab may have unread. Returns the sequence number of the next
        answer (0: JavaScript must ask)."""
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
                # defence: a busy tab: Python learns what JavaScript received
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
        """Record the answer to a call whose start was recorded before."""
        plain = self._calls.plain_calls[call]
        tab, event = plain.tab, plain.event
        assert tab is not None and event.id is not None
        self._fast_path.ended(plain, tab)
        return event.channel, event.id, written_response(event.id, result, self._fast_path.meta_of(tab))

    def _record_start(
        self, grant: CallGrant, call: str, began_ms: float, channel: str, id: RequestId, payload: str
    ) -> bool:
        """Record a call that was posted to its tab. False: the relay violated the protocol, the channel is open."""
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
        """Run a tool of the worker. Returns its result as JSON text; "" if JavaScript can't write the result, then
        `finish` continues; None if nothing was done."""
        grant, _ = self._grants[number]
        tool = grant.tool
        assert tool is not None
        try:
            made = tool.read(_decode(given)[0])
        except Exception:  # the regular path meets the same error and reports it
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
        """Answer the call whose tool has just run: with `result`, or, if that is "", with what the tool returned."""
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
        """The sequence number for the next answer that JavaScript writes. 0: Python must send the answers."""
        return self._session.next_seq(MAX_UNRECORDED, MAX_UNRECORDED_CHARACTERS)


def _id(json: str) -> RequestId:
    """Read a request id. JavaScript carries out no call whose id would have to be escaped."""
    return json[1:-1] if json[0] == '"' else int(json)


def _return(value: Any) -> Any:
    return value


def _raise(error: BaseException) -> NoReturn:
    raise error
