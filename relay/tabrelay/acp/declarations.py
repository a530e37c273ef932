"""Declarations of MCP servers in ACP session requests (`mcpServers`): parsing the editor's, writing those for agents.

A declaration with an `acp:` URL or of type `acp` names a server that the editor provides over ACP; the agent gets a
stdio, HTTP or ACP declaration instead. Pure functions; starting the servers is done in `session_servers`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tabrelay import mcp_headers
from tabrelay.acp.stdio_shim import NONCE

_ID_KEYS: Final = ("serverId", "acpId", "id")  # the names in the drafts of MCP over ACP


class BadDeclaration(ValueError):
    """The declaration is invalid; the text goes to the editor."""


@dataclass(frozen=True, slots=True)
class DeclaredServer:
    """A server that its declarer provides over ACP. `style`: declared by an `acp:` URL, or by the type `acp`."""

    name: str
    id: str
    style: Literal["url", "acp"]
    key: str = "serverId"

    @property
    def url(self) -> str:
        """The id in the dialects with URLs; `bare`: in the others. The user may choose either with --profile."""
        return self.id if self.style == "url" else f"acp:{self.id}"

    @property
    def bare(self) -> str:
        return self.id.removeprefix("acp:") if self.style == "url" else self.id


def read(entry: Any) -> DeclaredServer | None:
    """None for servers of other kinds, which pass unchanged. Raises BadDeclaration."""
    if not isinstance(entry, dict):
        return None
    name = str(entry.get("name", ""))
    url = entry.get("url")
    if isinstance(url, str) and url.startswith("acp:"):
        if entry.get("headers"):
            raise BadDeclaration(f'MCP server "{name}": an address that begins with acp: takes no headers.')
        return DeclaredServer(name, url, "url")
    if entry.get("type") != "acp":
        return None
    for key in _ID_KEYS:
        if isinstance(entry.get(key), str):
            return DeclaredServer(name, entry[key], "acp", key)
    raise BadDeclaration(f'MCP server "{name}": a server of type acp needs a serverId.')


def stdio(name: str, program: Sequence[str], port: int, nonce: str, *, is_typed: bool, meta: Any = None) -> str:
    """For agents that start programs. The nonce is in the environment: every user can read a process's arguments.

    `is_typed`: ACP 2 requires a type for every server; in ACP 1 stdio servers have none.
    """
    entry: dict[str, Any] = {"type": "stdio"} if is_typed else {}
    entry |= {
        "name": name,
        "command": program[0],
        "args": [*program[1:], "mcp", str(port)],
        "env": [{"name": NONCE, "value": nonce}],
    }
    return json.dumps(entry if meta is None else entry | {"_meta": meta})


def http(name: str, url: str, token: str | None, server_id: str) -> str:
    headers = [{"name": "Authorization", "value": f"Bearer {token}"}] if token is not None else []
    headers.append({"name": mcp_headers.TABRELAY_ACP, "value": server_id})
    return json.dumps({"type": "http", "name": name, "url": url, "headers": headers})


def native(name: str, server_id: str, *, by_url: bool) -> str:
    """For agents that support MCP over ACP."""
    if by_url:
        return json.dumps({"type": "http", "name": name, "url": f"acp:{server_id}", "headers": []})
    return json.dumps({"type": "acp", "name": name, "serverId": server_id})


def free_name(wanted: str, taken: Collection[str]) -> str:
    """A name that is not taken: agents can't distinguish two servers with one name. The editor's server keeps it."""
    tries = (wanted, f"{wanted}-browser", *(f"{wanted}-browser-{number}" for number in range(2, 1000)))
    return next(name for name in tries if name not in taken)
