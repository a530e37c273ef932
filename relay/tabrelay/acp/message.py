"""ACP message: one line between editor and agent, as the original bytes with the few fields that the conductor reads.

The bytes are forwarded unchanged. The parsed value is only read; `put` edits the text in place. A line that is not a
JSON object is kept too: its receiver reports the error. Pure.
"""

from __future__ import annotations

import itertools
import json
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tabrelay.acp import json_edit
from tabrelay.bridge.messages import Key, id_flaw, key, load
from tabserver.wire import jsonrpc


@dataclass(frozen=True)
class AcpMessage:
    """`value` is None when the line is not a JSON object."""

    raw: bytes
    value: dict[str, Any] | None

    @classmethod
    def read(cls, line: bytes) -> AcpMessage:
        try:
            value = load(line)
        except (ValueError, RecursionError):
            value = None
        return cls(line, value if isinstance(value, dict) else None)

    @cached_property
    def text(self) -> str:
        return self.raw.decode()

    @property
    def method(self) -> str | None:
        method = (self.value or {}).get("method")
        return method if isinstance(method, str) else None

    @property
    def params(self) -> dict[str, Any]:
        params = (self.value or {}).get("params")
        return params if isinstance(params, dict) else {}

    @property
    def id(self) -> Any:
        return (self.value or {}).get("id")

    @property
    def key(self) -> Key:
        return key(self.id)

    @property
    def id_flaw(self) -> str | None:
        """Why the line is not forwarded: its id is too long, an array or an object."""
        return id_flaw(self.id)

    @property
    def id_text(self) -> str:
        """The id as JSON, in the sender's spelling."""
        return json.dumps(self.id) if isinstance(self.id, str | int | None) else self.part("id") or "null"

    @property
    def is_request(self) -> bool:
        return self.method is not None and self.value is not None and "id" in self.value

    @property
    def is_notification(self) -> bool:
        return self.method is not None and not self.is_request

    @property
    def is_response(self) -> bool:
        value = self.value or {}
        return self.method is None and "id" in value and ("result" in value or "error" in value)

    @property
    def error(self) -> str | None:
        """The text of a response's error. Some programs write `"error": null` beside every result: that is no error."""
        return None if (self.value or {}).get("error") is None else self.part("error")

    @property
    def result(self) -> str | None:
        """The text of a response's result, if it has no error."""
        return None if self.error is not None else self.part("result") or "null"

    @property
    def error_code(self) -> int | None:
        error = (self.value or {}).get("error")
        code = error.get("code") if isinstance(error, dict) else None
        return code if isinstance(code, int) else None

    def part(self, *path: str) -> str | None:
        """The text of a member, exactly as written."""
        return json_edit.raw(self.text, *path)

    def put(self, path: tuple[str, ...], value: str) -> AcpMessage:
        return AcpMessage.read(json_edit.put(self.text, path, value).encode())


class RequestIds:
    """Ids of the conductor's requests. A random prefix distinguishes them if an editor runs two conductors in a row."""

    def __init__(self) -> None:
        self._prefix = f"relay:{secrets.token_hex(4)}:"
        self._count = itertools.count(1)

    def next(self) -> str:
        return f"{self._prefix}{next(self._count)}"

    def is_ours(self, id: Any) -> bool:
        return isinstance(id, str) and id.startswith(self._prefix)


def request(id: Any, method: str, params: str | None) -> bytes:
    return _message({"id": json.dumps(id), "method": json.dumps(method), "params": params})


def notification(method: str, params: str | None) -> bytes:
    return _message({"method": json.dumps(method), "params": params})


def answer(id: str, *, result: str | None = None, error: str | None = None) -> bytes:
    """`id` is JSON text, so that it is returned unchanged."""
    return _message({"id": id, "result": result, "error": error})


def refusal(id: str, code: int, text: str, data: Any = None) -> bytes:
    return answer(id, error=json.dumps(jsonrpc.error_message(None, code, text, data)["error"]))


def _message(parts: dict[str, str | None]) -> bytes:
    return json_edit.build({"jsonrpc": '"2.0"', **parts}).encode()
