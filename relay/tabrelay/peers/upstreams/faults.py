"""Faults of upstream connections as values: a text for users, and whether the request can have arrived.

`Redactor` removes the server's secrets from texts, and `relay_error` maps a fault to the caller's error. Nothing is
retried here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from tabrelay.errors import (
    BadAnswer,
    Delivered,
    RelayError,
    ResultTooLarge,
    ServerOffline,
    UpstreamFailed,
    UpstreamGone,
)

MAX_TEXT: Final = 1000
MAX_DATA: Final = 2000
SHORTEST_SECRET: Final = 6  # a shorter one is part of too many harmless words
_CREDENTIALS: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")


@dataclass(frozen=True, slots=True)
class UpstreamFault:
    """`delivered` is "no" only if the server certainly did not act on the request. `ends_connection`: this connection
    can no longer be used, but a new one may be. `status`: the HTTP status, if there was one. `answer`: what was wrong
    with the response, if there was one."""

    text: str
    delivered: Delivered = "unknown"
    ends_connection: bool = False
    status: int | None = None
    answer: Literal["too_large", "bad"] | None = None


class ConnectionFault(Exception):
    """A request that got no response of the server."""

    def __init__(self, fault: UpstreamFault) -> None:
        super().__init__(fault.text)
        self.fault = fault


class Redactor:
    """Removes the secrets of one server from texts about it, and shortens them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        # A header's value is often a scheme and a token. The token alone must not be shown either.
        known |= {part for secret in known for part in secret.split() if len(part) >= SHORTEST_SECRET}
        ordered = sorted(known, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, text: str, limit: int = MAX_TEXT) -> str:
        if self._known is not None:
            text = self._known.sub("[redacted]", text)
        text = _CREDENTIALS.sub(r"\1 [redacted]", text)
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def fault(self, fault: UpstreamFault) -> UpstreamFault:
        return replace(fault, text=self(fault.text))


def relay_error(server: str, fault: UpstreamFault) -> RelayError:
    """The error that the caller gets."""
    if fault.answer is not None:
        kind = ResultTooLarge if fault.answer == "too_large" else BadAnswer
        return kind(f'Server "{server}" answered, but {fault.text}.')
    if fault.status is not None and not fault.ends_connection:
        error: RelayError = UpstreamFailed(f'Server "{server}" refused the request: {fault.text}')
        error.delivered = fault.delivered
        return error
    if fault.delivered == "no":
        return ServerOffline(f'Server "{server}" could not be reached: {fault.text}', retry_after_ms=3000)
    return UpstreamGone(f'Server "{server}" was lost while it had the call: {fault.text}')


def first_leaf(error: BaseException) -> BaseException:
    """The first error inside exception groups, in which task groups wrap errors."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
