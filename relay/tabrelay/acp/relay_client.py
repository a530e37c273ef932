"""Client of the relay for the conductor: lists connected browsers, connects to them, and reports ACP sessions.

The relay proves itself on every connection before it gets a request (`bridge.proven_connection`). A missing relay is
not an error: the agent then gets no browser tools, and one warning is logged.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx2

from tabrelay import mcp_headers
from tabrelay.admission.token_store import TEMPORARY_PREFIX
from tabrelay.admission.tokens import StateError, Tokens
from tabrelay.bridge.credentials import CredentialsError, TokenFile
from tabrelay.bridge.http import HttpEndpoint
from tabrelay.bridge.outbound import Outbound, OutboundLimits
from tabrelay.bridge.proven_connection import ProvenConnections
from tabrelay.bridge.target import NameTarget
from tabrelay.calls.principal import CALL
from tabrelay.calls.proof import Unproven, key_of

log = logging.getLogger("tabrelay.acp")

REQUEST_S: Final = 2.0
TOKEN_LIFE_S: Final = 24 * 3600.0
START_HINT: Final = "Start one: tabrelay demo"
HOME_HINT: Final = "Was the relay started with another --home?"


class RelayClient:
    """`base` returns the relay's current URL: the relay may start later, or again on another port."""

    def __init__(self, home: Path, base: Callable[[], str], names: tuple[str, ...] = ()) -> None:
        """`names`: offer exactly these servers, connected or not."""
        self._home = home
        self.base = base
        self._names = names
        self._id = secrets.token_hex(8)
        self._proven_client: tuple[bytes, httpx2.AsyncClient, ProvenConnections] | None = None
        self._credentials = TokenFile(home / "token", HOME_HINT, is_required=False)
        self._last_warning: str | None = ""  # the last warning, logged once; None: log none

    async def servers(self) -> list[str]:
        """Browser servers to offer; an empty list without a relay: the agent works without browser tools."""
        if self._names:
            return list(self._names)
        status = await self._request_json("GET", "/-/status")
        rows = status.get("servers") if isinstance(status, dict) else None
        if not isinstance(rows, list):
            return []
        found = [row["name"] for row in rows if _is_online_browser(row)]
        if not found:
            log.info("No page is connected to the relay: the session gets no browser tools.")
        return found

    def outbound(self, server: str, server_id: str, connection: str) -> Outbound:
        """The HTTP client for a browser's server. The header names the session and connection of its calls."""
        target = NameTarget(server, self.base)
        return Outbound(
            HttpEndpoint(target),
            self._credentials,
            {mcp_headers.TABRELAY_ACP: f"{server_id} {connection}"},
            OutboundLimits(),
        )

    def token(self, server: str) -> tuple[str, Callable[[], None]]:
        """A token for an agent that connects to the relay itself: for this server, valid until revoked or for one day.

        Raises StateError, TokenStoreError or OSError."""
        tokens, name = Tokens(self._home), f"{TEMPORARY_PREFIX}{secrets.token_hex(4)}"
        made = tokens.issue_named(name, (CALL,), (server,), TOKEN_LIFE_S)
        return made, lambda: _revoke(tokens, name)

    async def report(self, agent: str, sessions: list[dict[str, Any]]) -> None:
        """Reports the sessions to the relay, which drops them when reports stop."""
        await self._request_json("PUT", f"/-/acp/{self._id}", {"agent": agent, "sessions": sessions})

    async def close(self) -> None:
        self._last_warning = None  # a warning has no use any more
        await self._request_json("DELETE", f"/-/acp/{self._id}")
        await self._close_client()

    async def _request_json(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of the answer; None when no relay answers."""
        base = self.base()
        try:
            authorization = await self._credentials.header()
            if authorization is None:
                self._warn_once(
                    f"No relay answers at {base}: there is no token in {self._home}. {HOME_HINT} {START_HINT}"
                )
                return None
            async with asyncio.timeout(
                REQUEST_S
            ):  # for the whole exchange: another program on the port may be slow on purpose
                answer = await self._send(key_of(authorization.partition(" ")[2]), method, f"{base}{path}", body)
            value = answer.raise_for_status().json()
        except Unproven as problem:
            self._warn_once(str(problem))
        except CredentialsError as problem:
            self._warn_once(str(problem))
        except httpx2.HTTPStatusError as refused:
            code = refused.response.status_code
            self._warn_once(
                f"The relay at {base} refused ({code}). {HOME_HINT if code in (401, 403) else 'Is it a relay?'}"
            )
        except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, ValueError) as problem:
            log.info("%s%s: %s", base, path, str(problem) or type(problem).__name__)
            self._warn_once(f"No relay answers at {base}: the agent gets no browser tools. {START_HINT}")
        else:
            self._last_warning = ""
            return value
        return None

    async def _send(self, key: bytes, method: str, url: str, body: Any) -> httpx2.Response:
        """Sends a request on a connection on which the relay has proved itself. A refused proof is renewed once."""
        if self._proven_client is None or self._proven_client[0] != key:
            await self._close_client()
            proven = ProvenConnections(key)
            self._proven_client = (
                key,
                httpx2.AsyncClient(trust_env=False, timeout=REQUEST_S, transport=proven.transport),
                proven,
            )
        _, client, proven = self._proven_client
        where = httpx2.URL(url)
        for is_last in (False, True):
            shown = await proven.authorization(where.host, where.port or 80)
            answer = await client.request(method, url, json=body, headers={"Authorization": shown})
            if is_last or answer.status_code != 401 or not proven.forget(shown):
                break
        return answer

    async def _close_client(self) -> None:
        if self._proven_client is not None:
            _, client, proven = self._proven_client
            self._proven_client = None
            await client.aclose()
            await proven.close()

    def _warn_once(self, text: str) -> None:
        if self._last_warning is not None and text != self._last_warning:
            self._last_warning = text
            log.warning("%s", text)


def _is_online_browser(row: Any) -> bool:
    """Whether a row of the status is a connected browser. Checked strictly: another program may have the port."""
    is_row = isinstance(row, dict) and isinstance(row.get("name"), str)
    return is_row and row.get("kind") == "browser" and row.get("state") == "online"


def _revoke(tokens: Tokens, name: str) -> None:
    try:
        tokens.revoke(lambda grant: grant.name == name)
    except (StateError, OSError) as problem:
        log.warning("A token could not be revoked, and ends by itself within a day: %s", problem)
