"""ACP message: one line between editor and agent, as the original bytes with the few fields that the conductor reads.

The bytes are forwarded unchanged. The parsed value is only read; `edited` edits the text in place. A line that is not a
JSON object is kept too: its receiver reports the error. Parsing a large message, and finding its members, takes long:
both are done in a thread, before a message is handled (`bridge.parsing`, `locate`). Pure.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from tabrelay.acp import json_edit
from tabrelay.bridge.messages import Key, id_flaw, key, load, modern_version
from tabrelay.bridge.parsing import LARGE
from tabrelay.payloads.json_spans import JsonMember, members
from tabserver.wire import jsonrpc

AGENT_ENDED: Final = "TR511"  # the code of the reference


@dataclass(frozen=True)
class AcpMessage:
    """`value` is None when the line is not a JSON object. `_members`: of objects of a large message, by their
    positions."""

    raw: bytes
    value: dict[str, Any] | None
    _members: dict[int, Mapping[str, JsonMember]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def read(cls, line: bytes) -> AcpMessage:
        """The members of a large message are found too: lines of more than LARGE bytes are read in a thread."""
        try:
            value = load(line)
        except (ValueError, RecursionError):
            value = None
        message = cls(line, value if isinstance(value, dict) else None)
        # defence: conductor's loop time: members of a message
        if message.is_large:
            message.locate()
        return message

    @property
    def is_large(self) -> bool:
        return len(self.raw) > LARGE

    @property
    def is_located(self) -> bool:
        return not self.is_large or self.value is None or bool(self._members)

    def locate(self) -> None:
        """Finds the members of a message, and of its params or result, so that `part` and `edited` take no time."""
        if self.value is not None:
            for name in ("params", "result"):
                if isinstance(self.value.get(name), dict):
                    _, start, _ = self._find(self.text, 0)[name]
                    self._find(self.text, start)
            self._find(self.text, 0)

    def _find(self, text: str, at: int) -> Mapping[str, JsonMember]:
        if not self.is_large:
            return members(text, at)
        if at not in self._members:
            self._members[at] = members(text, at)
        return self._members[at]

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
    def is_modern(self) -> bool:
        """Whether it is a request of MCP 2026-07-28."""
        return modern_version(self.params) is not None

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
        return json_edit.raw(self.text, *path, find=self._find)

    def edited(self, path: tuple[str, ...], value: str) -> bytes:
        """The line with `value` (JSON) as the member at `path`."""
        return json_edit.put(self.text, path, value, find=self._find).encode()

    def with_id(self, id: str) -> AcpMessage:
        """The same message under another id, which is JSON text."""
        return AcpMessage(self.edited(("id",), id), {**(self.value or {}), "id": json.loads(id)})


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
    if data is None and code == jsonrpc.INTERNAL_ERROR:
        data = {"help": AGENT_ENDED}
    return answer(id, error=json.dumps(jsonrpc.error_message(None, code, text, data)["error"]))


def _message(parts: dict[str, str | None]) -> bytes:
    return json_edit.build({"jsonrpc": '"2.0"', **parts}).encode()
