"""Who gets which line: the conductor's rules, between an editor (above) and an agent (below). Pure.

Every line passes as it came and in the order in which it came, except for: requests that open a session, whose servers
are looked after first; the answer to `initialize`, which says what the conductor can do; and MCP messages for servers
and connections of ours. It is fed lines and gives effects, which the conductor carries out one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tabrelay.acp import dialects, json_edit
from tabrelay.acp import message as frames
from tabrelay.acp.declarations import BadDeclaration, DeclaredServer, read
from tabrelay.acp.message import AcpMessage
from tabrelay.bridge.messages import Key
from tabserver.wire import jsonrpc

OPENS: Final = frozenset({"session/new", "session/load", "session/resume", "session/fork"})
CLOSES: Final = frozenset({"session/close", "session/delete"})
CANCEL: Final = "$/cancel_request"
MAX_WAITING: Final = 4096
"""Requests of the editor that the agent has not answered: past this many, the oldest are no longer looked after."""


@dataclass(eq=False, slots=True)
class Opening:
    """A request that opens a session, and what it declares: servers that its sender provides, by their place."""

    frame: AcpMessage
    declared: dict[int, DeclaredServer] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    @property
    def session(self) -> str | None:
        """The session that it is about, if it says so. A fork gets another one."""
        id = self.frame.params.get("sessionId")
        return id if isinstance(id, str) and self.frame.method != "session/fork" else None

    def rewritten(self, replaced: Mapping[int, str], added: list[str]) -> bytes:
        """With other declarations in their places, and more behind them. Nothing else changes."""
        if not replaced and not added:
            return self.frame.raw
        text = self.frame.part("params", "mcpServers") or "[]"
        spans = json_edit.elements(text) if text.startswith("[") else []
        kept = [replaced.get(place, text[start:end]) for place, (start, end) in enumerate(spans)]
        return self.frame.put(("params", "mcpServers"), f"[{','.join(kept + added)}]").raw


@dataclass(frozen=True, slots=True)
class SendUp:
    """To the editor."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class SendDown:
    """To the agent."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class OpenServer:
    """Look after its servers, then send it down."""

    opening: Opening


@dataclass(frozen=True, slots=True)
class SettleSession:
    """The session is there: everything of it must know the id before the editor does."""

    opening: Opening
    session: str


@dataclass(frozen=True, slots=True)
class AbandonSession:
    """It did not come to a session."""

    opening: Opening


@dataclass(frozen=True, slots=True)
class CloseServer:
    session: str


@dataclass(frozen=True, slots=True)
class ForwardMcp:
    """A message of MCP over ACP for us. `is_above`: from the editor's side."""

    frame: AcpMessage
    is_above: bool


@dataclass(frozen=True, slots=True)
class ResolveRequest:
    """To a request of our own."""

    frame: AcpMessage
    is_above: bool


Effect = SendUp | SendDown | OpenServer | SettleSession | AbandonSession | CloseServer | ForwardMcp | ResolveRequest
Owns = Callable[[AcpMessage], bool]


class Router:
    def __init__(self, owns_above: Owns, owns_below: Owns, asked_above: Owns, asked_below: Owns) -> None:
        """`owns_…`: is this message from that side for a connection or server of ours? `asked_…`: does it answer us?"""
        self._owns = {True: owns_above, False: owns_below}
        self._asked = {True: asked_above, False: asked_below}
        self._greetings: set[Key] = set()
        self._openings: dict[Key, Opening] = {}
        self._closings: dict[Key, str] = {}
        self._waiting: dict[Key, str] = {}
        self.is_native = False
        self.takes_http = False
        self.takes_stdio = True
        self.is_typed = False
        self.agent = ""  # what it calls itself

    # -- from the editor -----------------------------------------------------------------------------------------------

    def above(self, frame: AcpMessage) -> list[Effect]:
        if frame.is_response:
            return [ResolveRequest(frame, True)] if self._asked[True](frame) else [SendDown(frame.raw)]
        if frame.method in dialects.METHODS or frame.method == CANCEL:
            return self._mcp_above(frame)
        if not frame.is_request:
            return [SendDown(frame.raw)]
        if frame.key in self._openings:
            # Which of the two the agent's answer were for, nobody could tell, nor whose servers those are.
            text = "A request with this id is still waiting for its answer."
            return [SendUp(frames.refusal(frame.id_text, jsonrpc.INVALID_REQUEST, text))]
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.pop(next(iter(self._waiting)))
        self._waiting[frame.key] = frame.id_text
        if frame.method == "initialize":
            self._greetings.add(frame.key)
        elif frame.method in CLOSES and isinstance(frame.params.get("sessionId"), str):
            self._closings[frame.key] = frame.params["sessionId"]
        elif frame.method in OPENS:
            return self._opened(frame)
        return [SendDown(frame.raw)]

    def _mcp_above(self, frame: AcpMessage) -> list[Effect]:
        if self._owns[True](frame):
            return [ForwardMcp(frame, True)]
        if self.is_native or frame.method == CANCEL:
            return [SendDown(frame.raw)]
        if frame.is_request:
            text = "There is no such MCP connection."
            return [SendUp(frames.refusal(frame.id_text, dialects.INVALID, text))]
        return []

    def _opened(self, frame: AcpMessage) -> list[Effect]:
        opening = Opening(frame)
        servers = frame.params.get("mcpServers")
        if not isinstance(servers, list | None):
            return [SendDown(frame.raw)]  # whatever it is: the agent will say what it thinks of it
        try:
            for place, entry in enumerate(servers or ()):
                opening.names.append(str(entry.get("name", "")) if isinstance(entry, dict) else "")
                declared = read(entry)
                if declared is not None:
                    opening.declared[place] = declared
        except BadDeclaration as problem:
            del self._waiting[frame.key]
            return [SendUp(frames.refusal(frame.id_text, jsonrpc.INVALID_PARAMS, str(problem)))]
        self._openings[frame.key] = opening
        return [OpenServer(opening)]

    # -- from the agent ------------------------------------------------------------------------------------------------

    def below(self, frame: AcpMessage) -> list[Effect]:
        if not frame.is_response:
            is_ours = frame.method in dialects.METHODS or frame.method == CANCEL
            return [ForwardMcp(frame, False)] if is_ours and self._owns[False](frame) else [SendUp(frame.raw)]
        if self._asked[False](frame):
            return [ResolveRequest(frame, False)]
        one = frame.key
        self._waiting.pop(one, None)
        if one in self._greetings:
            self._greetings.discard(one)
            return [SendUp(self._greeted(frame))]
        if one in self._openings:
            return [self._settled(self._openings.pop(one), frame), SendUp(frame.raw)]
        if one in self._closings:
            session = self._closings.pop(one)
            return [SendUp(frame.raw)] if frame.error is not None else [CloseServer(session), SendUp(frame.raw)]
        return [SendUp(frame.raw)]

    def _greeted(self, frame: AcpMessage) -> bytes:
        result = (frame.value or {}).get("result")
        if not isinstance(result, dict):
            return frame.raw
        self.is_typed = isinstance(result.get("protocolVersion"), int) and result["protocolVersion"] >= 2
        can = _member(result, *(_CAPABILITIES_2 if self.is_typed else _CAPABILITIES))
        name = _member(result, "info" if self.is_typed else "agentInfo").get("name")
        self.agent = name if isinstance(name, str) else ""
        self.is_native = _is_on(can.get("acp"))
        self.takes_http = _is_on(can.get("http"))
        # All agents of ACP 1 start programs; those of ACP 2 say so.
        self.takes_stdio = not self.is_typed or _is_on(can.get("stdio"))
        return with_capability(frame).raw

    def _settled(self, opening: Opening, frame: AcpMessage) -> Effect:
        result = (frame.value or {}).get("result")
        if frame.error is not None:
            return AbandonSession(opening)
        session = result.get("sessionId") if isinstance(result, dict) else None
        session = session if isinstance(session, str) else opening.session
        return AbandonSession(opening) if session is None else SettleSession(opening, session)

    # -- the end -------------------------------------------------------------------------------------------------------

    def ended(self, why: str) -> list[Effect]:
        """The agent is gone: whoever waits for it is told so, and what was being opened never will be."""
        effects: list[Effect] = [AbandonSession(opening) for opening in self._openings.values()]
        effects += [SendUp(frames.refusal(id, jsonrpc.INTERNAL_ERROR, why)) for id in self._waiting.values()]
        self._openings.clear()
        self._waiting.clear()
        return effects


_CAPABILITIES: Final[tuple[str, ...]] = ("agentCapabilities", "mcpCapabilities")
_CAPABILITIES_2: Final[tuple[str, ...]] = ("capabilities", "session", "mcp")


def with_capability(frame: AcpMessage) -> AcpMessage:
    """The answer to `initialize`, which says that servers may be declared over ACP."""
    result = (frame.value or {}).get("result")
    if not isinstance(result, dict):
        return frame
    version = result.get("protocolVersion")
    if isinstance(version, int) and version >= 2:
        where, value = _CAPABILITIES_2, "{}"
    else:
        where, value = _CAPABILITIES, "true"
    if _is_on(_member(result, *where).get("acp")):
        return frame
    return frame.put(("result", *where, "acp"), value)


def _member(value: Any, *path: str) -> dict[str, Any]:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _is_on(capability: Any) -> bool:
    """ACP 1 says true, ACP 2 says {}."""
    return capability is True or isinstance(capability, dict)
