"""Console route that lists the legacy sessions of a server: client, protocol version, token, age and open calls.

The gate has checked that the principal may manage the relay. A server that the principal may not see is answered like
one without sessions. A session id is a secret, so no row has one. Sessions that are not in memory are not listed.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response

from tabrelay.calls.principal import Principal
from tabrelay.faces.mcp.sessions import Session, Sessions
from tabrelay.observe.call_log import shown_text
from tabrelay.system.loop_turns import run_in_turns

MAX_ROWS: Final = 100


class SessionRoutes:
    """`GET /-/console/sessions?server=NAME`."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route("/-/console/sessions", self._list, methods=["GET"])

    async def _list(self, request: Request, server: str = "") -> Response:
        principal: Principal = request.state.principal
        # defence: sessions of a server that the principal may not see
        found = self._sessions.of_server(server) if principal.may_see(server) else []
        # defence: length of the list of sessions
        newest = heapq.nlargest(MAX_ROWS, found, key=lambda session: session.last_used)
        rows = await run_in_turns(self._rows(newest))
        text = orjson.dumps({"sessions": rows, "total": len(found)})
        return Response(text, media_type="application/json", headers={"Cache-Control": "no-store"})

    def _rows(self, found: list[Session]) -> Generator[None, None, list[dict[str, Any]]]:
        rows = []
        for session in found:
            rows.append(self._row(session))
            yield
        return rows

    def _row(self, session: Session) -> dict[str, Any]:
        client = session.caller.client or {}
        age_s, idle_s = self._sessions.times_of(session)
        return {
            "client": {key: shown_text(client.get(key)) or None for key in ("name", "version")},
            "era": session.caller.version,
            "principal": session.caller.principal,
            "age_s": round(age_s, 1),
            "idle_s": round(idle_s, 1),
            "open": len(session.running),
            "is_listening": session.is_listening,
        }
