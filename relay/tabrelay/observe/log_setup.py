"""Logging setup: stderr and a log file, with all secrets redacted from every line, including tracebacks.

The formatters redact, as the last step: this covers every logger, uvicorn's too, and the texts of exceptions. The
relay's own secrets are recognised by their form; secrets of others have no form and are registered by `add_secret`. The
file is JSON, one object per line, and is rotated. A line that can't be written there does not stop the relay.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from tabrelay.config.settings import Settings

TRACE = 5
FILE_LEVEL: Final = logging.INFO
SHORTEST: Final = 8  # a shorter text occurs by chance
_SECRETS = re.compile(
    r"(?P<before>\bbearer[ .]|#pair=|\bpair=)[A-Za-z0-9._~+/=-]{8,}|\btr_[A-Za-z0-9_-]{16,}|\btrp_[A-Za-z0-9_.-]{16,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",  # JSON Web Tokens
    re.IGNORECASE,
)
# Characters that move a terminal's cursor, start a line, or reverse text.
_NOT_PRINTED: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
MOST_KNOWN: Final = 1024  # secrets; beyond this, the oldest are no longer redacted
_known: dict[str, None] = {}
_version = 0


def add_secret(secret: str) -> None:
    """Redact this text too: a secret without a recognisable form."""
    global _version
    if len(secret) >= SHORTEST and secret not in _known:
        _known[secret] = None
        _version += 1
        if len(_known) > MOST_KNOWN:
            del _known[next(iter(_known))]


def secrets_version() -> int:
    """A number that changes with each new secret."""
    return _version


def redact(text: str) -> str:
    for secret in _known:
        text = text.replace(secret, "[redacted]")
    # defence: tokens in logs
    return _SECRETS.sub(lambda found: (found["before"] or "") + "[redacted]", text)


def one_line(text: str) -> str:
    """The text as one line with control characters escaped: messages contain untrusted text."""
    return _NOT_PRINTED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class RedactingFormatter(logging.Formatter):
    """Formats as usual, the message on one line, then redacts."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class JsonFormatter(logging.Formatter):
    """One object per line: time (UTC), level, logger, message, and the traceback if there is one."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        row = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        if record.exc_info:
            row["exception"] = redact(self.formatException(record.exc_info))
        return json.dumps(row, ensure_ascii=False)


def configure(level: str, stream: TextIO | None = None, *, is_json: bool = False) -> None:
    """Install one handler on the root logger; replaces an earlier configuration."""
    logging.addLevelName(TRACE, "TRACE")
    handler = logging.StreamHandler(stream or sys.stderr)
    text = RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if is_json else text)
    number = _number(level)
    handler.setLevel(number)
    logging.basicConfig(level=number, handlers=[handler], force=True)
    _set_uvicorn_level(number)


def add_log_file(settings: Settings) -> Path | None:
    """Also log to the file of the settings. Returns its path; None if there is none."""
    path = log_path(settings.home, settings.port, settings.log_file)
    if path is None:
        return None
    from tabrelay.observe.log_file import PrivateRotatingFile

    try:
        handler = PrivateRotatingFile(path, settings.log_max, settings.log_keep)
    except OSError as problem:
        logging.getLogger("tabrelay").warning("No log file: %s", problem)
        return None
    handler.setFormatter(JsonFormatter())
    number = min(FILE_LEVEL, _number(settings.log_level))
    handler.setLevel(number)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(number)
    _set_uvicorn_level(number)
    return path


def log_path(home: Path, port: int, setting: str, stem: str = "relay") -> Path | None:
    """Relays of one user share the state directory, but not the file: its name contains the port."""
    if setting.lower() in ("none", "no", "off"):
        return None
    return Path(setting).expanduser() if setting else home / "log" / f"{stem}-{port}.log"


def log_files(path: Path) -> Sequence[Path]:
    """The log file and the rotated ones, the oldest first."""
    aside = sorted(path.parent.glob(f"{path.name}.*"), key=lambda one: -_age(one))
    return [*(one for one in aside if _age(one)), *([path] if path.is_file() else [])]


def _age(path: Path) -> int:
    return int(path.suffix[1:]) if path.suffix[1:].isdigit() else 0


def _number(level: str) -> int:
    return TRACE if level == "trace" else int(getattr(logging, level.upper()))


def _set_uvicorn_level(number: int) -> None:
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi"):
        logging.getLogger(name).setLevel(number)
