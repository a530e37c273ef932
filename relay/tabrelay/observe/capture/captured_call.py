"""Captured call: one request with everything that the relay observed of it, as it happened.

Implements `Trace`, so the switch and the pending call report to it. Texts are kept unchanged and cut at a bound; they
are redacted when they are read, in `rows`. Does not decide which calls are captured, nor how many are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tabrelay.calls.calls import Call, Notice, Pending, Reply
from tabrelay.calls.peer import Peer, PeerKind
from tabrelay.calls.trace_context import Headers, Trace
from tabrelay.errors import RelayError
from tabrelay.observe.call_metrics import outcome_of
from tabrelay.observe.capture.breakpoints import CALL, RESULT, Breakpoints
from tabrelay.observe.capture.breakpoints import WHY as HELD
from tabrelay.observe.capture.hop_times import HopTimes
from tabrelay.payloads.sliced import Payload
from tabserver.wire.call_times import APPROVAL

if TYPE_CHECKING:
    from tabserver.wire.call_times import ReportedTimes
    from tabserver.wire.clock_offset import ClockOffset
    from tabserver.wire.frames import Caller

# Of one call. With more, the last ones are counted and not kept.
MAX_NOTICES: Final = 1000
MAX_EVENTS: Final = 200
MAX_TEXTS: Final = 4  # so many texts of the largest size may its notices and events fill together
# Characters that are kept of a text which is too long: searching them for secrets takes a few milliseconds.
MAX_BEGINNING: Final = 32 * 1024
# Bytes of a captured call beside its texts.
OVERHEAD: Final = 2048

ASKS_CLIENT: Final = "asks_client"  # the outcome of a call whose result is questions
CANCELLED: Final = "cancelled"  # the reason of a call whose client hung up
CLIENT: Final = "client"
PEERS: Final = {PeerKind.PLAIN: "browser"}  # what a peer is called, if not by its kind
CONSOLE: Final = "console"
# What the user answered who was asked in the page.
ALLOWED: Final = "allowed"
NOT_ALLOWED: Final = "not allowed"
REPLAY: Final = "replay"  # an event: the call was sent again


class TimedText(NamedTuple):
    """A message at a time, in seconds since 1970. `kind`: `notice`, or what happened to the call."""

    at: float
    kind: str
    text: str


class CutText(NamedTuple):
    """The beginning of a text, and the length of all of it in bytes."""

    text: str
    size: int
    is_cut: bool


NO_TEXT: Final = CutText("", 0, is_cut=False)


class CapturedCall:
    """`changed` is called whenever it has changed, with the bytes by which it grew."""

    __slots__ = (
        *("_changed", "_inner", "_kept", "_most", "_title_of", "answer", "approval", "by", "caller", "cost", "dropped"),
        *("ended_at", "error", "events"),
        *("group", "headers", "id", "is_kept", "is_waiting", "method", "name", "notices", "outcome", "peer", "place"),
        *(
            "_breakpoints",
            "hops",
            "is_held_now",
            "released_at",
            "replays",
            "request",
            "rounds",
            "sent_at",
            "seq",
            "server",
            "started",
            "tab",
            "tab_title",
            "trace_id",
        ),
    )

    def __init__(
        self,
        seq: int,
        id: str,
        server: str,
        method: str,
        headers: Headers,
        *,
        breakpoints: Breakpoints,
        most: int,
        changed: Callable[[CapturedCall, int], None],
        inner: Trace | None = None,
        by: str = CLIENT,
        trace_id: str | None = None,
        received: float | None = None,
        earlier: CapturedCall | None = None,
        title_of: Callable[[str, str], str | None] = lambda place, tab: None,
    ) -> None:
        """`most`: bytes of each of its texts. `inner`: another observer, which gets everything too. `received`: its
        first byte, by the monotonic clock. `earlier`: the round of the same call before this one. `title_of`: the
        title of a tab, by the address of its browser and its id."""
        self.seq, self.id, self.server, self.method, self.headers = seq, id, server, method, headers
        self._most, self._changed, self._inner = most, changed, inner
        self.by, self.trace_id = by, trace_id
        self.group: str = id if earlier is None else earlier.group
        self.rounds: int = 1 if earlier is None else earlier.rounds + 1
        self.is_kept = True
        self.cost = OVERHEAD
        self._kept = 0  # characters of notices and events
        self.started = time.time()
        self.hops = HopTimes(received)
        self._breakpoints = breakpoints
        self.is_held_now = False
        self.tab: str | None = None
        self.tab_title: str | None = None
        self.approval: str | None = None
        self._title_of = title_of
        self.replays = 0
        self.sent_at: float | None = None
        self.ended_at: float | None = None
        self.released_at: float | None = None
        self.is_waiting = True
        self.name: str | None = None
        self.caller: Caller | None = None
        self.peer, self.place = "relay", server
        self.request = self.answer = NO_TEXT
        self.notices: list[TimedText] = []
        self.events: list[TimedText] = []
        self.dropped = 0
        self.outcome: str | None = None
        self.error: RelayError | int | None = None

    is_timed: Final = True

    # -- Trace --------------------------------------------------------------------------------------------------------

    def lookup_started(self, server: str, call: Call) -> None:
        self.caller, self.name = call.caller, call.name
        self.request = cut(call.payload, self._most)
        if self._inner is not None:
            self._inner.lookup_started(server, call)
        self._grown(len(self.request.text))

    def sent(self, place: str, kind: str, peer: Peer) -> None:
        self.hops.send(peer.kind)
        self.sent_at, self.is_waiting = time.time(), False
        self.place, self.peer = place, PEERS.get(peer.kind, peer.kind.value)
        if self._inner is not None:
            self._inner.sent(place, kind, peer)
        self._grown(0)

    @property
    def is_held(self) -> bool:
        return self._breakpoints.find(self, CALL)

    async def let_call_go(self, call: Call, until: float) -> Call:
        self._held(True)
        try:
            going = await self._breakpoints.let_call_go(self, call, until)
        finally:
            self._held(False)
        if going is not call:
            self.request = cut(going.payload, self._most)
            self._grown(len(self.request.text))
        return going

    @property
    def hold_result(self) -> Callable[[Pending, Reply], None] | None:
        return self._hold_result if self._breakpoints.find(self, RESULT) else None

    def _hold_result(self, pending: Pending, reply: Reply) -> None:
        self._held(True)
        self._breakpoints.hold_result(self, pending, reply)

    def _held(self, is_held: bool) -> None:
        self.is_held_now = is_held
        if is_held:
            self.hops.wait(HELD)
        else:
            self.hops.stop_waiting()
        self._grown(0)

    def waits(self, why: str) -> None:
        self.hops.wait(why)
        self.happened("wait", why)

    def answered(self, reported: ReportedTimes | None, clock: ClockOffset) -> None:
        self.hops.answer(reported, clock)
        if reported is not None:
            self.tab = reported.tab
            self.tab_title = None if reported.tab is None else self._title_of(self.place, reported.tab)
            if any(why == APPROVAL for why, *_ in reported.holds):
                self.approval = ALLOWED if reported.posted is not None or reported.run is not None else NOT_ALLOWED

    def noticed(self, notice: Notice) -> None:
        if self._inner is not None:
            self._inner.noticed(notice)
        if not notice.ends_stream and not notice.is_ours:
            self._keep(self.notices, MAX_NOTICES, "notice", notice.payload)

    def happened(self, kind: str, text: str) -> None:
        """Something that is no message of the server: a wait, a cut, a replay."""
        self.replays += kind == REPLAY
        self._keep(self.events, MAX_EVENTS, kind, text)

    def ended(self, outcome: RelayError | tuple[int | None, str], reply: Payload | None) -> None:
        self.ended_at, self.is_waiting = time.time(), False
        self.hops.end()
        self.is_held_now = False
        self._breakpoints.ended(self)
        self.outcome = outcome_of(outcome)
        self.error = outcome if isinstance(outcome, RelayError) else outcome[0]
        if reply is not None:
            self.answer = cut(reply, self._most)
        if self._inner is not None:
            self._inner.ended(outcome, reply)
        self._grown(len(self.answer.text))

    def released(self) -> None:
        self.released_at = time.time()
        self.hops.release()
        if self.ended_at is None:  # its caller left before it was started
            self.ended_at, self.outcome, self.is_waiting = self.released_at, CANCELLED, False
            self.hops.end()
            self._grown(0)
        if self._inner is not None:
            self._inner.released()

    # -- what is kept -------------------------------------------------------------------------------------------------

    def _keep(self, texts: list[TimedText], most: int, kind: str, text: str) -> None:
        text = text[: self._most]
        # defence: notices and events of one captured call
        if len(texts) >= most or self._kept + len(text) > MAX_TEXTS * self._most or not self.is_kept:
            self.dropped += 1
            return
        self._kept += len(text)
        texts.append(TimedText(time.time(), kind, text))
        self._grown(len(text) + 100)

    def _grown(self, size: int) -> None:
        if self.is_kept:
            self.cost += size
            self._changed(self, size)

    def forget(self) -> None:
        """It was removed from the ring."""
        self.is_kept = False
        self.notices, self.events = [], []
        self.request = self.answer = NO_TEXT


def cut(payload: Payload, most: int) -> CutText:
    """The whole text, if it has at most `most` characters, else its beginning."""
    size = len(payload)
    if isinstance(payload, str):
        is_cut = size > most
        return CutText(payload[:MAX_BEGINNING] if is_cut else payload, size, is_cut)
    if size <= most:
        return CutText(payload.decode(), size, is_cut=False)
    parts: list[bytes] = []
    left = MAX_BEGINNING
    for part in payload:
        parts.append(part[:left])
        left -= len(part)
        if left <= 0:
            break
    return CutText(b"".join(parts).decode("utf-8", "ignore"), size, is_cut=True)


def client_of(caller: Caller | None) -> dict[str, Any]:
    """What the client says of itself."""
    return (caller.client or {}) if caller is not None else {}
