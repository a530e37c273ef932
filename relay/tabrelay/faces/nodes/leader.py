"""ASGI proxy to the leader of several relays: the node that has been on the bus longest answers pairing requests.

Pairing codes and questions exist only in the leader's memory, so other nodes forward these requests over the bus and
return its response. A code that a relay printed at its start is known to that relay only, so redeeming one asks all
nodes. There is no election: the node with the earliest start on the bus is the leader.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from tabrelay.faces.nodes.node_requests import Answer, NodeRequests, read_body, write_answer

PATHS: Final = frozenset({"/-/pair", "/-/ask", "/-/ask/answer", "/-/pairs", "/-/codes"})
REDEEM: Final = "/-/pair"
MAX_BODY: Final = 64 * 1024


class LeaderProxy:
    """ASGI middleware in front of the application with the pairing routes."""

    def __init__(self, app: ASGIApp, requests: NodeRequests) -> None:
        self._app = app
        self._requests = requests
        self._cluster = requests.cluster

    def _leader(self) -> str | None:
        """The node that has been on the bus longest; None if that is this one."""
        nodes = [(float(node.about.get("since") or 0.0), node.id) for node in self._cluster.nodes.values()]
        leader = min([*nodes, (self._cluster.since, self._cluster.id)])
        return None if leader[1] == self._cluster.id else leader[1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in PATHS or not self._requests.has_others:
            await self._app(scope, receive, send)
            return
        await write_answer(send, await self._dispatch(scope, await read_body(receive, MAX_BODY)))

    async def _dispatch(self, scope: Scope, body: bytes) -> Answer:
        """A code that a relay printed at its start is known to that relay only; everything else to the leader."""
        requests = self._requests
        if scope["path"] != REDEEM:
            node = self._leader()
            return await (requests.run_here(scope, body) if node is None else requests.ask(node, scope, body))
        answer = await requests.run_here(scope, body)
        for node in list(self._cluster.nodes):
            if answer[0]["status"] < 400:
                break
            theirs = await requests.ask(node, scope, body)
            answer = theirs if theirs[0]["status"] < 400 else answer
        return answer
