"""ACP message router: decides for each line between editor and agent where it goes.

Every line passes unchanged and in order, except for: requests that open a session, whose servers are started first; the
response to `initialize`, to which the conductor adds its capability; and MCP messages for servers and connections of
the conductor. Pure: it takes messages and returns effects, which the conductor carries out one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tabrelay.acp import dialects
from tabrelay.acp import message as acp_message
from tabrelay.acp.declarations import BadDeclaration, DeclaredServer, read
from tabrelay.acp.message import AcpMessage
from tabrelay.bridge.messages import Key
from tabrelay.payloads import json_spans
from tabserver.wire import jsonrpc

OPEN_METHODS: Final = frozenset({"session/new", "session/load", "session/resume", "session/fork"})
CLOSE_METHODS: Final = frozenset({"session/close", "session/delete"})
CANCEL: Final = "$/cancel_request"
MAX_WAITING: Final = 4096
"""Requests of the editor without an answer: above this number, the oldest are no longer tracked."""


@dataclass(eq=False, slots=True)
class Opening:
    """A request that opens a session. `declared`: the servers that its sender provides, by their index."""

    message: AcpMessage
    declared: dict[int, DeclaredServer] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    @property
    def session(self) -> str | None:
        """The session that the request names, if it names one. A fork gets a new session."""
        id = self.message.params.get("sessionId")
        return id if isinstance(id, str) and self.message.method != "session/fork" else None

    def rewritten(self, replaced: Mapping[int, str], added: list[str]) -> bytes:
        """The request with some declarations replaced and others appended. Nothing else changes."""
        if not replaced and not added:
            return self.message.raw
        text = self.message.part("params", "mcpServers") or "[]"
        spans = json_spans.elements(text) if text.startswith("[") else []
        kept = [replaced.get(place, text[start:end]) for place, (start, end) in enumerate(spans)]
        return self.message.edited(("params", "mcpServers"), f"[{','.join(kept + added)}]")


@dataclass(frozen=True, slots=True)
class SendUp:
    """To the editor."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class SendDown:
    """To the agent."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Start the session's servers, then send the request to the agent."""

    opening: Opening


@dataclass(frozen=True, slots=True)
class ResolveSession:
    """The session is open: its servers must know the id before the editor gets the response."""

    opening: Opening
    session: str


@dataclass(frozen=True, slots=True)
class AbandonSession:
    """The agent refused to open the session."""

    opening: Opening


@dataclass(frozen=True, slots=True)
class CloseSession:
    session: str


@dataclass(frozen=True, slots=True)
class ForwardMcp:
    """A message of MCP over ACP for a server or connection of the conductor."""

    message: AcpMessage
    is_from_editor: bool


@dataclass(frozen=True, slots=True)
class ResolveRequest:
    """A response to a request of the conductor."""

    message: AcpMessage
    is_from_editor: bool


Effect = SendUp | SendDown | OpenSession | ResolveSession | AbandonSession | CloseSession | ForwardMcp | ResolveRequest
Owns = Callable[[AcpMessage], bool]


class Router:
    def __init__(
        self, owns_from_editor: Owns, owns_from_agent: Owns, answers_editor_request: Owns, answers_agent_request: Owns
    ) -> None:
        """`owns_…`: whether a message from that side is for a connection or server of the conductor. `answers_…`:
        whether it answers a request of the conductor."""
        self._owns = {True: owns_from_editor, False: owns_from_agent}
        self._is_answer = {True: answers_editor_request, False: answers_agent_request}
        self._initialize_keys: set[Key] = set()
        self._openings: dict[Key, Opening] = {}
        self._closings: dict[Key, str] = {}
        self._waiting: dict[Key, str] = {}
        self.is_native = False
        self.takes_http = False
        self.takes_stdio = True
        self.is_typed = False
        self.agent = ""  # its name

    # -- from the editor -----------------------------------------------------------------------------------------------

    def from_editor(self, message: AcpMessage) -> list[Effect]:
        if message.is_response:
            return [ResolveRequest(message, True)] if self._is_answer[True](message) else [SendDown(message.raw)]
        if message.method in dialects.METHODS or message.method == CANCEL:
            return self._mcp_from_editor(message)
        if not message.is_request:
            return [SendDown(message.raw)]
        if message.key in self._openings:
            # The agent's answer could not be attributed to one of the two, nor the servers to one session.
            text = "A request with this id is still waiting for its answer."
            return [SendUp(acp_message.refusal(message.id_text, jsonrpc.INVALID_REQUEST, text))]
        if len(self._waiting) >= MAX_WAITING:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            # defence: bounds: requests of an editor without an answer
            self._initialize_keys.discard(oldest)
            self._closings.pop(oldest, None)
        self._waiting[message.key] = message.id_text
        if message.method == "initialize":
            self._initialize_keys.add(message.key)
        elif message.method in CLOSE_METHODS and isinstance(message.params.get("sessionId"), str):
            self._closings[message.key] = message.params["sessionId"]
        elif message.method in OPEN_METHODS:
            return self._open_session(message)
        return [SendDown(message.raw)]

    def _mcp_from_editor(self, message: AcpMessage) -> list[Effect]:
        if self._owns[True](message):
            return [ForwardMcp(message, True)]
        if self.is_native or message.method == CANCEL:
            return [SendDown(message.raw)]
        if message.is_request:
            text = "There is no such MCP connection."
            return [SendUp(acp_message.refusal(message.id_text, dialects.INVALID, text))]
        return []

    def _open_session(self, message: AcpMessage) -> list[Effect]:
        opening = Opening(message)
        servers = message.params.get("mcpServers")
        if not isinstance(servers, list | None):
            return [SendDown(message.raw)]  # invalid: the agent refuses it
        try:
            for place, entry in enumerate(servers or ()):
                opening.names.append(str(entry.get("name", "")) if isinstance(entry, dict) else "")
                declared = read(entry)
                if declared is not None:
                    opening.declared[place] = declared
        except BadDeclaration as problem:
            del self._waiting[message.key]
            return [SendUp(acp_message.refusal(message.id_text, jsonrpc.INVALID_PARAMS, str(problem)))]
        self._openings[message.key] = opening
        return [OpenSession(opening)]

    # -- from the agent ------------------------------------------------------------------------------------------------

    def from_agent(self, message: AcpMessage) -> list[Effect]:
        if not message.is_response:
            is_ours = message.method in dialects.METHODS or message.method == CANCEL
            return [ForwardMcp(message, False)] if is_ours and self._owns[False](message) else [SendUp(message.raw)]
        if self._is_answer[False](message):
            return [ResolveRequest(message, False)]
        one = message.key
        self._waiting.pop(one, None)
        if one in self._initialize_keys:
            self._initialize_keys.discard(one)
            return [SendUp(self._read_capabilities(message))]
        if one in self._openings:
            return [self._session_result(self._openings.pop(one), message), SendUp(message.raw)]
        if one in self._closings:
            session = self._closings.pop(one)
            return [SendUp(message.raw)] if message.error is not None else [CloseSession(session), SendUp(message.raw)]
        return [SendUp(message.raw)]

    def _read_capabilities(self, message: AcpMessage) -> bytes:
        result = (message.value or {}).get("result")
        if not isinstance(result, dict):
            return message.raw
        self.is_typed = isinstance(result.get("protocolVersion"), int) and result["protocolVersion"] >= 2
        can = _member(result, *(_CAPABILITIES_2 if self.is_typed else _CAPABILITIES))
        name = _member(result, "info" if self.is_typed else "agentInfo").get("name")
        self.agent = name if isinstance(name, str) else ""
        self.is_native = _is_on(can.get("acp"))
        self.takes_http = _is_on(can.get("http"))
        # All agents of ACP 1 start programs; those of ACP 2 declare it.
        self.takes_stdio = not self.is_typed or _is_on(can.get("stdio"))
        return with_capability(message)

    def _session_result(self, opening: Opening, message: AcpMessage) -> Effect:
        result = (message.value or {}).get("result")
        if message.error is not None:
            return AbandonSession(opening)
        session = result.get("sessionId") if isinstance(result, dict) else None
        session = session if isinstance(session, str) else opening.session
        return AbandonSession(opening) if session is None else ResolveSession(opening, session)

    # -- the end -------------------------------------------------------------------------------------------------------

    def agent_gone(self, why: str) -> list[Effect]:
        """The agent is gone: refuses the editor's waiting requests and abandons sessions that were being opened."""
        effects: list[Effect] = [AbandonSession(opening) for opening in self._openings.values()]
        effects += [SendUp(acp_message.refusal(id, jsonrpc.INTERNAL_ERROR, why)) for id in self._waiting.values()]
        self._openings.clear()
        self._waiting.clear()
        return effects


_CAPABILITIES: Final[tuple[str, ...]] = ("agentCapabilities", "mcpCapabilities")
_CAPABILITIES_2: Final[tuple[str, ...]] = ("capabilities", "session", "mcp")


def with_capability(message: AcpMessage) -> bytes:
    """The response to `initialize` with the capability for servers declared over ACP."""
    result = (message.value or {}).get("result")
    if not isinstance(result, dict):
        return message.raw
    version = result.get("protocolVersion")
    if isinstance(version, int) and version >= 2:
        where, value = _CAPABILITIES_2, "{}"
    else:
        where, value = _CAPABILITIES, "true"
    if _is_on(_member(result, *where).get("acp")):
        return message.raw
    return message.edited(("result", *where, "acp"), value)


def _member(value: Any, *path: str) -> dict[str, Any]:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _is_on(capability: Any) -> bool:
    """ACP 1 writes true, ACP 2 writes {}."""
    return capability is True or isinstance(capability, dict)
