"""The seam between the relay and a bus. Messages are bytes on subjects; nothing here knows what they say.

A bus keeps nothing: whoever does not listen when a message is sent never gets it. That is what makes it tell the truth
about who is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BusMessage:
    """What came. `reply`: where an answer goes, if one is wanted."""

    subject: str
    data: bytes
    reply: str = ""


# Hears an answer, once for each of those who give one; None: nobody listens there.
OnReply = Callable[[bytes | None], None]


class Bus(Protocol):
    """One connection to a bus. Everything but `start` and `stop` returns at once: what is sent leaves in order, and so
    do wishes to listen, so that an answer to the next message is not missed."""

    on_state: Callable[[bool], None]
    """Hears when the bus was reached, and when it was lost."""

    @property
    def is_up(self) -> bool:
        """Can something be sent now?"""

    @property
    def max_payload(self) -> int:
        """The largest message, in bytes."""

    async def start(self) -> None:
        """Begin to connect, and go on for ever; does not wait for the bus."""

    async def stop(self) -> None:
        """Send what is queued, then leave."""

    def subscribe(self, subject: str, on_message: Callable[[BusMessage], None]) -> Callable[[], None]:
        """Hear what is sent to `subject`, also after the bus was lost and found again; gives the way to stop it."""

    def send(self, subject: str, data: bytes, on_reply: OnReply | None = None) -> Callable[[], None]:
        """Send; raises BusDown when the bus is not there or takes no more. `on_reply` hears every answer until the
        function that is given back is called."""

    def answer(self, reply: str, data: bytes) -> None:
        """Answer a message; what can't be sent is lost."""


class BusDown(Exception):
    """The bus can't be reached, or does not take as much as it is given."""
