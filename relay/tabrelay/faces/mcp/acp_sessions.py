"""Registry of ACP sessions that `tabrelay acp` reports: which agent session uses which server and makes which call.

A call names its session by a header with an id that the conductor made. The session's own id may be known only after
the first calls, so it is looked up for each call. A conductor that has not reported for SILENT_S is removed. What
agents and editors exchange is not visible here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from tabrelay.http.json_body import LargeBody
from tabrelay.http.problems import problem_response
from tabserver.wire.frames import META_ACP, Acp

SILENT_S: Final = 90.0
MAX_CONDUCTORS: Final = 256
MAX_ROWS: Final = 1024  # servers in all sessions of one conductor
MAX_CONNECTIONS: Final = 64  # of one server in one session
MAX_TEXT: Final = 256
MAX_CALLED: Final = 4096


@dataclass(frozen=True, slots=True)
class AcpServerRow:
    """One server in one session."""

    agent: str
    session: str | None
    server: str
    server_id: str
    how: str
    connections: tuple[str, ...]
    is_used: bool

    def describe(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "session": self.session,
            "server": self.server,
            "server_id": self.server_id,
            "how": self.how,
            "connections": list(self.connections),
            "is_used": self.is_used,
        }


class AcpSessions:
    """Sessions of all conductors. The gate requires the token of the token file for these routes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._conductors: dict[str, tuple[float, list[AcpServerRow]]] = {}
        self._rows: dict[str, AcpServerRow] = {}
        # Ids of servers that were called. A conductor does not see agents that connect to the relay directly.
        self._called: dict[str, None] = {}

    # -- calls ---------------------------------------------------------------------------------------------------------

    def add_acp_meta(self, header: str | None, message: Any) -> None:
        """Write the ACP session of a request into its `_meta`. Only the relay may set this key: any other value is
        removed."""
        params = message.get("params") if isinstance(message, dict) else None
        if not isinstance(params, dict):
            return
        meta = params.get("_meta")
        if isinstance(meta, dict):
            meta.pop(META_ACP, None)
        if header is None or len(header) > 2 * MAX_TEXT or "id" not in message or "method" not in message:
            return
        id, _, connection = header.partition(" ")
        self._record_server_id(id)
        row = self._rows.get(id)
        session, agent = (None, None) if row is None else (row.session, row.agent)
        acp = Acp(session, id, connection or None, agent)
        if isinstance(meta, dict | None):
            params["_meta"] = {**(meta or {}), META_ACP: acp.to_dict()}

    def _record_server_id(self, id: str) -> None:
        """Record that this id was called, even if no report has named it yet: agents may call before their session is
        known."""
        if id not in self._called and len(id) <= MAX_TEXT:
            if len(self._called) >= MAX_CALLED:
                del self._called[next(iter(self._called))]
            self._called[id] = None

    # -- reports of conductors -----------------------------------------------------------------------------------------

    def report(self, conductor: str, body: Any) -> None:
        """Replace everything that a conductor reported before. Raises ValueError for an invalid report."""
        rows = _read_report(body)
        self._drop_silent_conductors()
        if conductor not in self._conductors and len(self._conductors) >= MAX_CONDUCTORS:
            raise ValueError(f"{MAX_CONDUCTORS} conductors are already connected")
        self._conductors[conductor] = (self._clock(), rows)
        self._index()

    def leave(self, conductor: str) -> None:
        self._conductors.pop(conductor, None)
        self._index()

    def describe(self, may_see: Callable[[str], bool]) -> list[dict[str, Any]]:
        """Rows for the status."""
        self._drop_silent_conductors()
        shown = [row for _, rows in self._conductors.values() for row in rows if may_see(row.server)]
        return [{**row.describe(), "is_used": row.is_used or row.server_id in self._called} for row in shown]

    def _drop_silent_conductors(self) -> None:
        now = self._clock()
        for conductor, (reported_at, _) in list(self._conductors.items()):
            if now - reported_at > SILENT_S:
                self.leave(conductor)

    def _index(self) -> None:
        self._rows = {row.server_id: row for _, rows in self._conductors.values() for row in rows}

    def add_routes(self, app: FastAPI) -> None:
        @app.put("/-/acp/{conductor}")
        async def report(conductor: str, body: LargeBody) -> JSONResponse:
            try:
                self.report(conductor[:MAX_TEXT], body)
            except ValueError as problem:
                return problem_response(400, "bad_report", str(problem))
            return JSONResponse({})

        @app.delete("/-/acp/{conductor}")
        async def leave(conductor: str) -> JSONResponse:
            self.leave(conductor)
            return JSONResponse({})


def _read_report(body: Any) -> list[AcpServerRow]:
    sessions = body.get("sessions") if isinstance(body, dict) else None
    if not isinstance(sessions, list):
        raise ValueError("a report must have sessions")
    agent = _text(body.get("agent")) or "?"
    rows = []
    for session in sessions:
        servers = session.get("servers") if isinstance(session, dict) else None
        for one in servers if isinstance(servers, list) else ():
            server, id = (_text(one.get("server")), _text(one.get("server_id"))) if isinstance(one, dict) else ("", "")
            if server and id:
                given = one.get("connections")
                # defence: bounds: connections in a conductor's report
                connections = tuple(_text(text) for text in given[:MAX_CONNECTIONS]) if isinstance(given, list) else ()
                how, is_used = _text(one.get("how")), one.get("is_used") is True
                rows.append(
                    AcpServerRow(agent, _text(session.get("session")) or None, server, id, how, connections, is_used)
                )
            # defence: bounds: servers in a conductor's report
            if len(rows) > MAX_ROWS:
                raise ValueError(f"a report may have at most {MAX_ROWS} servers")
    return rows


def _text(value: Any) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""
