"""Interface of a message bus: publish, subscribe and request on subjects, with messages of bytes.

A bus stores nothing: a node that is not subscribed when a message is sent never gets it. So a reply proves that a node
is connected now. Does not interpret messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BusMessage:
    """A received message. `reply`: the subject for answers, if any are wanted."""

    subject: str
    data: bytes
    reply: str = ""


# Called with each answer; once with None if there is no subscriber.
OnReply = Callable[[bytes | None], None]


class Bus(Protocol):
    """One connection to a bus. All methods except `start` and `stop` return at once. Messages and subscriptions are
    sent in order, so that no answer to the next message is missed."""

    on_state: list[Callable[[bool], None]]
    """Each is called with True when the bus is connected, and with False when the connection is lost."""

    @property
    def is_up(self) -> bool:
        """Is the bus connected?"""

    @property
    def max_payload(self) -> int:
        """Size limit of a message, in bytes."""

    async def start(self) -> None:
        """Start connecting, and reconnect without limit; does not wait for the bus."""

    async def stop(self) -> None:
        """Send what is queued, then disconnect."""

    def subscribe(self, subject: str, on_message: Callable[[BusMessage], None]) -> Callable[[], None]:
        """Receive messages to `subject`, also after a reconnect; returns a function that unsubscribes."""

    def send(self, subject: str, data: bytes, on_reply: OnReply | None = None) -> Callable[[], None]:
        """Send; raises BusDown when the bus is not connected or its queue is full. `on_reply` is called with each
        answer until the returned function is called."""

    def answer(self, reply: str, data: bytes) -> None:
        """Answer a message; lost if it can't be sent."""


class BusDown(Exception):
    """The bus is not connected, or its queue is full."""
