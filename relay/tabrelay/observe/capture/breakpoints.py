"""Breakpoints: captured calls and results that match a pattern wait until a console releases, edits or refuses them.

A held call keeps its deadline, a held result that of its call. Everything is released when the last console closes, and
what exceeds the bound is not held. Which consoles may decide is checked by the routes.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import orjson

from tabrelay.calls.calls import Call, Pending, Reply
from tabrelay.errors import DeadlinePassed, RelayError
from tabrelay.observe.redaction import restored
from tabserver.wire import methods

if TYPE_CHECKING:
    from tabrelay.observe.capture.captured_call import CapturedCall

MAX_BREAKPOINTS: Final = 32
MAX_HELD: Final = 100  # calls and results together
MAX_PATTERN: Final = 256  # characters
MAX_TEXT: Final = 2048  # characters of a name that are compared; no longer URI can be subscribed to
MAX_EDITABLE: Final = 1024 * 1024  # characters of a message that is shown and edited
CALL: Final = "call"
RESULT: Final = "result"
PLACES: Final = {"call": frozenset({CALL}), "result": frozenset({RESULT}), "both": frozenset({CALL, RESULT})}
HOLDABLE: Final = frozenset(
    {methods.TOOLS_CALL, methods.RESOURCES_READ, methods.PROMPTS_GET, methods.COMPLETION_COMPLETE}
)
FIELDS: Final = ("server", "method", "name", "client")
WHY: Final = "It is held by a breakpoint of the console."


class RefusedInConsole(RelayError):
    """A person refused the call, or its result, at a breakpoint."""

    reason = "refused_in_console"


class ResultRefusedInConsole(RefusedInConsole):
    delivered = "unknown"


class HeldTooLong(RelayError):
    """The deadline of a call passed while it was held, so nothing was sent."""

    code, reason = DeadlinePassed.code, DeadlinePassed.reason


class BadBreakpoint(ValueError):
    """It is not a breakpoint, or what is released is no message."""


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """`fields`: patterns, cut at `*`, by what they apply to. `may_see`: the servers of the console that set it."""

    at: str
    fields: tuple[tuple[str, tuple[str, ...]], ...]
    may_see: Callable[[str], bool]
    shown: Mapping[str, str]

    @classmethod
    def read(cls, value: object, may_see: Callable[[str], bool]) -> Breakpoint:
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise BadBreakpoint("A breakpoint is an object of texts.")
        at = value.get("at", "both")
        given = {name: value[name] for name in FIELDS if value.get(name)}
        if (
            at not in PLACES
            or value.keys() - {"at", *FIELDS}
            or any(len(each) > MAX_PATTERN for each in given.values())
        ):
            raise BadBreakpoint(f"A breakpoint has at (call, result or both) and {', '.join(FIELDS)}.")
        fields = tuple((name, tuple(text.split("*"))) for name, text in given.items())
        return cls(at, fields, may_see, {"at": at, **given})

    def matches(self, call: CapturedCall, place: str, texts: Mapping[str, str]) -> bool:
        return (
            place in PLACES[self.at]
            and all(_is_match(parts, texts[name]) for name, parts in self.fields)
            and self.may_see(call.server)
        )


def _is_match(parts: tuple[str, ...], text: str) -> bool:
    """`parts`: of a pattern, cut at its `*`. Each is searched for once: a regular expression would try all ways to
    divide a text, which a client has chosen, among many `*`."""
    first, *others = parts
    if not others:
        return text == first
    *middle, last = others
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


class HeldMessage:
    """One call or result that waits. `text` returns the message; `decide` ends the wait."""

    def __init__(
        self,
        id: str,
        call: CapturedCall,
        place: str,
        until: float,
        text: Callable[[], str],
        decide: Decide,
        drop: Callable[[], None],
    ) -> None:
        """`until`: by the monotonic clock. `drop`: the call has ended without a decision."""
        self.id, self.call, self.place, self.until = id, call, place, until
        self.text, self.decide, self.drop = text, decide, drop
        self.since = time.time()

    def edited(self, member: str, value: object) -> str:
        """The message with other `params`, `result` or `error`; hidden values are those of the original. May take a
        while."""
        text = self.text()
        if len(text) > MAX_EDITABLE:
            raise BadBreakpoint("The message is too long to be edited. Release or refuse it.")
        message = orjson.loads(text)
        if not isinstance(value, dict):
            raise BadBreakpoint(f"{member} must be an object.")
        before = message.get(member)
        fresh = restored(value, before) if isinstance(before, dict) else value
        if member == "params" and isinstance(before, dict) and "_meta" in before:
            fresh["_meta"] = before["_meta"]
        for other in ("result", "error") if member != "params" else ():
            message.pop(other, None)
        return orjson.dumps({**message, member: fresh}).decode()


# A person's decision: an edited message, None for the message as it is, or why it was refused.
Decision = str | RelayError | None
Decide = Callable[[Decision], None]


class Breakpoints:
    """One per relay. `changed` is called when breakpoints or held messages are others."""

    def __init__(self, deadline_s: float, changed: Callable[[], None]) -> None:
        self._deadline_s, self._changed = deadline_s, changed
        self.wanted: tuple[Breakpoint, ...] = ()
        self.held: dict[str, HeldMessage] = {}
        self._numbers = itertools.count(1)

    def use(self, wanted: tuple[Breakpoint, ...]) -> None:
        self.wanted = wanted
        self._changed()

    def clear(self) -> None:
        """No console is open any more: everything goes on."""
        # defence: held calls whose console is gone
        self.release_all(lambda server: True)
        if self.wanted:
            self.use(())

    def release_all(self, may_see: Callable[[str], bool]) -> None:
        for held in list(self.held.values()):
            if may_see(held.call.server):
                self.decide(held, None)

    def decide(self, held: HeldMessage, decision: Decision) -> None:
        """End the wait of one, unless it has ended."""
        if self.held.pop(held.id, None) is not None:
            kind = "released" if decision is None else "refused" if isinstance(decision, RelayError) else "edited"
            held.call.happened(kind, f"The {held.place} was {kind} in the console.")
            held.decide(decision)
            self._changed()

    def find(self, call: CapturedCall, place: str) -> bool:
        """Does a breakpoint match?"""
        if not self.wanted or call.method not in HOLDABLE:
            return False
        # defence: calls that are held
        if len(self.held) >= MAX_HELD:
            return False
        client = call.caller.client if call.caller is not None else None
        texts = {
            "server": call.server,
            "method": call.method,
            # defence: loop time of breakpoints
            "name": (call.name or "")[:MAX_TEXT],
            "client": name[:MAX_TEXT] if isinstance(name := (client or {}).get("name"), str) else "",
        }
        return any(each.matches(call, place, texts) for each in self.wanted)

    # -- holding ------------------------------------------------------------------------------------------------------

    def _hold(
        self,
        call: CapturedCall,
        place: str,
        until: float,
        text: Callable[[], str],
        decide: Decide,
        drop: Callable[[], None] = lambda: None,
    ) -> HeldMessage:
        id = f"{call.id.partition('-')[0]}-h{next(self._numbers)}"
        held = HeldMessage(id, call, place, until, text, decide, drop)
        self.held[held.id] = held
        call.happened("held", f"The {place} is held by a breakpoint.")
        self._changed()
        return held

    def _forget(self, held: HeldMessage) -> None:
        if self.held.pop(held.id, None) is not None:
            self._changed()

    async def let_call_go(self, captured: CapturedCall, call: Call, until: float) -> Call:
        """Hold a call; returns it as it should be sent. Raises RelayError if it is refused, or its deadline passes."""
        # defence: calls that are held at the same moment
        if len(self.held) >= MAX_HELD:  # others have come since a breakpoint was found for it
            return call
        decided: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()

        def decide(decision: Decision) -> None:
            if not decided.done():  # its caller may have left
                decided.set_result(decision)

        held = self._hold(captured, CALL, until, lambda: call.payload, decide)
        try:
            # defence: the deadline of a held call
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                decision = await decided
        except TimeoutError:
            raise HeldTooLong("The call was held by a breakpoint until its deadline.") from None
        finally:
            self._forget(held)
        if isinstance(decision, RelayError):
            raise decision
        return call if decision is None else replace(call, payload=decision, values=None)

    def hold_result(self, captured: CapturedCall, pending: Pending, reply: Reply) -> None:
        """Hold the reply of a call. The call's own deadline may end it."""

        def decide(decision: Decision) -> None:
            if isinstance(decision, RelayError):
                reply.release()
                pending.end(decision)
            elif decision is None:
                pending.end(reply)
            else:
                reply.release()
                code = orjson.loads(decision).get("error", {}).get("code")
                pending.end(Reply(decision, code if isinstance(code, int) else None))

        until = time.monotonic() + max(0.0, self._deadline_s - (time.monotonic() - pending.sent_at))
        self._hold(captured, RESULT, until, lambda: reply.payload, decide, reply.release)

    def ended(self, captured: CapturedCall) -> None:
        """The call has ended: nothing of it is held any more."""
        for held in [each for each in self.held.values() if each.call is captured]:
            self._forget(held)
            held.drop()
