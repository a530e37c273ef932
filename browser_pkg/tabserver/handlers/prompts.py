"""Prompts from Python functions: arguments from the signature, messages from the returned value.

@prompt
def review(code: str, tone: Literal["kind", "strict"] = "kind") -> str:
    "Review a piece of code."
    return f"Review this code, and be {tone}:\\n{code}"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..rpc import Refusal
from ..schema.types import NotJson, to_json
from ..wire.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from .completion import Completer, Completions
from .content import Content, Message, is_block, to_block
from .context import Cancel, Done, Outcome, Request
from .execute import run
from .failures import handler_failures
from .questions import InputRequired
from .signature import InvalidArguments, Signature, describe, name_of, read_signature


class UnknownPrompt(LookupError):
    """There is no prompt with this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class Prompt:
    """One function that returns messages."""

    name: str
    signature: Signature
    completions: Completions
    description: dict[str, Any]

    @property
    def function(self) -> Callable[..., Any]:
        return self.signature.function

    def start(self, arguments: Mapping[str, str], request: Request, done: Done) -> Cancel:
        try:
            made = self.signature.read_texts(arguments)
        except InvalidArguments as error:
            raise Refusal(INVALID_PARAMS, f'Invalid arguments for prompt "{self.name}":\n{error}') from None
        return run(f"prompt {self.name}", lambda: self.signature.call(made, request), self._shape, self._fail, done)

    def _shape(self, value: Any) -> Outcome:
        if isinstance(value, InputRequired):
            return value
        if isinstance(value, dict) and isinstance(value.get("messages"), list):
            to_json(value, "result")
            return value
        items = value if isinstance(value, list | tuple) else [value]
        result: dict[str, Any] = {"messages": to_json([_message(item) for item in items], "result.messages")}
        text = self.description.get("description")
        return {"description": text} | result if text else result

    def _fail(self, error: BaseException) -> Outcome:
        if isinstance(error, Refusal):
            return error
        if isinstance(error, NotJson):
            return Refusal(INTERNAL_ERROR, f'Prompt "{self.name}" returned what can\'t be sent: {error}')
        return Refusal(INTERNAL_ERROR, f'Prompt "{self.name}" failed: {handler_failures.text_of(error)}')


def declare_prompt(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    params: Mapping[str, Any] | None = None,
    complete: Mapping[str, Completer] | None = None,
    icons: list[dict[str, Any]] | None = None,
    meta: dict[str, Any] | None = None,
) -> Prompt:
    """Make a Prompt of a function; raises SchemaError as `declare` of a tool does."""
    name = name_of(function, name, "prompt")
    owner = f"prompt {name}"
    signature = read_signature(function, owner, params=params)
    described: dict[str, Any] = {"name": name}
    if title:
        described["title"] = title
    if text := description or inspect.getdoc(function):
        described["description"] = text
    if arguments := [
        {"name": key}
        | ({"description": about} if (about := describe(prop.shape)) else {})
        | {"required": prop.is_required}
        for key, prop in signature.properties.items()
    ]:
        described["arguments"] = arguments
    described |= {key: value for key, value in {"icons": icons, "_meta": meta}.items() if value}
    return Prompt(name, signature, Completions(owner, signature, complete), described)


def _message(item: Any) -> dict[str, Any]:
    if isinstance(item, Message):
        return item.to_dict()
    if isinstance(item, str | Content) or is_block(item):
        return {"role": "user", "content": to_block(item)}
    if isinstance(item, dict) and item.get("role") in ("user", "assistant") and is_block(item.get("content")):
        return item
    raise TypeError(f"a prompt returns text, content or Messages, not {type(item).__name__}")
