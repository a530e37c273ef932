"""Checks every message of a relay, and of the browsers behind it, against the official models.

A relay in this process is wrapped. A relay in a separate process gets the tap of `hook`, and its records are read when
it has ended. Violations are collected, and the test that runs the relay fails at its end.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.hook.tap import Record, Tap
from tests.support.official_models import check_client_message, check_note, check_request, check_response

HOOK = Path(__file__).parent / "hook"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of an MCP client."""

    verb: str
    path: str
    agent: str
    session: bool
    method: str | None
    header: str
    envelope: str


class ModelChecker:
    """Takes records of a tap. `checked` counts the messages that were checked, by receiver."""

    def __init__(self) -> None:
        self.checked: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.asked: list[Asked] = []
        # How often clients received a notification of each method.
        self.notes: Counter[str] = Counter()

    def take(self, record: Record) -> None:
        if "asked" in record:
            self.asked.append(Asked(**record["asked"]))
            return
        try:
            _check(record["to"], record["version"], record["method"], record["message"])
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            text = json.dumps(record["message"])[:300]
            self.wrong.append(f"{record['version']} to {record['to']}: {text}\n{type(error).__name__}: {error}")
        self.checked[record["to"]] += 1
        if record["to"] == "client" and isinstance(record["message"], dict) and "method" in record["message"]:
            self.notes[record["message"]["method"]] += 1

    def finish(self) -> None:
        """The end of the test: fail if there were violations."""
        assert not self.wrong, "\n\n".join(self.wrong)

    def discard_violations(self) -> list[str]:
        """Discard the violations so far, because the test has provoked them."""
        wrong, self.wrong = self.wrong, []
        return wrong


def _check(to: str, version: str, method: str | None, message: Any) -> None:
    if to == "server":
        check_client_message(version, message)
    elif "method" in message:
        (check_request if "id" in message else check_note)(version, message)
    else:
        check_response(version, method, message)


class Recorder(ModelChecker):
    """ASGI wrapper for a relay in this process."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self.tap = Tap(app, self.take)
        self.fast_path = self.tap.fast_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.tap(scope, receive, send)


class Wiretap(ModelChecker):
    """Tap for a relay in a separate process: start it with `env`, and call `read` when it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._file = Path(tempfile.gettempdir()) / f"tabrelay-tap-{secrets.token_hex(8)}.jsonl"
        path = os.environ.get("PYTHONPATH")
        self.env = {
            "TABRELAY_TEST_TAP": str(self._file),
            "PYTHONPATH": os.pathsep.join([str(HOOK), *([path] if path else [])]),
        }

    def read(self) -> None:
        """Check what was recorded since the last call."""
        if self._file.exists():
            with self._file.open(encoding="utf-8") as lines:
                for line in lines:
                    if line.endswith("\n"):  # a relay that was killed may have left an incomplete last line
                        self.take(json.loads(line))
            self._file.unlink()
