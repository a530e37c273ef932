"""The call log: who called what, when, and how it ended. One JSON object a line, in a file that only this user reads.

A call costs a place in a short queue and nothing else: a thread reads the messages and writes the lines. When calls end
faster than the disk takes them, lines are left out and counted, and no call waits. What was asked for stands in it only
if a setting says so; what came back never does. The log of the relay itself is in `logs`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from tabrelay.calls import Call
from tabrelay.errors import RelayError
from tabrelay.logfile import LogFile
from tabrelay.logs import redact

PAUSE_S: Final = 0.1  # lines are written together
MAX_WAITING: Final = 4096  # calls whose lines are not written yet,
MAX_WAITING_SIZE: Final = 16 * 1024 * 1024  # and characters in what is known of them
MAX_RECENT: Final = 100  # for the relay's page
MAX_ARGUMENTS: Final = 4096  # characters of one call's
MAX_TEXT: Final = 200
TAIL: Final = 256 * 1024  # bytes at the end of the file that may hold the recent ones

Row = dict[str, Any]


class Ended(NamedTuple):
    """What the thread makes a line of. `reply`: only if the answer may be no plain result."""

    at: float
    took_ms: float
    server: str
    call: Call
    error: RelayError | None
    error_code: int | None
    reply: str | None

    @property
    def size(self) -> int:
        return len(self.call.payload) + len(self.reply or "")


class Journal:
    """One per relay."""

    def __init__(self, path: Path, max_bytes: int, keep: int, *, with_arguments: bool = False) -> None:
        self.path = path
        self.with_arguments = with_arguments
        self._max_bytes = max_bytes
        self._keep = keep
        self._file: LogFile | None = None
        self._is_broken = False
        self._queue: list[Ended] = []
        self._size = 0
        self._lost = 0
        self._timer: asyncio.TimerHandle | None = None
        self._thread: ThreadPoolExecutor | None = None
        # Which relay counted: a page that outlives one must not take the next one's numbers for its own.
        self._run = secrets.token_hex(4)
        self._count = 0
        self._recent: deque[Row] = deque(_tail(path), maxlen=MAX_RECENT)

    def ended(self, server: str, call: Call, took_s: float, outcome: RelayError | tuple[int | None, str]) -> None:
        """A call is over: with an error of the relay's, or with an answer (its error code, its text)."""
        error, code, reply = None, None, None
        if isinstance(outcome, RelayError):
            error = outcome
        else:
            code, text = outcome
            # A plain result needs no second look, and is not held.
            reply = text if '"isError"' in text or '"input_required"' in text else None
        row = Ended(time.time() - took_s, took_s * 1000, server, call, error, code, reply)
        if len(self._queue) >= MAX_WAITING or self._size + row.size > MAX_WAITING_SIZE:
            self._lost += 1
        else:
            self._queue.append(row)
            self._size += row.size
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._hand_over)

    def recent(self, since: str) -> Row:
        """The last calls for whoever saw those up to the mark `since`: none of them if nothing is new."""
        mark = f"{self._run}-{self._count}"
        return {
            "is_on": not self._is_broken,
            "has_arguments": self.with_arguments,
            "mark": mark,
            "calls": None if since == mark else list(self._recent),
        }

    def flush(self) -> None:
        """The relay stops: what is known is written down now."""
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        self._write(*self._take())

    def _take(self) -> tuple[list[Ended], int]:
        taken, lost = self._queue, self._lost
        self._queue, self._size, self._lost = [], 0, 0
        return taken, lost

    def _hand_over(self) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="call-log")
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._thread, self._write, *self._take())
        writing.add_done_callback(self._written)

    def _written(self, writing: asyncio.Future[list[Row]]) -> None:
        """Back on the loop. Only now may the next ones go, so that no more than one batch is in the thread."""
        self._timer = None
        if writing.cancelled():
            return
        rows = writing.result()
        self._recent.extend(rows)
        self._count += len(rows)
        if self._queue or self._lost:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._hand_over)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _write(self, ended: list[Ended], lost: int) -> list[Row]:
        rows = [self._row(each) for each in ended]
        if lost:
            rows.append({"time": _time(time.time()), "outcome": "left_out", "calls": lost})
        if rows and self._open():
            assert self._file is not None
            # Whether the file is full is asked, and the disk written to, once for many lines.
            for text in _together([json.dumps(row, ensure_ascii=False) for row in rows], self._max_bytes // 16):
                self._file.handle(logging.LogRecord("calls", logging.INFO, "", 0, text, (), None))
            # It opens again for the next lines: nothing is held by a relay that ends without a word.
            self._file.close()
        return rows

    def _open(self) -> bool:
        if self._file is None and not self._is_broken:
            try:
                self._file = LogFile(self.path, self._max_bytes, self._keep)
            except OSError as problem:
                self._is_broken = True
                logging.getLogger("tabrelay").warning("No call log: %s", problem)
        return not self._is_broken

    def _row(self, ended: Ended) -> Row:
        params = _params(ended.call.payload)
        caller = ended.call.caller
        row: Row = {
            "time": _time(ended.at),
            "server": ended.server,
            "method": ended.call.method,
            "name": _text(params.get("uri" if ended.call.method == "resources/read" else "name")),
            "principal": caller.principal,
            "client": _client(caller.client),
            "outcome": "ok",
            "ms": round(ended.took_ms, 1),
            **_outcome(ended),
        }
        if self.with_arguments:
            row |= _arguments(params.get("arguments"))
        return row


def _together(lines: Iterable[str], most: int) -> Iterable[str]:
    """Lines as texts of several, each no longer than `most` characters unless a line is."""
    text = ""
    for line in lines:
        if text and len(text) + len(line) >= most:
            yield text
            text = ""
        text = f"{text}\n{line}" if text else line
    if text:
        yield text


def _outcome(ended: Ended) -> Row:
    if ended.error is not None:
        return {"outcome": ended.error.reason, "why": _text(ended.error.message, 2 * MAX_TEXT)}
    if ended.error_code is not None:
        return {"outcome": "error", "code": ended.error_code}
    if ended.reply is None:
        return {}
    result = _object(ended.reply).get("result")
    result = result if isinstance(result, dict) else {}
    if result.get("resultType") == "input_required":
        return {"outcome": "asks_client"}
    return {"outcome": "tool_error"} if result.get("isError") is True else {}


def _arguments(value: Any) -> Row:
    """As they came; as the beginning of their text if there are too many of them."""
    clean = _redacted(value)
    text = json.dumps(clean, ensure_ascii=False)
    if len(text) <= MAX_ARGUMENTS:
        return {"arguments": clean}
    return {"arguments": text[:MAX_ARGUMENTS], "arguments_size": len(text)}


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(each) for each in value]
    if isinstance(value, dict):
        return {redact(key): _redacted(each) for key, each in value.items()}
    return value


def _client(about: dict[str, Any] | None) -> str | None:
    """What the client says of itself."""
    parts = [about.get(key) for key in ("name", "version")] if about else []
    return _text(" ".join(part for part in parts if isinstance(part, str))) or None


def _text(value: Any, most: int = MAX_TEXT) -> str:
    return redact(value[:most]) if isinstance(value, str) else ""


def _params(payload: str) -> Row:
    params = _object(payload).get("params")
    return params if isinstance(params, dict) else {}


def _object(text: str) -> Row:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _tail(path: Path) -> Iterable[Row]:
    """What an earlier relay wrote down last."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - TAIL))
        lines = file.read().decode("utf-8", "replace").splitlines()
        return [row for line in lines if (row := _object(line)) and "time" in row]
    return []
