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

from ..mcp.outbox import passed_on
from ..tabs.hub import Hub
from ..transport.connection import LinkSession
from ..wire.events import Received
from ..wire.frames import Kind
from ..wire.jsonrpc import RequestId
from .fast_path import CallGrant, WorkerFastPath

# Of callers and tools. With more, the last one is as good as the first.
MOST: Final = 256
# Letters of a result; a longer one may have to be sliced, which the link does.
LONGEST: Final = 48 * 1024
# How many answers JavaScript may have written that are not counted yet, and their letters: its own bounds, and one more
# answer, with all that is around it.
UNBOOKED: Final = 64 + 1
UNBOOKED_LETTERS: Final = 512 * 1024

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
        lane: WorkerFastPath,
        line: LinkSession[str],
        allow: Callable[[int, str, str], None],
        carrier: JsCallPort,
    ) -> None:
        self._lane, self._line, self._traffic = lane, line, hub.traffic
        self._allow, self._carrier = allow, carrier
        # With the `_meta` of their answers.
        self._grants: list[tuple[CallGrant, str]] = []
        # How to go on with a tool that has just run, if its result is not text.
        self._ran: tuple[CallGrant, Callable[[], Any]] | None = None
        lane.grant, lane.revoke, hub.revoke = self.grant, self.revoke, self.revoke
        line.sync = hub.traffic.catch_up = self.catch_up

    def grant(self, grant: CallGrant) -> None:
        if len(self._grants) >= MOST:
            self.revoke()
        number = len(self._grants)
        tab = None if grant.place is None else grant.place.tab
        meta = self._lane.own_meta if tab is None else self._lane.meta_of(tab)
        self._grants.append((grant, meta))
        if grant.place is None or tab is None:
            self._allow(number, grant.channel, meta)
        elif tab.port is not None:
            words = f'"caller":{grant.words},"kind":"tools","name":"{grant.place.key}"'
            tab.port.allow(number, grant.channel, words, meta, grant.place.has_rivals)

    def revoke(self) -> None:
        if self._grants:
            # defence: calls that JavaScript carries out: told before a change
            self.catch_up()
            self._grants = []
            self._carrier.revoke()

    def catch_up(self) -> None:
        """Count what was carried out so far. Without a grant there is nothing."""
        if self._grants and (entries := self._carrier.unrecorded()):
            self.record(entries)

    @property
    def last_received(self) -> int:
        """The number of the last frame that came."""
        return self._line.last_received

    # -- what JavaScript tells ----------------------------------------------------------------------------------------

    def record(self, entries: str) -> int:
        """Count what was carried out: a line with how many requests came, their size, and what the last of them and the
        last answer acknowledged; answers in the order in which they were written; calls that are under way to their
        tabs; and, if another tab could have taken the last call that was answered, when its tab answered, and how many
        calls that tab may have unread. Gives the number that the next answer will have (0: ask)."""
        line, grants = self._line, self._grants
        said = iter(entries.split("\n"))
        came, size, upto, told = map(int, next(said).split(" "))
        answers: list[tuple[str, RequestId, str]] = []
        is_sound = True
        begun = []
        for kind in said:
            if kind == "served":
                grant, meta = grants[int(next(said))]
                channel, id, result = next(said), _id(next(said)), next(said)
                # defence: calls that JavaScript carries out: a channel that is open, answered
                is_sound = is_sound and not line.is_open(channel)
                if grant.place is not None and grant.place.tab is not None:
                    self._traffic.served(grant.place.tab)
                answers.append((channel, id, passed_on(id, result, meta)))
            elif kind == "answered":
                answers.append(self._answered(next(said), next(said)))
            elif kind == "received":
                grant, heard_ms, window = grants[int(next(said))][0], float(next(said)), int(next(said))
                assert grant.place is not None and grant.place.tab is not None
                # defence: a busy tab: Python learns what JavaScript heard
                self._traffic.read_by(grant.place.tab, heard_ms, window)
            else:
                grant, _ = grants[int(next(said))]
                call, began_ms, channel, id, payload = (next(said) for _ in range(5))
                begun.append((grant, call, float(began_ms), channel, _id(id), payload))
        line.record(came, size, upto, told, answers)
        for each in begun:
            is_sound = self._begun(*each) and is_sound
        if not is_sound:
            self.revoke()
            line.fail_socket("a request on a channel that is open")
        return self.next_seq()

    def _answered(self, call: str, result: str) -> tuple[str, RequestId, str]:
        """A call that was under way."""
        plain = self._traffic.plain[call]
        tab, event = plain.tab, plain.event
        assert tab is not None and event.id is not None
        self._lane.ended(plain, tab)
        return event.channel, event.id, passed_on(event.id, result, self._lane.meta_of(tab))

    def _begun(self, grant: CallGrant, call: str, began_ms: float, channel: str, id: RequestId, payload: str) -> bool:
        """A call is under way to its tab. False: it must not have come."""
        # defence: calls that JavaScript carries out: a channel that is open
        if self._line.is_open(channel):
            return False
        self._line.begin_request(channel, id)
        tab = None if grant.place is None else grant.place.tab
        assert tab is not None and tab.port is not None
        event = Received(channel, Kind.REQ, id, None, payload, grant.caller)
        self._lane.begun(event, call, grant.name, began_ms, tab, tab.port)
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
            if text is not None and len(text) <= LONGEST:
                return text
            self._ran = grant, partial(_give, value)
        except (Exception, SystemExit) as error:
            self._ran = grant, partial(_raise, error)
        return ""

    def finish(self, upto: int, channel: str, id: str, size: int, payload: str, result: str) -> None:
        """Answer the call whose tool has just run: with that result, or, if it is "", with what the tool returned."""
        line, number = self._line, _id(id)
        line.receive_request(upto, channel, number, size)
        if result:
            line.send(channel, Kind.RES, passed_on(number, result, self._lane.own_meta), id=number)
        else:
            assert self._ran is not None
            (grant, begin), self._ran = self._ran, None
            assert grant.tool is not None
            event = Received(channel, Kind.REQ, number, None, payload, grant.caller)
            self._lane.run(event, number, grant.name, grant.tool, begin)
        line.flush()

    def next_seq(self) -> int:
        """The number that an answer will have which is written next. 0: answers have to be sent."""
        return self._line.next_seq(UNBOOKED, UNBOOKED_LETTERS)


def _id(json: str) -> RequestId:
    """JavaScript takes no id that would have to be escaped."""
    return json[1:-1] if json[0] == '"' else int(json)


def _give(value: Any) -> Any:
    return value


def _raise(error: BaseException) -> NoReturn:
    raise error
