"""Call log: caller, method, time and outcome of each call, one JSON object per line, in a file private to this user.

Lines of plain calls are formatted in batches from their common part. A thread writes the lines, and formats those that
need a message parsed. When calls end faster than the disk accepts lines, or the disk is full, lines are left out and
counted; no call waits. Arguments are logged only with a setting, results never. The relay's own log is in
`log_setup`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from tabrelay.calls.calls import PLAIN_RESULT, Call
from tabrelay.errors import RelayError
from tabrelay.observe.log_file import PrivateRotatingFile
from tabrelay.observe.log_setup import one_line, redact, secrets_version
from tabrelay.observe.redaction import redacted
from tabrelay.system.private_files import NO_LINK, NO_WAIT
from tabserver.wire import methods
from tabserver.wire.frames import well_formed

PAUSE_S: Final = 0.1  # between two writes
BATCH: Final = 64  # plain calls whose lines are formatted in one callback; calls wait meanwhile
MAX_WAITING: Final = 4096  # calls whose lines are not written yet
MAX_WAITING_SIZE: Final = 16 * 1024 * 1024  # characters in the messages of these calls
MAX_RECENT: Final = 100  # for the relay's page
MAX_ARGUMENTS: Final = 4096  # characters of one call's
MAX_PARSED: Final = 64 * 1024  # characters of an answer that is parsed
_FAILED: Final = re.compile(r'"isError"\s*:\s*true')
_ASKED: Final = re.compile(r'"resultType"\s*:\s*"input_required"')
MAX_TEXT: Final = 200
MAX_SECRET: Final = 4096
TAIL: Final = 256 * 1024  # bytes at the end of the file that may hold the recent ones

MILLISECONDS: Final = tuple(f".{number:03d}Z" for number in range(1000))  # looked up faster than formatted

Row = dict[str, Any]
# A plain call: start, duration, and the rest of its line: server, method, name and caller.
PlainCall = tuple[float, float, tuple[str, str, str, str]]


class EndedCall(NamedTuple):
    """What the thread formats as a line. `reply`: only if the reply may be no plain result."""

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


class CallLog:
    """One per relay."""

    def __init__(self, path: Path, max_bytes: int, keep: int, *, with_arguments: bool = False) -> None:
        self.path = path
        self.with_arguments = with_arguments
        self._max_bytes = max_bytes
        self._keep = keep
        self._file: PrivateRotatingFile | None = None
        self._is_broken = False
        self._queue: list[EndedCall | str] = []
        self._plain_calls: list[PlainCall] = []  # the latest, which are not in the queue yet
        self._size = 0
        self._lost = 0
        self._left_out = 0  # since the start, because the queue was full
        self._failed = 0  # since the start, because they could not be written; only the thread changes it
        self._unwritten = 0  # since the last successful write
        self._may_end_within_line = False  # may the file end in the middle of a line?
        self._timer: asyncio.TimerHandle | None = None
        self._thread: ThreadPoolExecutor | None = None
        # Identifies this process: a page that outlives a relay must not mistake the next one's numbers for its own.
        self._run = secrets.token_hex(4)
        self._count = 0
        self._recent: deque[str] = deque(_tail(path), maxlen=MAX_RECENT)

    def record(self, server: str, call: Call, took_s: float, outcome: RelayError | tuple[int | None, str]) -> None:
        """A call has ended: with an error of the relay, or with a reply (its error code, its text)."""
        began, name, caller = time.time() - took_s, call.name, call.caller.text
        is_plain = outcome is PLAIN_RESULT and not self.with_arguments
        # Is everything in its line known without parsing, and short enough to be cached for the next call?
        if is_plain and name is not None and len(name) <= MAX_TEXT and len(caller) <= MAX_SECRET:
            plain_calls = self._plain_calls
            plain_calls.append((began, took_s, (server, call.method, name, caller)))
            if len(plain_calls) >= BATCH:
                self._make_lines()
        else:
            row = _ended_call(began, took_s, server, call, outcome)
            if self._has_room_for(row.size):
                self._make_lines()
                self._queue.append(row)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._hand_over)

    def _has_room_for(self, size: int) -> bool:
        if len(self._queue) >= MAX_WAITING or self._size + size > MAX_WAITING_SIZE:
            self._lost += 1
            self._left_out += 1
            return False
        self._size += size
        return True

    def _make_lines(self) -> None:
        plain_calls, self._plain_calls = self._plain_calls, []
        known, last, same, second, stamp = secrets_version(), None, "", -1, ""
        for began, took_s, about in plain_calls:
            if about != last:  # nearly all equal the one before
                try:
                    last, same = about, _common_part(*about, known)
                except (TypeError, ValueError, LookupError):
                    self._lost += 1
                    self._left_out += 1
                    continue
            if self._has_room_for(len(same)):
                if (whole := int(began)) != second:  # `_time`, inlined
                    second, stamp = whole, _second(whole)
                at = stamp + MILLISECONDS[int((began - whole) * 1000)]
                self._queue.append(f'{{"time":"{at}",{same},"ms":{took_s * 1000:.1f}}}')

    @property
    def lost(self) -> int:
        """Calls since the start that are not in the log."""
        return self._left_out + self._failed

    def recent(self, since: str) -> Row:
        """The latest calls, for a page that has those up to the mark `since`; `calls` is None if nothing is new."""
        mark = f"{self._run}-{self._count}"
        return {
            "is_on": not self._is_broken,
            "has_arguments": self.with_arguments,
            "mark": mark,
            "calls": None if since == mark else [_object(line) for line in self._recent],
        }

    def flush(self) -> None:
        """The relay stops: write all lines now."""
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        self._write(*self._take())

    def _take(self) -> tuple[list[EndedCall | str], int]:
        self._make_lines()
        taken, lost = self._queue, self._lost
        self._queue, self._size, self._lost = [], 0, 0
        return taken, lost

    def _hand_over(self) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="call-log")
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._thread, self._write, *self._take())
        writing.add_done_callback(self._written)

    def _written(self, writing: asyncio.Future[list[str]]) -> None:
        """On the event loop again. The next batch starts only now, so that at most one is in the thread."""
        self._timer = None
        if writing.cancelled():
            return
        lines = writing.result()
        self._recent.extend(lines[-MAX_RECENT:])
        self._count += len(lines)
        if self._queue or self._plain_calls or self._lost:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._hand_over)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _write(self, ended: list[EndedCall | str], lost: int) -> list[str]:
        made = [each if isinstance(each, str) else self._line(each) for each in ended]
        lines = [line for line in made if line is not None]
        unmade = len(made) - len(lines)
        self._failed += unmade
        lost += self._unwritten + unmade
        if lost:
            row = {"time": _time(time.time()), "outcome": "left_out", "calls": lost}
            lines.append(orjson.dumps(row).decode())
        if lines and self._open():
            assert self._file is not None
            self._unwritten = self._append(self._file, lines, lost)
            # It is opened again for the next lines: a relay that is killed holds no open file.
            self._file.close()
        return lines

    def _line(self, ended: EndedCall) -> str | None:
        """None for a call that can't be formatted: it is counted, and the lines of other calls are not affected."""
        try:
            return orjson.dumps(self._row(ended)).decode()
        except (TypeError, ValueError, LookupError):
            # defence: a line of the call log that can't be made
            return None

    def _append(self, file: PrivateRotatingFile, lines: list[str], lost: int) -> int:
        """Returns how many calls are still not written. `lost`: the number in the last line, of calls left out."""
        failures, left = file.failures, len(lines)
        # One size check and one write for many lines.
        for text in _batches(lines, self._max_bytes // 16):
            # A line that was written in part must not damage the next.
            # defence: lines behind a torn one
            text_to_write = "\n" + text if self._may_end_within_line and _ends_within_a_line(self.path) else text
            file.handle(logging.LogRecord("calls", logging.INFO, "", 0, text_to_write, (), None))
            self._may_end_within_line = file.failures > failures
            if self._may_end_within_line:
                break
            left -= text.count("\n") + 1
        if not left:
            return 0
        calls = left - 1 if lost else left
        self._failed += calls
        # defence: calls that a full disk did not take
        return calls + lost

    def _open(self) -> bool:
        if self._file is None and not self._is_broken:
            try:
                self._file = PrivateRotatingFile(self.path, self._max_bytes, self._keep)
            except OSError as problem:
                self._is_broken = True
                logging.getLogger("tabrelay").warning("No call log: %s", problem)
        return not self._is_broken

    def _row(self, ended: EndedCall) -> Row:
        call = ended.call
        params = _params(call.payload) if self.with_arguments or call.name is None else {}
        name = call.name or params.get("uri" if call.method == methods.RESOURCES_READ else "name")
        caller = call.caller
        row: Row = {
            "time": _time(ended.at),
            **_about(ended.server, call.method, name, caller.principal, caller.client),
            "ms": round(ended.took_ms, 1),
            **_outcome(ended),
        }
        # defence: arguments in the call log
        if self.with_arguments:
            row |= _arguments(params.get("arguments"))
        return row


def _ended_call(
    began: float, took_s: float, server: str, call: Call, outcome: RelayError | tuple[int | None, str]
) -> EndedCall:
    if isinstance(outcome, RelayError):
        return EndedCall(began, took_s * 1000, server, call, outcome, None, None)
    code, text = outcome
    # A plain result needs no parsing and is not kept. A long text is not parsed: regular expressions find its outcome.
    reply = text if '"isError"' in text or '"input_required"' in text else None
    if reply is not None and len(reply) > MAX_PARSED:
        is_question = _ASKED.search(reply) is not None
        kind = {"isError": _FAILED.search(reply) is not None, "resultType": "input_required" if is_question else ""}
        reply = orjson.dumps({"result": kind}).decode()
    return EndedCall(began, took_s * 1000, server, call, None, code, reply)


def _about(server: str, method: str, name: Any, principal: str, client: dict[str, Any] | None) -> Row:
    """The part of a line that is the same for many calls."""
    about = {"server": server, "method": method, "name": shown_text(name), "principal": principal}
    return {**about, "client": _client(client), "outcome": "ok"}


@lru_cache(maxsize=256)
def _common_part(server: str, method: str, name: str, caller: str, known: int) -> str:
    """`_about` as part of a line. `caller`: as text. `known`: version of the secrets, so that new ones are redacted."""
    about = _object(caller)
    row = _about(server, method, name, about["principal"], about["client"])
    return orjson.dumps(row).decode()[1:-1]


def _batches(lines: Iterable[str], most: int) -> Iterable[str]:
    """Lines joined to texts of at most `most` characters, unless a single line is longer."""
    some: list[str] = []
    size = 0
    for line in lines:
        if some and size + len(line) >= most:
            yield "\n".join(some)
            some, size = [], 0
        some.append(line)
        size += len(line) + 1
    if some:
        yield "\n".join(some)


def _outcome(ended: EndedCall) -> Row:
    if ended.error is not None:
        return {"outcome": ended.error.reason, "why": shown_text(ended.error.message, 2 * MAX_TEXT)}
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
    """The arguments without secrets; only the start of their JSON text if that is too long."""
    clean = redacted(value)
    text = json.dumps(clean, ensure_ascii=False)
    if len(text) <= MAX_ARGUMENTS:
        return {"arguments": clean}
    return {"arguments": text[:MAX_ARGUMENTS], "arguments_size": len(text)}


def _client(about: dict[str, Any] | None) -> str | None:
    """The client's name and version, as it sent them."""
    parts = [about.get(key) for key in ("name", "version")] if about else []
    return shown_text(" ".join(part for part in parts if isinstance(part, str))) or None


def shown_text(value: Any, most: int = MAX_TEXT) -> str:
    """Text of another program: on one line, shortened, without secrets; empty if it is no text."""
    # Truncated twice: a secret that the first cut splits would not be recognised.
    return _clean(value[: most + MAX_SECRET], secrets_version())[:most] if isinstance(value, str) else ""


@lru_cache(maxsize=256)  # names of tools and clients repeat
def _clean(text: str, known: int) -> str:
    """`known`: version of the secrets. With a new one, the text is redacted again."""
    return one_line(redact(well_formed(text)))


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
    whole = int(seconds)
    return _second(whole) + MILLISECONDS[int((seconds - whole) * 1000)]


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _tail(path: Path) -> Iterable[str]:
    """The last lines of an earlier relay."""
    lines = _end(path, TAIL).decode("utf-8", "replace").split("\n")
    return [line for line in lines if "time" in _object(line)]


def _ends_within_a_line(path: Path) -> bool:
    return _end(path, 1) not in (b"", b"\n")


def _end(path: Path, most: int) -> bytes:
    """The last `most` bytes of a file. Follows no link and waits for no pipe."""
    with suppress(OSError), os.fdopen(os.open(path, os.O_RDONLY | NO_LINK | NO_WAIT), "rb") as file:
        file.seek(max(0, file.seek(0, 2) - most))
        return file.read(most)
    return b""
