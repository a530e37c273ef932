"""The command that starts this program again, for messages that users paste and for processes that are started later.

Where `tabrelay` is not on the PATH, or another installation is, it is the full path of this one. Nothing is started
here.
"""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

NAME: Final = "tabrelay"


def program() -> tuple[str, ...]:
    """The full path of this installation's program, for processes with no PATH or another one."""
    beside = _beside()
    # -P: it may be started in any directory, and must not import modules from there.
    return (str(beside),) if beside.is_file() else (sys.executable, "-P", "-m", NAME)


@functools.cache
def command() -> str:
    """The command that starts this program in a shell: its name if that is enough, otherwise the full path."""
    found, beside = shutil.which(NAME), _beside()
    if found is not None and (not beside.is_file() or Path(found).resolve() == beside.resolve()):
        return NAME
    return shlex.join(program())


def pasteable(text: str, verbs: frozenset[str]) -> str:
    """The text with the commands in it as they can be pasted here. It may come from another program, as the relay."""
    if command() == NAME:
        return text
    pattern = rf"(?<![\w/.\\-]){NAME}(?= (?:{'|'.join(map(re.escape, sorted(verbs)))})\b)"
    return re.sub(pattern, lambda _: command(), text)


def _beside() -> Path:
    """The script of this installation."""
    return Path(sys.executable).with_name(f"{NAME}.exe" if sys.platform == "win32" else NAME)
