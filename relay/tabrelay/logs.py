"""Logging to stderr, with every secret taken out of every line, tracebacks included.

Redaction sits in the formatter, the last place a text passes: it holds for any logger, uvicorn's too, and for whatever
an exception carries along. It recognises the relay's secrets by their shape, so it needs to know none of them; those of
others have no shape, and are named to it.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Final, TextIO

TRACE = 5
_SECRETS = re.compile(
    r"(?P<before>\bbearer[ .]|#pair=|\bpair=)[A-Za-z0-9._~+/=-]{8,}|\btr_[A-Za-z0-9_-]{16,}", re.IGNORECASE
)


SHORTEST: Final = 8  # a shorter text stands everywhere by chance
_known: set[str] = set()


def conceal(secret: str) -> None:
    """A secret that has no shape of its own is to be taken out too."""
    if len(secret) >= SHORTEST:
        _known.add(secret)


def redact(text: str) -> str:
    for secret in _known:
        text = text.replace(secret, "[redacted]")
    return _SECRETS.sub(lambda found: (found["before"] or "") + "[redacted]", text)


class RedactingFormatter(logging.Formatter):
    """Formats as usual, then takes the secrets out."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def configure(level: str, stream: TextIO | None = None) -> None:
    """One handler on the root logger; whatever was configured before is replaced."""
    logging.addLevelName(TRACE, "TRACE")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    number = TRACE if level == "trace" else getattr(logging, level.upper())
    logging.basicConfig(level=number, handlers=[handler], force=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi"):
        logging.getLogger(name).setLevel(number)
