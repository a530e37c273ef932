"""Client of the relay for the conductor: lists connected browsers, connects to them, and reports ACP sessions.

The relay proves itself on every connection before it gets a request (`bridge.http`). A missing relay is
not an error: the agent then gets no browser tools, and one warning is logged.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tabrelay import mcp_headers
from tabrelay.admission.token_store import TEMPORARY_PREFIX
from tabrelay.admission.tokens import StateError, Tokens
from tabrelay.bridge.credentials import CredentialsError, TokenFile
from tabrelay.bridge.errors import UNPROVEN, Failure
from tabrelay.bridge.http import HttpEndpoint
from tabrelay.bridge.messages import dump, load
from tabrelay.bridge.outbound import Outbound, OutboundLimits
from tabrelay.bridge.proven_connection import ProvenConnections  # noqa: F401 - loads httpx2 before a deadline runs
from tabrelay.bridge.target import NameTarget, relay_address
from tabrelay.calls.principal import CALL
from tabrelay.system.program import command

log = logging.getLogger("tabrelay.acp")

REQUEST_S: Final = 2.0
MAX_ANSWER: Final = 16 << 20
TOKEN_LIFE_S: Final = 24 * 3600.0
START_HINT: Final = f"Start one: {command()} demo"
HOME_HINT: Final = "Was the relay started with another --home?"


class RelayClient:
    """`base` returns the relay's current URL: the relay may start later, or again on another port."""

    def __init__(self, home: Path, base: Callable[[], str], names: tuple[str, ...] = ()) -> None:
        """`names`: offer exactly these servers, connected or not."""
        self._home = home
        self.base = base
        self._names = names
        self._id = secrets.token_hex(8)
        self._endpoints: dict[str, HttpEndpoint] = {}  # by path
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
        target = NameTarget(server, self.base, command())
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
        for endpoint in self._endpoints.values():
            await endpoint.close()

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
            # For the whole exchange: another program on the port may be slow on purpose.
            async with asyncio.timeout(REQUEST_S):
                status, text = await self._send(authorization, method, path, None if body is None else dump(body))
            if 200 <= status < 300:
                self._last_warning = ""
                return load(text)
            hint = HOME_HINT if status in (401, 403) else "Is it a relay?"
            self._warn_once(f"The relay at {base} refused ({status}). {hint}")
        except CredentialsError as problem:
            self._warn_once(str(problem))
        except (TimeoutError, Failure, ValueError) as problem:
            log.info("%s%s: %s", base, path, str(problem) or type(problem).__name__)
            is_unproven = isinstance(problem, Failure) and problem.code == UNPROVEN
            absent = f"No relay answers at {base}: the agent gets no browser tools. {START_HINT}"
            self._warn_once(str(problem) if is_unproven else absent)
        return None

    async def _send(self, authorization: str, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Sends a request on a connection on which the relay has proved itself. A refused proof is renewed once."""
        endpoint = self._endpoints.setdefault(path, HttpEndpoint(lambda: relay_address(f"{self.base()}{path}")))
        headers = {"authorization": authorization, "content-type": "application/json"}
        for _ in range(2):
            async with endpoint.open(method, headers, body, deadline_ms=None, idle_ms=None) as answer:
                text, _ = await answer.read(MAX_ANSWER)
            if answer.status != 401 or not endpoint.forget_proof(answer):
                break
        return answer.status, text

    def _warn_once(self, text: str) -> None:
        if self._last_warning is not None and text != self._last_warning:
            self._last_warning = text
            log.warning("%s", text)


def _is_online_browser(row: Any) -> bool:
    """Whether a row of the status is a connected browser. Checked strictly: another program may have the port."""
    is_row = isinstance(row, dict) and isinstance(row.get("name"), str)
    return is_row and row.get("kind") == "browser" and row.get("state") in ("online", "idle")


def _revoke(tokens: Tokens, name: str) -> None:
    try:
        tokens.revoke(lambda grant: grant.name == name)
    except (StateError, OSError) as problem:
        log.warning("A token could not be revoked, and ends by itself within a day: %s", problem)
