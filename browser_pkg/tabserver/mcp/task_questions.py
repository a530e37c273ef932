"""Questions of a task to its client: open until an answer comes with `tasks/update`, or on a session's `tasks/result`.

The key of a question is never used again in the same task, so a late answer can't match another question. How a
question reaches a client is decided in `task_methods`; what it contains is defined in `handlers.questions`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..handlers.questions import Answer, Question, new_key

MOST_OPEN: Final = 64  # questions of one task that wait for an answer
MOST_KEYS: Final = 4096  # questions that one task may ask in its life


@dataclass(slots=True, eq=False)
class OpenQuestion:
    """`is_sent`: a session has it as a request, and its answer is on the way."""

    question: Question[Any]
    answer: asyncio.Future[Answer]
    is_sent: bool = False


class TaskQuestions:
    """The questions of one task. `changed` is called when one is asked or answered."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.open: dict[str, OpenQuestion] = {}
        self._used: set[str] = set()
        self._numbers = itertools.count(1)

    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        """Wait for the answer. It has no deadline but the task's."""
        if len(self.open) >= MOST_OPEN:
            raise ValueError(f"{MOST_OPEN} questions of this task are open already")
        if len(self._used) >= MOST_KEYS:
            raise ValueError(f"a task asks at most {MOST_KEYS:,} questions")
        key = self._unused(key if key is not None else new_key(question, {}, self._numbers))
        self._used.add(key)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.open[key] = OpenQuestion(question, answer)
        self._changed()
        try:
            return await answer
        finally:
            if self.open.pop(key, None) is not None:
                self._changed()

    def _unused(self, key: str) -> str:
        """2026-07-28: a key must not be used for two questions of one task."""
        if key not in self._used:
            return key
        return next(found for number in itertools.count(2) if (found := f"{key}-{number}") not in self._used)

    def receive(self, answers: Mapping[str, Answer]) -> None:
        """Answers by key. Those that no open question waits for are ignored."""
        given = {key: self.open.pop(key) for key in answers if key in self.open}
        for key, asked in given.items():
            if not asked.answer.done():
                asked.answer.set_result(answers[key])
        if given:
            self._changed()

    def refuse(self, key: str, error: Exception) -> None:
        """The client answered this question with an error."""
        asked = self.open.pop(key, None)
        if asked is not None and not asked.answer.done():
            asked.answer.set_exception(error)
            self._changed()

    def close(self) -> None:
        """The task is over."""
        waiting, self.open = list(self.open.values()), {}
        for asked in waiting:
            asked.answer.cancel()
