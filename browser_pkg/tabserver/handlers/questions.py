"""Questions of a server to its client: elicitation, sampling and roots, and their answers, as plain values.

A handler asks with its Context (`await ctx.elicit(…)`), or returns `InputRequired` with several questions. How a
question is sent depends on the era and is decided in `mcp.call`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from ..rpc import Refusal
from ..schema.compounds import Record
from ..schema.shapes import Reading, Schema, SchemaError, Shape, summary
from ..schema.types import Shapes
from ..wire import methods
from ..wire.jsonrpc import MISSING_CAPABILITY, show
from .content import Block, Message, Role

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Answer = dict[str, Any]
Capabilities = Mapping[str, Any]

_ACTIONS: Final = ("accept", "decline", "cancel")
_FLAT: Final = frozenset({"string", "number", "integer", "boolean"})
_FORMATS: Final = frozenset({"date", "date-time", "email", "uri"})
_NAMES: Final[dict[Any, str]] = {str: "string", int: "integer", list: "array", dict: "object"}


class MissingCapability(Refusal):
    """The client did not declare the capability that the question needs. A handler may catch this."""

    def __init__(self, method: str, needed: dict[str, Any]) -> None:
        text = f"This client does not support {_spell(needed)}, which {method} needs."
        super().__init__(MISSING_CAPABILITY, text, {"requiredCapabilities": needed})
        self.needed = needed


class ClientError(Exception):
    """The client answered a question with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"The client answered with an error: {message} ({code})")
        self.code, self.message = code, message


class InvalidAnswer(ValueError):
    """The client's answer does not match the question."""


class Declined(Exception):
    """The user declined, or closed the form."""


class Question(Protocol[T_co]):
    """One question. `kind`: prefix of generated keys."""

    @property
    def method(self) -> str: ...
    @property
    def kind(self) -> str: ...
    def params(self) -> dict[str, Any]: ...
    def lacking(self, capabilities: Capabilities) -> dict[str, Any] | None:
        """The capability that the client lacks for this question; None: it has all."""

    def read(self, answer: Answer) -> T_co:
        """The answer as a Python value; raises InvalidAnswer."""


# -- elicitation ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Elicited(Generic[T]):
    """The user's response to a form or a URL. `content`: the fields, unchanged."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None
    value: T | None = None

    @property
    def accepted(self) -> bool:
        return self.action == "accept"

    @property
    def data(self) -> T:
        """The fields as the requested type. Raises Declined if the user did not accept."""
        if not self.accepted:
            raise Declined("The user declined." if self.action == "decline" else "The user dismissed the question.")
        return self.value  # type: ignore[return-value]  # T itself may be None: an address has no form


@dataclass(frozen=True, slots=True)
class Elicit(Generic[T]):
    """A form. `schema` is a dataclass or TypedDict with plain fields, or a JSON Schema of that kind."""

    message: str
    schema: type[T] | Schema
    method: str = field(default=methods.ELICITATION_CREATE, init=False)
    kind: str = field(default="elicit", init=False)

    def params(self) -> dict[str, Any]:
        return {"message": self.message, "requestedSchema": self._form()[1]}

    def lacking(self, capabilities: Capabilities) -> dict[str, Any] | None:
        modes = capabilities.get("elicitation")
        # Before there were modes, clients declared forms without naming one.
        can = isinstance(modes, dict) and ("form" in modes or "url" not in modes)
        return None if can else {"elicitation": {"form": {}}}

    def read(self, answer: Answer) -> Elicited[T]:
        action, content = _action(answer), answer.get("content")
        if action != "accept":
            return Elicited(action)
        if not isinstance(content, dict):
            raise InvalidAnswer(f"content: expected object, got {show(content)}")
        shape, schema = self._form()
        if shape is None:
            missing = [name for name in schema.get("required", ()) if name not in content]
            if missing:
                raise InvalidAnswer(f"content: {', '.join(map(str, missing))} missing")
            return Elicited(action, content, content)  # type: ignore[arg-type]  # T is a dict here
        reading = Reading()
        value = shape.read(content, "content", reading)
        if reading.faults:
            raise InvalidAnswer(summary(reading.faults))
        return Elicited(action, content, value)

    def _form(self) -> tuple[Shape | None, Schema]:
        if isinstance(self.schema, dict):
            return None, self.schema
        shapes = Shapes()
        shape = shapes.of(self.schema)
        if not isinstance(shape, Record):
            raise SchemaError(f"a form needs a dataclass or a TypedDict, not {self.schema!r}")
        schema = shapes.document(shape)
        for extra in ("additionalProperties", "description"):
            schema.pop(extra, None)
        for name, prop in schema["properties"].items():
            _check_flat(shape.name, name, prop)
        return shape, schema


@dataclass(frozen=True, slots=True)
class ElicitUrl:
    """A URL for the user to open: for input that must not pass through the client, such as a password."""

    message: str
    url: str
    method: str = field(default=methods.ELICITATION_CREATE, init=False)
    kind: str = field(default="elicit", init=False)

    def params(self) -> dict[str, Any]:
        return {"mode": "url", "message": self.message, "url": self.url}

    def lacking(self, capabilities: Capabilities) -> dict[str, Any] | None:
        modes = capabilities.get("elicitation")
        return None if isinstance(modes, dict) and "url" in modes else {"elicitation": {"url": {}}}

    def read(self, answer: Answer) -> Elicited[None]:
        return Elicited(_action(answer))


def _action(answer: Answer) -> Literal["accept", "decline", "cancel"]:
    action = answer.get("action")
    for known in ("accept", "decline", "cancel"):
        if action == known:
            return known
    raise InvalidAnswer(f"action: expected one of {', '.join(_ACTIONS)}, got {show(action)}")


def _check_flat(form: str, name: str, prop: Schema) -> None:
    many = prop.get("items", {}) if prop.get("type") == "array" else None
    is_flat = prop.get("type") in _FLAT if many is None else "enum" in many
    if not is_flat or prop.get("format", "date") not in _FORMATS:
        raise SchemaError(f"form {form}, field {name}: use str, int, float, bool, a date, a Literal or a list of them")


# -- sampling ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sampled:
    """A message of the client's model."""

    role: Role
    content: list[Block]
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        return "".join(block["text"] for block in self.content if block.get("type") == "text")


@dataclass(frozen=True, slots=True)
class Sample:
    """A question to the client's model."""

    messages: str | Sequence[str | Message | dict[str, Any]]
    max_tokens: int = 1024
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: Sequence[str] | None = None
    model_preferences: dict[str, Any] | None = None
    include_context: str | None = None
    metadata: dict[str, Any] | None = None
    tools: Sequence[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    method: str = field(default=methods.SAMPLING_CREATE_MESSAGE, init=False)
    kind: str = field(default="sample", init=False)

    def params(self) -> dict[str, Any]:
        said = [self.messages] if isinstance(self.messages, str) else self.messages
        optional = {
            "systemPrompt": self.system_prompt,
            "temperature": self.temperature,
            "stopSequences": None if self.stop_sequences is None else list(self.stop_sequences),
            "modelPreferences": self.model_preferences,
            "includeContext": self.include_context,
            "metadata": self.metadata,
            "tools": None if self.tools is None else list(self.tools),
            "toolChoice": self.tool_choice,
        }
        params: dict[str, Any] = {"messages": [_message(item) for item in said], "maxTokens": self.max_tokens}
        return params | {name: value for name, value in optional.items() if value is not None}

    def lacking(self, capabilities: Capabilities) -> dict[str, Any] | None:
        sampling = capabilities.get("sampling")
        if not isinstance(sampling, dict):
            return {"sampling": {}}
        if (self.tools is not None or self.tool_choice is not None) and "tools" not in sampling:
            return {"sampling": {"tools": {}}}
        return None

    def read(self, answer: Answer) -> Sampled:
        role, content, model = answer.get("role"), answer.get("content"), answer.get("model")
        blocks: list[Any] = content if isinstance(content, list) else [content]
        if role not in ("user", "assistant") or not all(isinstance(block, dict) for block in blocks):
            raise InvalidAnswer("the client's model gave no message: role and content expected")
        reason = answer.get("stopReason")
        return Sampled(role, blocks, str(model or ""), reason if isinstance(reason, str) else None)


def _message(item: str | Message | dict[str, Any]) -> dict[str, Any]:
    if isinstance(item, dict):
        return item
    return (Message("user", item) if isinstance(item, str) else item).to_dict()


# -- roots ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Root:
    """A folder or file that the client works on."""

    uri: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ListRoots:
    """A request for the folders and files that the client works on."""

    method: str = field(default=methods.ROOTS_LIST, init=False)
    kind: str = field(default="roots", init=False)

    def params(self) -> dict[str, Any]:
        return {}

    def lacking(self, capabilities: Capabilities) -> dict[str, Any] | None:
        return None if isinstance(capabilities.get("roots"), dict) else {"roots": {}}

    def read(self, answer: Answer) -> list[Root]:
        roots = answer.get("roots")
        if not isinstance(roots, list) or not all(
            isinstance(root, dict) and isinstance(root.get("uri"), str) for root in roots
        ):
            raise InvalidAnswer("roots: expected an array of objects with a uri")
        return [Root(root["uri"], root.get("name")) for root in roots]


# -- from a page, in their form on the wire ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that a page wrote as JSON; its answer is forwarded unchanged."""

    method: str
    kind: str
    body: dict[str, Any]
    plain: Question[Any]

    def params(self) -> dict[str, Any]:
        return self.body

    def lacking(self, capabilities: Capabilities) -> dict[str, Any] | None:
        return self.plain.lacking(capabilities)

    def read(self, answer: Answer) -> Answer:
        return answer


def read_question(method: object, params: object) -> Asked:
    """A question as a page sends it; raises ValueError with the path of what is wrong."""
    if not isinstance(params, dict):
        raise ValueError(f"params: expected object, got {show(params)}")
    plain: Question[Any]
    if method == methods.ELICITATION_CREATE:
        _need(params, "message", str)
        if params.get("mode") == "url":
            plain = ElicitUrl("", _need(params, "url", str))
        else:
            plain = Elicit("", _need(params, "requestedSchema", dict))
    elif method == methods.SAMPLING_CREATE_MESSAGE:
        _need(params, "messages", list)
        _need(params, "maxTokens", int)
        plain = Sample("", tools=params.get("tools"), tool_choice=params.get("toolChoice"))
    elif method == methods.ROOTS_LIST:
        plain = ListRoots()
    else:
        raise ValueError(
            f"method: expected elicitation/create, sampling/createMessage or roots/list, got {show(method)}"
        )
    return Asked(plain.method, plain.kind, params, plain)


def _need(params: dict[str, Any], name: str, type: type[T]) -> T:
    value = params.get(name)
    if not isinstance(value, type) or isinstance(value, bool):
        raise ValueError(f"params.{name}: expected {_NAMES[type]}, got {show(value)}")
    return value


# -- several at once, without waiting ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputRequired:
    """Returned by a handler that does not wait: it is called again, with the answers in `ctx.input_responses`.

    `state` is anything that JSON can hold; it comes back as `ctx.request_state`. The client carries it and can read it,
    but can't change it.
    """

    requests: Mapping[str, Question[Any]] = field(default_factory=dict)
    state: Any = None

    def lacking(self, capabilities: Capabilities) -> MissingCapability | None:
        for question in self.requests.values():
            if (needed := question.lacking(capabilities)) is not None:
                return MissingCapability(question.method, needed)
        return None


def wire_form(question: Question[Any]) -> dict[str, Any]:
    return {"method": question.method, "params": question.params()}


def new_key(question: Question[Any], taken: Mapping[str, Any], numbers: itertools.count[int]) -> str:
    while (key := f"{question.kind}-{next(numbers)}") in taken:
        pass
    return key


def _spell(needed: dict[str, Any]) -> str:
    return " and ".join(
        name + (f" ({', '.join(modes)})" if isinstance(modes, dict) and modes else "") for name, modes in needed.items()
    )
