"""Server specs: validated descriptions of browser, stdio and HTTP servers, as frozen values.

Specs are compared: a reload does not touch a server whose spec is unchanged. Reads no file and starts nothing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Final, Literal

# MCP era that is used with a server; `auto` negotiates.
EraChoice = Literal["auto", "legacy", "modern"]
IdFormat = Literal["integer", "string"]

ERA_CHOICES: Final = ("auto", "legacy", "modern")
GRANTS: Final = ("authorization_code", "client_credentials")
CLIENT_AUTHS: Final = ("basic", "post")
ID_FORMATS: Final = ("integer", "string")
# Options of a server in a browser. Each is also a setting with a list of names.
BROWSER_OPTIONS: Final = ("plain", "instances", "static_tools")


@dataclass(frozen=True, slots=True)
class BrowserSpec:
    """A server that a page will offer. `path`: a second address, to which pages of websocket-mcp connect."""

    name: str
    path: str | None = None
    options: frozenset[str] = frozenset()

    kind = "browser"


@dataclass(frozen=True, slots=True)
class StdioSpec:
    """A server that the relay runs as a child process. `is_shared`: one process for all clients."""

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
    """How to get a token for a server that requires one. Terms as in OAuth."""

    grant: str = "authorization_code"
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    client_auth: str = "basic"
    scope: str | None = None
    issuer: str | None = None
    client_metadata_url: str | None = None


@dataclass(frozen=True, slots=True)
class HttpSpec:
    """An upstream over HTTP. `transport` `auto`: the configuration does not specify it, and HTTP+SSE of 2024-11-05 is
    tried where Streamable HTTP is not supported."""

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
        """May the relay sign in with OAuth? Not if the configuration contains a token."""
        return self.oauth is not None and all(name.lower() != "authorization" for name, _ in self.headers)


UpstreamSpec = StdioSpec | HttpSpec
Spec = BrowserSpec | UpstreamSpec


def fingerprint(spec: UpstreamSpec) -> str:
    """Identity of a server for its stored catalogue: another command or address under the same name is another server.
    Contains no secrets: with a new token it is still the same server."""
    if isinstance(spec, StdioSpec):
        parts = [spec.kind, spec.command, *spec.args, spec.cwd or ""]
    else:
        parts = [spec.kind, spec.url]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
