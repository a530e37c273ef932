"""Limits for questions that a server asks its clients during calls: how many are open, and how large they are.

For connections on which one server serves many callers: plain pages and upstreams. A server that asks more gets an
error for that question, and its call continues. Pure: the owner keeps the questions themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from tabrelay.config.settings import Settings


@dataclass(frozen=True, slots=True)
class QuestionLimits:
    """`per_call` and `per_connection`: questions without an answer. `size`: characters of these, on one connection."""

    per_call: int
    per_connection: int
    size: int


def limits_of(settings: Settings) -> QuestionLimits:
    return QuestionLimits(settings.max_questions, settings.max_questions_server, settings.question_budget)


class OpenQuestions:
    """The questions of one connection that have no answer yet, counted by the call that they belong to."""

    def __init__(self, limits: QuestionLimits) -> None:
        self._limits = limits
        self._by_call: Counter[Hashable] = Counter()
        self._count = 0
        self._size = 0

    def __len__(self) -> int:
        return self._count

    def refusal(self, call: Hashable, size: int) -> str | None:
        """Why this call can't ask one more question of that size; None if it can."""
        limits = self._limits
        # defence: open questions: of one call
        if self._by_call[call] >= limits.per_call:
            return f"This call has {limits.per_call} open questions already. Wait for an answer before you ask again."
        # defence: open questions: on one socket
        if self._count >= limits.per_connection:
            return f"This server has {limits.per_connection} open questions already. Wait for an answer and ask again."
        # defence: open questions: their size
        if self._size + size > limits.size:
            return f"Open questions of one server have at most {limits.size:,} characters together. Ask for less."
        return None

    def add(self, call: Hashable, size: int) -> None:
        self._by_call[call] += 1
        self._count += 1
        self._size += size

    def remove(self, call: Hashable, size: int) -> None:
        """The question was answered or withdrawn, or its call has ended."""
        self._by_call[call] -= 1
        if not self._by_call[call]:
            del self._by_call[call]
        self._count -= 1
        self._size -= size
