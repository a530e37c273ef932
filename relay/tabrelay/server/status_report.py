"""Status of one relay: the JSON of the status route, and the states of its servers for its record.

Catalogues of many servers take several iterations of the event loop. Rows of other relays on the bus are merged. What a
row contains is decided in `routing.status`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from tabrelay import __version__
from tabrelay.admission.page_refusals import PageRefusals
from tabrelay.calls.principal import ADMIN, MANAGE, Principal
from tabrelay.faces.mcp.acp_sessions import AcpSessions
from tabrelay.routing.registry import Registry
from tabrelay.routing.status import encode_rows, iter_rows, only_own_tasks, server_state
from tabrelay.server.relay_parts import RelayParts
from tabrelay.system.loop_turns import run_in_turns
from tabserver.wire.names import INSTANCE_SEPARATOR

if TYPE_CHECKING:
    from tabrelay.server.cluster import Cluster


class StatusReport:
    """One per relay."""

    def __init__(
        self,
        parts: RelayParts,
        registry: Registry,
        acp_sessions: AcpSessions,
        refusals: PageRefusals,
        cluster: Callable[[], Cluster | None],
    ) -> None:
        self._parts, self._registry = parts, registry
        self._acp_sessions, self._refusals = acp_sessions, refusals
        self._cluster = cluster

    async def json(self, principal: Principal) -> bytes:
        """What this principal may see."""
        parts, cluster = self._parts, self._cluster()
        rows = await run_in_turns(iter_rows(self._registry, parts.app_url or parts.url, principal.may_see, time.time()))
        about = {
            "version": __version__,
            "build": parts.assets.build,
            "url": parts.url,
            **({"app_url": parts.app_url} if parts.app_url else {}),
            "token_command": parts.token_command,
            "away_wait_s": parts.settings.away_wait_s,
        }
        more: dict[str, Any] = {
            "acp": self._acp_sessions.describe(principal.may_see),
            "refused": self._refusals.recent(principal.may_see),
        }
        if cluster is not None:
            rows, more["nodes"] = await cluster.status.gather(rows, principal.may_see)
        if not principal.scopes & {ADMIN, MANAGE}:
            only_own_tasks(rows, principal.id)
        servers = await run_in_turns(encode_rows(rows))
        return orjson.dumps(about)[:-1] + b',"servers":' + servers + b"," + orjson.dumps(more)[1:]

    def server_states(self) -> dict[str, str]:
        """What this relay has of each server, for its record."""
        is_group = self._parts.settings.workers > 1  # the other processes are behind the same port
        return {
            entry.name: server_state(self._registry, entry, counts_nodes=is_group)
            for entry in self._registry.entries()
            if INSTANCE_SEPARATOR not in entry.name
        }
