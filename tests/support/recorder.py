"""Holds everything that a relay and the browsers behind it say in a test to the official models.

A relay in this process is wrapped; one in a process of its own is tapped by `hook`, and what it wrote is read when it
has ended. What is not right is kept, and the test that runs the relay fails with it in the end.
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


class Judge:
    """Takes records of a tap. `checked` counts what was held to the models, by receiver."""

    def __init__(self) -> None:
        self.checked: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.asked: list[Asked] = []
        # How often clients were sent a notification of each method.
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
        """The test is over: fail with what was wrong."""
        assert not self.wrong, "\n\n".join(self.wrong)

    def forgive(self) -> list[str]:
        """What was wrong so far, because the test wanted it to be."""
        wrong, self.wrong = self.wrong, []
        return wrong


def _check(to: str, version: str, method: str | None, message: Any) -> None:
    if to == "server":
        check_client_message(version, message)
    elif "method" in message:
        (check_request if "id" in message else check_note)(version, message)
    else:
        check_response(version, method, message)


class Recorder(Judge):
    """ASGI: a relay in this process."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self.tap = Tap(app, self.take)
        self.fast_path = self.tap.fast_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.tap(scope, receive, send)


class Wiretap(Judge):
    """A relay in a process of its own: give it `env`, and `read` when it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._file = Path(tempfile.gettempdir()) / f"tabrelay-tap-{secrets.token_hex(8)}.jsonl"
        path = os.environ.get("PYTHONPATH")
        self.env = {
            "TABRELAY_TEST_TAP": str(self._file),
            "PYTHONPATH": os.pathsep.join([str(HOOK), *([path] if path else [])]),
        }

    def read(self) -> None:
        """Judge what was received since the last time."""
        if self._file.exists():
            with self._file.open(encoding="utf-8") as lines:
                for line in lines:
                    if line.endswith("\n"):  # a relay that was killed may have been in the middle of the last one
                        self.take(json.loads(line))
            self._file.unlink()
