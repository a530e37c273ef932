"""Servers as a configuration describes them: values, checked and complete. Reads no file and starts nothing.

A spec that equals the one before means that nothing changed for that server: a reload leaves it alone.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Final, Literal

# Which revision of MCP a server is spoken to in; `auto` asks it.
EraChoice = Literal["auto", "legacy", "modern"]
IdFormat = Literal["integer", "string"]

ERA_CHOICES: Final = ("auto", "legacy", "modern")
GRANTS: Final = ("authorization_code", "client_credentials")
CLIENT_AUTHS: Final = ("basic", "post")
ID_FORMATS: Final = ("integer", "string")
# What may be said of a server that lives in a browser: each is a setting that takes names.
BROWSER_OPTIONS: Final = ("plain", "instances", "static_tools")


@dataclass(frozen=True, slots=True)
class BrowserSpec:
    """A server that a page will offer. `path` is a second address, under which websocket-mcp's pages dial."""

    name: str
    path: str | None = None
    options: frozenset[str] = frozenset()

    kind = "browser"


@dataclass(frozen=True, slots=True)
class StdioSpec:
    """A server that the relay runs as a child process. `is_shared`: there can be only one process, for all clients."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    cwd: str | None = None
    timeout_s: float | None = None
    era: EraChoice = "auto"
    ids: IdFormat = "integer"
    is_shared: bool = False

    kind = "stdio"

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(value for _, value in self.env)


@dataclass(frozen=True, slots=True)
class OAuthSpec:
    """How to get a token where a server wants one. The words are those of OAuth."""

    grant: str = "authorization_code"
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    client_auth: str = "basic"
    scope: str | None = None
    issuer: str | None = None
    client_metadata_url: str | None = None


@dataclass(frozen=True, slots=True)
class HttpSpec:
    """A server elsewhere, over HTTP. `transport` is `auto` when the configuration left it open: then 2024-11-05's
    HTTP+SSE is tried where Streamable HTTP is not known."""

    name: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    transport: Literal["auto", "http", "sse"] = "auto"
    timeout_s: float | None = None
    era: EraChoice = "auto"
    ids: IdFormat = "integer"
    is_shared: bool = False
    oauth: OAuthSpec | None = OAuthSpec()

    @property
    def kind(self) -> str:
        return "sse" if self.transport == "sse" else "http"

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(value for _, value in self.headers)

    @property
    def may_sign_in(self) -> bool:
        """Is a token asked for where one is wanted? Not if the configuration has one."""
        return self.oauth is not None and all(name.lower() != "authorization" for name, _ in self.headers)


UpstreamSpec = StdioSpec | HttpSpec
Spec = BrowserSpec | UpstreamSpec


def fingerprint(spec: UpstreamSpec) -> str:
    """What a remembered catalogue belongs to: another command or address under the same name is another server. Secrets
    have no part in it: a new token does not make a new server."""
    if isinstance(spec, StdioSpec):
        parts = [spec.kind, spec.command, *spec.args, spec.cwd or ""]
    else:
        parts = [spec.kind, spec.url]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
