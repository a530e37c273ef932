"""Granted calls: JavaScript carries out calls like an earlier one, and Python records them afterwards, many at once.

Invariant: Python's state may lag behind frames that JavaScript already wrote. JavaScript hands its records over before
it calls Python with anything else; what begins in Python (a change of the link, a timer, a change of what is offered)
passes one of three functions that ask for them: `LinkSession._change`, `CallGrants.after_sync` and `CallGrants.revoke`.
Recorded calls leave the same state as calls that Python carried out, so messages that are lost with a socket are sent
again. Which calls are plain is decided in `tabs/messages.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from ..handlers.tools import Tool
from ..mcp.call import RequestMeta, RunningCall
from ..mcp.server import Server
from ..mcp.sessions import written_response
from ..rpc import dump
from ..tabs.calls import TabCalls
from ..tabs.messages import CallWriter
from ..tabs.routing import Destination
from ..tabs.tab import Tab
from ..transport.connection import LinkSession
from ..wire.eras import META_SERVER_INFO
from ..wire.frames import Caller, Kind
from ..wire.jsonrpc import RequestId

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

    def allow(self, port: Any, number: int, channel: str, members: str, meta: str, has_rivals: bool, /) -> None:
        """Carry out calls like the one on this channel. `port`: None for a tool of the worker."""

    def revoke(self) -> None:
        """Stop carrying out calls."""

    def unrecorded(self) -> str:
        """The calls that were carried out and not recorded yet, in the form that `record` reads. Afterwards JavaScript
        asks Python for the next sequence number."""


class CallGrant(NamedTuple):
    """A plain call that others may repeat: its caller, `_meta` and name, the destination, and the worker's own tool.

    `result_meta`: the `_meta` of results, as JSON text.
    """

    caller: Caller
    meta: RequestMeta
    name: str
    destination: Destination
    tool: Tool | None
    result_meta: str

    @property
    def tab(self) -> Tab:
        assert self.destination.tab is not None
        return self.destination.tab


class CallGrants:
    """What JavaScript may carry out.

    A single call costs Python several times what one of many costs. Python's decision is known while nothing changes:
    the same caller calls the same tool and asks for nothing else. So a plain call is a *grant* for calls that differ
    from it in their arguments only. `js/worker/granted_calls.js` sends such a call to its tab, and the tab's result to
    the relay. Any change revokes all grants, and Python receives the calls again.

    `info`: the server's name and version, for the `_meta` of results. `record` records what was carried out.
    """

    def __init__(self, js: JsCallPort, info: Mapping[str, Any], record: Callable[[str], object]) -> None:
        self._js, self._info, self._record = js, info, record
        self._writer = CallWriter()
        self.given: list[CallGrant] = []

    def grant(self, call: RunningCall, destination: Destination, tool: Tool | None) -> None:
        if len(self.given) >= MAX_GRANTS:
            self.revoke()
        number, tab, channel = len(self.given), destination.tab, call.session.id
        result_meta = dump((tab.meta if tab is not None else {}) | {META_SERVER_INFO: self._info})
        self.given.append(CallGrant(call.session.caller, call.meta, call.name, destination, tool, result_meta))
        if tab is None:
            self._js.allow(None, number, channel, "", result_meta, False)
        elif tab.port is not None:
            members = f'"caller":{self._writer.caller_json(call)},"kind":"tools","name":"{destination.key}"'
            tab.port.allow(number, channel, members, result_meta, destination.has_rivals)

    def use_info(self, info: Mapping[str, Any]) -> None:
        """What the server says of itself in the `_meta` of results."""
        self.revoke()
        self._info = info

    def revoke(self) -> None:
        if self.given:
            # defence: calls of JavaScript: reported before a change
            self.sync()
            self.given = []
            self._js.revoke()

    def sync(self) -> None:
        """Record what JavaScript has carried out so far. Without a grant there is nothing to record."""
        if self.given and (entries := self._js.unrecorded()):
            self._record(entries)

    def after_sync(self, function: Callable[[], None]) -> Callable[[], None]:
        """For timers: the function, after what JavaScript has carried out is recorded."""

        def run() -> None:
            # defence: calls of JavaScript: reported before a timer
            self.sync()
            function()

        return run


class JsCallRecorder:
    """Records what JavaScript carried out under the grants, and runs tools of the worker for it."""

    def __init__(self, grants: CallGrants, core: Server, calls: TabCalls, session: LinkSession[str]) -> None:
        self._grants, self._core, self._calls, self._session = grants, core, calls, session
        # The tool that has just run, and how to continue with its outcome if JavaScript can't write the result.
        self._last_run: tuple[CallGrant, Callable[[], Any]] | None = None

    @property
    def last_received(self) -> int:
        """The sequence number of the last frame that was received."""
        return self._session.last_received

    def record(self, entries: str) -> int:
        """Record what was carried out. The first line has the number of requests, their size, and what the last request
        and the last answer acknowledged. Then follow the answers in the order in which they were written; the calls
        that were posted to tabs and have no answer yet; and, if another tab could have taken the last answered call,
        when its tab answered and how many calls that tab may have unread. Returns the sequence number of the next
        answer (0: JavaScript must ask)."""
        session, grants = self._session, self._grants.given
        lines = iter(entries.split("\n"))
        received, size, upto, acknowledged = map(int, next(lines).split(" "))
        answers: list[tuple[str, RequestId, str]] = []
        is_sound = True
        started = []
        for kind in lines:
            if kind == "served":
                grant = grants[int(next(lines))]
                channel, id, result = next(lines), _id(next(lines)), next(lines)
                # defence: calls that JavaScript carries out: a channel that is open, answered
                is_sound = is_sound and not session.is_open(channel)
                if grant.tool is None:
                    self._calls.served(grant.tab)
                answers.append((channel, id, written_response(id, result, grant.result_meta)))
            elif kind == "answered":
                answers.append(self._record_answer(next(lines), next(lines)))
            elif kind == "received":
                tab, received_ms, window = grants[int(next(lines))].tab, float(next(lines)), int(next(lines))
                # defence: a busy tab: Python learns what JavaScript received
                tab.read_state.update(received_ms, window)
            else:
                grant = grants[int(next(lines))]
                call, began_ms, channel, id, payload = (next(lines) for _ in range(5))
                started.append((grant, call, float(began_ms), channel, _id(id), payload))
        session.record(received, size, upto, acknowledged, answers)
        for each in started:
            is_sound = self._record_start(*each) and is_sound
        if not is_sound:
            self._grants.revoke()
            session.fail_socket("a request on a channel that is open")
        return self.next_seq()

    def _record_answer(self, number: str, result: str) -> tuple[str, RequestId, str]:
        """Record the answer to a call whose start was recorded before."""
        call = self._calls.running[number]
        text = written_response(call.request_id, result, self._core.outbox.meta(call.tab.meta))
        call.was_answered()
        return call.session.id, call.request_id, text

    def _record_start(
        self, grant: CallGrant, number: str, began_ms: float, channel: str, id: RequestId, payload: str
    ) -> bool:
        """Record a call that was posted to its tab. False: the relay violated the protocol, the channel is open."""
        # defence: calls that JavaScript carries out: a channel that is open
        if self._session.is_open(channel):
            return False
        self._session.begin_request(channel, id)
        call = self._core.adopt(channel, grant.caller, id, grant.meta, payload)
        self._calls.adopt(call, number, grant.name, grant.tab, began_ms)
        return True

    def run(self, number: int, given: str) -> str | None:
        """Run a tool of the worker. Returns its result as JSON text; "" if JavaScript can't write the result, then
        `finish` continues; None if nothing was done."""
        grant = self._grants.given[number]
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
        except BaseException as error:
            self._last_run = grant, partial(_raise, error)
        return ""

    def finish(self, upto: int, channel: str, id: str, size: int, payload: str, result: str) -> None:
        """Answer the call whose tool has just run: with `result`, or, if that is "", with what the tool returned."""
        session, number = self._session, _id(id)
        session.receive_request(upto, channel, number, size)
        if result:
            text = written_response(number, result, self._core.outbox.own_meta)
            session.send(channel, Kind.RES, text, id=number)
        else:
            assert self._last_run is not None
            (grant, begin), self._last_run = self._last_run, None
            assert grant.tool is not None
            call = self._core.adopt(channel, grant.caller, number, grant.meta, payload)
            self._calls.adopt_own(call, grant.name, grant.tool, begin)

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
