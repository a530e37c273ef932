"""Request history of a worker: requests and their responses by channel and id, kept over sessions (L6).

Sequence numbers make a frame arrive once within a session. In a new session with the same worker, the relay sends its
pending calls again (`again`). The history then shows whether the tool runs, has run, or was never asked, so that it
runs at most once. It does not outlive the worker.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from .codec import Codec
from .jsonrpc import RequestId

P = TypeVar("P")

MAX_ANSWERS: Final = 256
MAX_SIZE: Final = 32 * 1024 * 1024
MAX_AGE_S: Final = 600.0
# Keys alone are small. They are kept for longer than responses, so that a dropped response is never taken for a request
# that did not arrive. Running requests have their own MAX_KEYS, so that many short ones can't evict a long one.
MAX_KEYS: Final = 4096


class RequestStanding(Enum):
    """State of a request that arrives again."""

    UNKNOWN = "never asked"
    RUNNING = "running"
    FORGOTTEN = "answered or given up, and the answer is gone"


class RecordedAnswer(NamedTuple, Generic[P]):
    payload: P
    size: int
    at: float


Key = tuple[str, RequestId]


class RequestHistory(Generic[P]):
    """Bounded in the number of responses, in their size and in their age."""

    def __init__(self, codec: Codec[P]) -> None:
        self._codec = codec
        self._running: dict[Key, None] = {}
        self._entries: OrderedDict[Key, RecordedAnswer[P] | RequestStanding] = OrderedDict()
        self._answers: OrderedDict[Key, RecordedAnswer[P]] = OrderedDict()
        self._size = 0
        self._due = 0.0  # when the oldest response may be too old

    def begin(self, channel: str, id: RequestId) -> None:
        """A request arrived for the first time."""
        key = (channel, id)
        if key in self._entries:
            self._forget(key)
        self._running[key] = None
        if len(self._running) > MAX_KEYS:
            self._give_up(next(iter(self._running)))

    def finish(self, channel: str, id: RequestId, payload: P, now: float) -> None:
        """Keep the response of a running request. One that is not running was cancelled or never recorded."""
        key = (channel, id)
        if key not in self._running:
            return
        del self._running[key]
        self._keep(key, payload, now)

    def record_finished(self, channel: str, id: RequestId, payload: P, now: float) -> None:
        """Keep the response of a request, whether `begin` was called for it or not."""
        key = (channel, id)
        self._running.pop(key, None)
        if key in self._entries:
            self._forget(key)
        self._keep(key, payload, now)

    def _keep(self, key: Key, payload: P, now: float) -> None:
        answer = RecordedAnswer(payload, self._codec.size(payload), now)
        self._entries[key] = answer
        self._answers[key] = answer
        self._size += answer.size
        self._trim(now)

    def lookup(self, channel: str, id: RequestId) -> RecordedAnswer[P] | RequestStanding:
        """The response of a request, or its state."""
        key = (channel, id)
        return RequestStanding.RUNNING if key in self._running else self._entries.get(key, RequestStanding.UNKNOWN)

    def close(self, channel: str) -> None:
        """The caller left. Requests of this channel must not run a second time, should they arrive again."""
        for key in [key for key in self._running if key[0] == channel]:
            self._give_up(key)

    def _give_up(self, key: Key) -> None:
        del self._running[key]
        self._entries[key] = RequestStanding.FORGOTTEN
        self._trim_keys()

    def _trim(self, now: float) -> None:
        answers = self._answers
        while len(answers) > MAX_ANSWERS or self._size > MAX_SIZE:
            self._drop_oldest()
        if now >= self._due:
            while answers and now - next(iter(answers.values())).at > MAX_AGE_S:
                self._drop_oldest()
            # No other response is too old before this time.
            self._due = next(iter(answers.values())).at + MAX_AGE_S if answers else now
        if len(self._entries) > MAX_KEYS:
            self._trim_keys()

    def _drop_oldest(self) -> None:
        """Drop the oldest response and keep its key."""
        key, answer = self._answers.popitem(last=False)
        self._size -= answer.size
        self._entries[key] = RequestStanding.FORGOTTEN

    def _trim_keys(self) -> None:
        while len(self._entries) > MAX_KEYS:
            self._forget(next(iter(self._entries)))

    def _forget(self, key: Key) -> None:
        del self._entries[key]
        answer = self._answers.pop(key, None)
        if answer is not None:
            self._size -= answer.size
