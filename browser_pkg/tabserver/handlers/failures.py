"""Log of what handlers raise: the exception of a tool, resource or prompt, for the console of its developer.

The caller of a tool gets the type and the message; the developer needs the traceback. Both get the command that adds a
missing package, where the interpreter's owner knows one. The worker and the page each listen to the one log of their
interpreter. A refusal is an answer, not a failure, so it is not logged.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Final

from ..rpc import Refusal
from ..schema.types import NotJson

_MOST_FRAMES: Final = 50
_MOST_CHARACTERS: Final = 10_000
# Files of pages have their addresses as names; the frames before the first of them are this package's.
_PAGE_FILES: Final = ("http://", "https://", "<exec>")

# What is reported: a text of one or more lines, and the files that its traceback leads through.
Listener = Callable[[str, frozenset[str]], None]
# What the user can do about a failed import, or "".
Advise = Callable[[ModuleNotFoundError], str]


class FailureLog:
    """What handlers of this interpreter raise. It has one listener."""

    def __init__(self) -> None:
        self.listen(lambda text, files: None)

    def listen(self, listener: Listener, advise: Advise = lambda error: "") -> None:
        self._listener, self._advise = listener, advise

    def advice(self, error: BaseException) -> str:
        """What the user can do about an error, or ""."""
        return self._advise(error) if isinstance(error, ModuleNotFoundError) else ""

    def text_of(self, error: BaseException) -> str:
        """The type and the message of an error, and the advice."""
        kind, message, advice = type(error).__name__, str(error), self.advice(error)
        text = f"{kind}: {message}" if message else kind
        return f"{text}. {advice}" if advice else text

    def report(self, owner: str, error: BaseException) -> None:
        """`owner`: what raised, such as `tool add`."""
        if isinstance(error, Refusal):
            return
        kind, _, name = owner.partition(" ")
        shown = f'{kind.capitalize()} "{name}"'
        if isinstance(error, NotJson):
            self._listener(f"{shown} returned what can't be sent: {error} [TR132]", frozenset())
            return
        text, files = describe_failure(error)
        lines = [f"{shown} failed. [TR474]", text, *filter(None, [self.advice(error)])]
        self._listener("\n".join(lines), files)


def describe_failure(error: BaseException) -> tuple[str, frozenset[str]]:
    """The traceback from the first frame in a file of a page on, and all such files in it."""
    first, files = None, set()
    frame = error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if file.startswith(_PAGE_FILES):
            first = first or frame
            files.add(file)
        frame = frame.tb_next
    lines = traceback.format_exception(type(error), error, first or error.__traceback__, limit=-_MOST_FRAMES)
    return "".join(lines).rstrip()[-_MOST_CHARACTERS:], frozenset(files)


handler_failures: Final = FailureLog()
