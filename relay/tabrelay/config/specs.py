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
GRANTS: Final = ("authorization_code", "client_credentials", "workload_identity", "enterprise_managed")
OAUTH_SECRETS: Final = frozenset({"client_secret", "assertion", "idp_client_secret"})
OAUTH_FILES: Final = frozenset({"client_key", "assertion_file"})
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
    client_key: str | None = None
    """The file of a private key, with which the client signs in, in place of a secret."""

    assertion: str | None = field(default=None, repr=False)
    """The JWT of a workload, or a user's ID token; or the file, or the command, that has a current one."""

    assertion_file: str | None = None
    assertion_command: str | None = None
    idp: str | None = None
    """The issuer of a company's identity provider, and this client's registration there."""

    idp_client_id: str | None = None
    idp_client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    issuer: str | None = None
    client_metadata_url: str | None = None

    def fault(self) -> tuple[str, str] | None:
        """What is wrong with the combination, and what is expected."""
        assertions = (self.assertion, self.assertion_file, self.assertion_command)
        secrets = (self.client_secret, self.client_key)
        if self.grant == "client_credentials" and not (self.client_id and any(secrets)):
            return "has no client for client_credentials", "client_id, and client_secret or client_key"
        if any(secrets) and not self.client_id:
            return "has a client_secret or client_key without its client", "client_id too"
        if all(secrets):
            return "has a client_secret and a client_key", "one of them"
        if self.client_key and self.grant != "client_credentials":
            return f"has a client_key, which {self.grant} does not use", "client_credentials"
        if sum(one is not None for one in assertions) > 1:
            return "has several assertions", "one of assertion, assertion_file and assertion_command"
        if self.grant in ("workload_identity", "enterprise_managed") and not any(assertions):
            return f"has no assertion for {self.grant}", "assertion, assertion_file or assertion_command"
        enterprise = (self.client_id, self.client_secret, self.idp, self.idp_client_id)
        if self.grant == "enterprise_managed" and not all(enterprise):
            return "lacks a part of enterprise_managed", "client_id, client_secret, idp and idp_client_id"
        return None


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
