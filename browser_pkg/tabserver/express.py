"""The express: a call like one before it is carried out by JavaScript, and only counted by Python.

Python is slow to wake up: a call that comes alone costs several times what it costs in a crowd. What Python would
decide is known as long as nothing has changed: the same caller, wishing for nothing, calls the same tool. So a plain
call is a *grant* for those that differ from it in nothing but their arguments. `js/express.js` sends such a call to its
tab and the tab's answer to the relay, and tells Python afterwards, before anything else can happen. Whatever changes
takes all grants back, and calls come by the lane again.

What is counted here is what the lane, the link and the ledger count for every call, so that nobody can tell which way
one came, and what is lost with a socket is said again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

from .hub import Hub
from .lane import Grant, Lane
from .outbox import passed_on
from .reconnect import Transport
from .wire.events import Received
from .wire.frames import Kind
from .wire.jsonrpc import RequestId

# Of callers and tools. With more, the last one is as good as the first.
MOST: Final = 256
# Letters of a result; a longer one may have to be sliced, which the link does.
LONGEST: Final = 48 * 1024

_decode: Final = json.JSONDecoder().raw_decode


class Express:
    """`allow` tells JavaScript of a grant for a tool of the worker's own: its number, the channel of the call that it
    is given for, and the `_meta` of answers. Of one for a tab's, the port is told. `revoke` takes back all of them."""

    def __init__(
        self,
        hub: Hub,
        lane: Lane,
        transport: Transport[str],
        allow: Callable[[int, str, str], None],
        revoke: Callable[[], None],
    ) -> None:
        self._lane, self._transport, self._traffic = lane, transport, hub.traffic
        self._allow, self._take_back = allow, revoke
        self._grants: list[Grant] = []
        self._ran: tuple[int, str, RequestId, int, str] = 0, "", 0, 0, ""
        lane.grant, lane.revoke, hub.revoke = self.grant, self.revoke, self.revoke

    def grant(self, grant: Grant) -> None:
        if len(self._grants) >= MOST:
            self.revoke()
        number = len(self._grants)
        self._grants.append(grant)
        tab = None if grant.place is None else grant.place.tab
        if grant.place is None or tab is None:
            self._allow(number, grant.channel, self._lane.own_meta)
        elif tab.port is not None:
            words = f'"caller":{grant.words},"kind":"tools","name":"{grant.place.key}"'
            tab.port.allow(number, grant.channel, words, self._lane.meta_of(tab))

    def revoke(self) -> None:
        if self._grants:
            self._grants = []
            self._take_back()

    @property
    def taken(self) -> int:
        """The number of the last frame that came."""
        return self._transport.taken

    # -- what JavaScript tells. Those that end with an answer give the number that the next one will have (0: ask) -----

    def sent(
        self, number: int, seq: int, upto: int, channel: str, id: RequestId, call: str, header_size: int, payload: str
    ) -> None:
        """A call is under way to its tab."""
        transport, grant = self._transport, self._grants[number]
        if not transport.expects(seq, upto, channel):
            self.revoke()
            transport.violate("a call out of its turn")
            return
        transport.take(upto, channel, id, header_size + len(payload))
        tab = None if grant.place is None else grant.place.tab
        assert tab is not None and tab.port is not None
        event = Received(channel, Kind.REQ, id, None, payload, grant.caller)
        self._lane.begun(event, call, grant.name, tab, tab.port)
        transport.wind_up()

    def answered(self, call: str, text: str) -> int:
        """Its tab's answer was written."""
        plain = self._traffic.plain[call]
        tab, event = plain.tab, plain.event
        assert tab is not None and event.id is not None
        self._lane.ended(plain, tab)
        payload = passed_on(event.id, text, self._lane.meta_of(tab))
        self._transport.wrote(event.channel, event.id, payload)
        return self._transport.turn

    def run(
        self, number: int, seq: int, upto: int, channel: str, id: RequestId, header_size: int, payload: str
    ) -> str | None:
        """Run a tool of the worker's own. Returns its result as JSON text, which is told to `ran` when it is written.
        "": there is nothing to write, or not yet, and all is done. None: nothing was done."""
        transport, grant = self._transport, self._grants[number]
        tool = grant.tool
        assert tool is not None
        if not transport.expects(seq, upto, channel):
            return None
        try:
            made = tool.read(_decode(payload)[0]["params"]["arguments"])
        except Exception:  # whatever it is, the ordinary way meets it too, and says so
            return None
        size = header_size + len(payload)
        try:
            value = tool.call(made)
            text = tool.written(value)
            if text is not None and len(text) <= LONGEST:
                self._ran = upto, channel, id, size, text
                return text
            begin = partial(_give, value)
        except (Exception, SystemExit) as error:
            begin = partial(_raise, error)
        transport.take(upto, channel, id, size)
        event = Received(channel, Kind.REQ, id, None, payload, grant.caller)
        self._lane.run(event, id, grant.name, tool, begin)
        transport.wind_up()
        return ""

    def ran(self, is_written: bool) -> int:
        """The result of the tool that has just run was written, or could not be: then it is sent."""
        transport, (upto, channel, id, size, text) = self._transport, self._ran
        payload = passed_on(id, text, self._lane.own_meta)
        if is_written:
            transport.served(upto, size, channel, id, payload)
        else:
            transport.take(upto, channel, id, size)
            transport.send(channel, Kind.RES, payload, id=id)
            transport.wind_up()
        return transport.turn

    def turn(self) -> int:
        """The number that an answer will have which is written next. 0: answers have to be sent."""
        return self._transport.turn


def _give(value: Any) -> Any:
    return value


def _raise(error: BaseException) -> NoReturn:
    raise error
