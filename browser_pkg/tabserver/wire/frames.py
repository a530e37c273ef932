"""Frames of the link: header fields, encoding, decoding and bounds.

F1: a frame is a small JSON header and, for `msg` and `part`, an opaque payload after one newline. F2: only headers are
read here; a payload belongs to the caller and the server. When a frame is legal is decided in `link`.
"""

from __future__ import annotations

import json
import re
from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, TypeGuard

from .eras import Era
from .errors import MessageTooLarge, RemoteProtocolError
from .jsonrpc import MAX_ID, RequestId, is_request_id

SUBPROTOCOL: Final = "tabrelay.v1"
BEARER_PREFIX: Final = "bearer."
VERSION: Final = 1
# F3: levels of a header. Some thousand overflow Pyodide's stack, which ends the worker instead of raising an exception.
MAX_DEPTH: Final = 500
# L16: characters of a header. The longest that a relay has to write contains two ids and the description of a caller.
MAX_HEADER: Final = 128 * 1024
MAX_CHANNEL: Final = 256  # characters of a channel's id
MAX_CALLER: Final = 96 * 1024  # characters of a caller's description; two ids of 1,024 characters fit beside it
MAX_WHY: Final = 1024  # characters of the reason of a `close` or `bye`; a longer one is cut
# In the `_meta` of a request of an editor's agent. The relay sets it, and removes it from all other requests.
META_ACP: Final = "tabrelay/acp"

# Close codes are a contract: what a worker does next depends only on them.
CLOSE_PROTOCOL: Final = 4400
CLOSE_UNAUTHORIZED: Final = 4401
CLOSE_FORBIDDEN: Final = 4403
CLOSE_TRY_LATER: Final = 1013
CLOSE_SLOW: Final = 4408
CLOSE_REPLACED: Final = 4409
CLOSE_GOING_AWAY: Final = 1001
CLOSE_TOO_BIG: Final = 1009
CLOSE_RESTART: Final = 1012
# L16: a socket that is closed with one of these was closed because of a frame that it carried.
REFUSALS: Final = frozenset({CLOSE_PROTOCOL, CLOSE_TOO_BIG})


class Kind(StrEnum):
    """The kind of a `msg`. It is in the header, so that the payload need not be read."""

    REQ = "req"
    RES = "res"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Acp:
    """The session of an editor's agent that calls. `session`: None until the agent has sent it. `server`: the id of the
    server in this session. `connection`: one of several that the agent may have."""

    session: str | None
    server: str
    connection: str | None = None
    agent: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "session": self.session,
            "server": self.server,
            "connection": self.connection,
            "agent": self.agent,
        }

    @classmethod
    def from_dict(cls, value: object) -> Acp | None:
        if not isinstance(value, dict) or not isinstance(value.get("server"), str):
            return None
        session, connection, agent = (
            text if isinstance(text := value.get(key), str) else None for key in ("session", "connection", "agent")
        )
        return cls(session, value["server"], connection, agent)


@dataclass(frozen=True)
class Caller:
    """The caller of a channel. `ready`: a legacy session whose handshake is already done. `tab`: the tab that it has
    pinned. `session`: names a legacy session, also when it continues on another channel; it is not the session id of
    the client. `acp`: the session of an editor's agent, which each request contains.

    Without slots, so that an object that is shared by many calls can cache its text.
    """

    era: Era
    version: str
    principal: str
    client: dict[str, Any] | None = None
    capabilities: dict[str, Any] = field(default_factory=dict)
    ready: bool = False
    tab: str | None = None
    session: str | None = None
    acp: Acp | None = None

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "era": self.era.value,
            "version": self.version,
            "principal": self.principal,
            "client": self.client,
            "capabilities": self.capabilities,
            "ready": self.ready,
        }
        fields |= {} if self.tab is None else {"tab": self.tab}
        return fields if self.session is None else fields | {"session": self.session}

    @cached_property
    def text(self) -> str:
        """The caller as JSON. Raises MessageTooLarge if the other end would refuse a header with it (L16)."""
        try:
            text = json.dumps(self.to_dict(), separators=(",", ":"))
        except RecursionError:
            text = ""
        # defence: strings of a frame header: a caller that the other end would refuse
        if not text or len(text) > MAX_CALLER or is_deep(text):
            raise MessageTooLarge(f"a caller of more than {MAX_CALLER:,} characters or {MAX_DEPTH} levels")
        return text

    @classmethod
    def from_dict(cls, value: object) -> Caller:
        if not isinstance(value, dict):
            raise RemoteProtocolError("a caller must be an object")
        try:
            era = Era(str(value.get("era")))
        except ValueError:
            raise RemoteProtocolError("a caller has no known era") from None
        version, principal = value.get("version"), value.get("principal")
        if not isinstance(version, str) or not isinstance(principal, str):
            raise RemoteProtocolError("a caller needs a version and a principal")
        client, capabilities = value.get("client"), value.get("capabilities")
        tab, session = value.get("tab"), value.get("session")
        return cls(
            era=era,
            version=version,
            principal=principal,
            client=client if isinstance(client, dict) else None,
            capabilities=capabilities if isinstance(capabilities, dict) else {},
            ready=value.get("ready") is True,
            tab=tab if isinstance(tab, str) else None,
            session=session if isinstance(session, str) else None,
            acp=Acp.from_dict(value.get("acp")),
        )


@dataclass(frozen=True, slots=True)
class Greeting:
    """Content of a `hello`: the server that the worker offers, its instance, and the build that it runs. `browser`:
    name of the browser that it runs in, which outlives the worker."""

    server: str
    inst: str
    build: str
    browser: str | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """Content of a `welcome`. `sid` is a secret: a peer that has it (and the principal) may resume.
    `static_tools`: this server has them. `approve`: which calls need an approval, unless the page decides.
    `beat_ms`: the relay is silent for no longer than this. `key`: the key with which the server seals the state that
    its clients carry for it; the next worker of the same page gets the same key. `tasks`: bounds of its tasks.
    """

    sid: str
    epoch: str
    build: str
    grace_ms: int = 60_000
    beat_ms: int = 15_000
    max_message: int = 16 * 1024 * 1024
    window: int = 1024
    static_tools: bool = False
    approve: str = "page"
    key: str = field(default="", repr=False)
    tasks: dict[str, Any] | None = None


# name -> (type, required). F3: a field of another type is a violation; a field that is not listed is ignored, so that
# a later version can add one.
_FIELDS: Final[dict[str, dict[str, tuple[type, bool]]]] = {
    "hello": {
        "v": (list, True),
        "build": (str, True),
        "server": (str, True),
        "inst": (str, True),
        "browser": (str, False),
        "sid": (str, False),
        "rx": (int, True),
    },
    "welcome": {
        "sid": (str, True),
        "epoch": (str, True),
        "build": (str, True),
        "resumed": (bool, True),
        "rx": (int, True),
        "grace_ms": (int, True),
        "beat_ms": (int, False),
        "max_msg": (int, True),
        "window": (int, True),
        "static": (bool, False),
        "approve": (str, False),
        "key": (str, False),
        "tasks": (dict, False),
    },
    "open": {"s": (int, True), "a": (int, True), "c": (str, True), "o": (dict, True)},
    "msg": {
        "s": (int, True),
        "a": (int, True),
        "c": (str, True),
        "k": (str, True),
        "o": (dict, False),
        "d": (int, False),
        "m": (int, False),
        "w": (dict, False),
    },
    "close": {"s": (int, True), "a": (int, True), "c": (str, True), "why": (str, True)},
    "part": {
        "s": (int, True),
        "a": (int, True),
        "f": (int, True),
        "q": (int, True),
        "n": (int, True),
        "h": (dict, False),
    },
    "ack": {"a": (int, True), "p": (int, False), "e": (list, False)},
    "bye": {"code": (int, True), "reason": (str, True), "retry_ms": (int, False)},
}


# As the link writes them: a slice that is not the first, and an acknowledgement. A large message has many of both.
_NUMBER: Final = "(0|[1-9][0-9]{0,14})"
_SLICE: Final = re.compile(
    rf'{{"t":"part","s":{_NUMBER},"a":{_NUMBER},"f":{_NUMBER},"q":{_NUMBER},"n":{_NUMBER}}}', re.ASCII
)
_ACK: Final = re.compile(rf'{{"t":"ack","a":{_NUMBER}}}', re.ASCII)


def decode(header: str) -> dict[str, Any]:
    """Parse one header and check its fields; raises RemoteProtocolError with the reason."""
    if found := _SLICE.fullmatch(header):
        s, a, f, q, n = found.groups()
        return {"t": "part", "s": int(s), "a": int(a), "f": int(f), "q": int(q), "n": int(n)}
    if found := _ACK.fullmatch(header):
        return {"t": "ack", "a": int(found[1])}
    if len(header) > MAX_HEADER:
        raise RemoteProtocolError(f"a frame header has at most {MAX_HEADER:,} characters, not {len(header):,}")
    if is_deep(header):
        raise RemoteProtocolError("a frame header is nested too deeply")
    try:
        frame = json.loads(header)
    except ValueError:
        raise RemoteProtocolError("a frame header is not JSON") from None
    if not isinstance(frame, dict):
        raise RemoteProtocolError("a frame header is not an object")
    # L16: escapes can contain half of a surrogate pair, which no log, no response and no other relay can represent.
    # defence: half of a surrogate pair in a header
    if ("\\u" in header or not header.isascii()) and not is_well_formed(json.dumps(frame, ensure_ascii=False)):
        raise RemoteProtocolError("a frame header has half of a surrogate pair")
    return check(frame)


def check(frame: dict[str, Any]) -> dict[str, Any]:
    """F3: check the fields of a frame; returns it."""
    name = frame.get("t")
    fields = _FIELDS.get(name) if isinstance(name, str) else None
    if fields is None:
        raise RemoteProtocolError(f"unknown frame type {ascii(name)[:40]}")
    for name, (kind, required) in fields.items():
        value = frame.get(name)
        if value is None and not required:
            continue
        # type() and not isinstance: JSON true must not be accepted as the number 1.
        if type(value) is not kind:
            raise RemoteProtocolError(f"frame {frame['t']}: field {name} must be {kind.__name__}")
        if isinstance(value, int) and value < 0:
            raise RemoteProtocolError(f"frame {frame['t']}: field {name} is negative")
    if len(frame.get("c", "")) > MAX_CHANNEL:
        raise RemoteProtocolError(f"a channel's id has at most {MAX_CHANNEL} characters")
    return frame


# From a quote to the one that ends the string, or to the end of a text that is not JSON. It never backtracks.
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))


def depth(text: str) -> int:
    """How deep arrays and objects are nested. Linear, without a loop in Python, because texts may be megabytes."""
    brackets = _STRING.sub("", text).encode(errors="replace").translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(array("b", brackets)), default=0)


def is_deep(text: str) -> bool:
    """F3: has JSON more than MAX_DEPTH levels? Brackets inside strings, such as a request's id, do not count."""
    # defence: strings of a frame header: brackets inside them are no depth
    return text.count("[") + text.count("{") > MAX_DEPTH and depth(text) > MAX_DEPTH


_CHANNEL: Final = re.compile(f"[0-9A-Za-z_-]{{1,{MAX_CHANNEL}}}")


def is_channel(value: object) -> TypeGuard[str]:
    """L16: is it a channel's id as relays make them? It is written into headers without escapes."""
    return isinstance(value, str) and _CHANNEL.fullmatch(value) is not None


_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def is_well_formed(text: str) -> bool:
    """Can it be written as UTF-8?"""
    return text.isascii() or _LONE_SURROGATE.search(text) is None


def well_formed(text: str) -> str:
    """The text with U+FFFD in place of each half of a surrogate pair."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def request_id(frame: dict[str, Any], name: str) -> RequestId | None:
    value = frame.get(name)
    if value is None or is_request_id(value):
        return value
    raise RemoteProtocolError(f"frame {frame['t']}: field {name} is not a request id of at most {MAX_ID:,} characters")


def encode(**fields: Any) -> str:
    """A header as text, for rare frames. `Link.send` writes `msg` itself, because that is the hot path."""
    return json.dumps(fields, separators=(",", ":"))


def hello_header(greeting: Greeting, sid: str | None, rx: int) -> str:
    fields: dict[str, Any] = {
        "t": "hello",
        "v": [VERSION, VERSION],
        "build": greeting.build,
        "server": greeting.server,
        "inst": greeting.inst,
        "rx": rx,
    }
    if greeting.browser is not None:
        fields["browser"] = greeting.browser
    if sid is not None:
        fields["sid"] = sid
    return encode(**fields)


def welcome_header(terms: Terms, resumed: bool, rx: int) -> str:
    more: dict[str, Any] = {"static": True} if terms.static_tools else {}
    if terms.approve != "page":
        more["approve"] = terms.approve
    if terms.key:
        more["key"] = terms.key
    if terms.tasks:
        more["tasks"] = terms.tasks
    return encode(
        t="welcome",
        sid=terms.sid,
        epoch=terms.epoch,
        build=terms.build,
        resumed=resumed,
        rx=rx,
        grace_ms=terms.grace_ms,
        beat_ms=terms.beat_ms,
        max_msg=terms.max_message,
        window=terms.window,
        **more,
    )


def split(text: str) -> tuple[str, str | None]:
    """F1: split one WebSocket message into header and payload. The payload keeps its newlines: the relay refuses them
    (F2)."""
    header, newline, payload = text.partition("\n")
    return header, payload if newline else None
