"""Call that can't start yet: its browser is away, its relay or its list is being looked up, or it is large.

The face awaits `started`, which waits and starts the call in the switch. What it waits for is decided there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tabrelay.calls.calls import Call, Pending
from tabrelay.calls.peer import CallOwner

if TYPE_CHECKING:
    from tabrelay.routing.switch import Switch


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class WaitingCall:
    """One call, and when it was received."""

    call: Call
    _server: str
    _owner: CallOwner | None
    _began: float
    _switch: Switch
    is_held: bool = False  # a person decides about it first

    async def started(self) -> Pending:
        """Wait, and start it. It has ended if that fails."""
        return await self._switch.start_later(self._server, self.call, self._owner, self._began, is_held=self.is_held)
