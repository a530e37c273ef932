"""ASGI proxy of the console's routes for several relays: a request about a call goes to the node that captured it.

The first part of a call's id is the id of its node. Breakpoints are set, read and released at all nodes; details of
several calls are collected; a fault is injected where the server's browser is. All other requests are answered here.
Rows of other nodes come by `shared_console`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from tabrelay.faces.nodes.node_requests import Answer, NodeRequests, read_body, write_answer

PREFIX: Final = "/-/console/"
# They begin with the call's node, or name it in their body.
OF_ONE_CALL: Final = ("calls/", "held/")
OF_ALL_NODES: Final = frozenset({"breakpoints", "release"})
FORWARDED: Final = OF_ALL_NODES | {"details", "faults", "run"}
IDS: Final = "ids"


class ConsoleProxy:
    """ASGI middleware in front of the application with the console's routes."""

    def __init__(self, app: ASGIApp, requests: NodeRequests, most_body: int) -> None:
        """`most_body`: bytes of a request, as everywhere in this relay."""
        self._app = app
        self._requests = requests
        self._most_body = most_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", ""))
        about = path.removeprefix(PREFIX)
        is_ours = path != about and (about in FORWARDED or about.startswith(OF_ONE_CALL))
        if scope["type"] != "http" or not is_ours or not self._requests.has_others:
            await self._app(scope, receive, send)
            return
        await write_answer(send, await self._answer(scope, about, await read_body(receive, self._most_body)))

    async def _answer(self, scope: Scope, about: str, body: bytes) -> Answer:
        if about in OF_ALL_NODES:
            return await self._everywhere(scope, body)
        if about == "details":
            return await self._details(scope, body)
        if about == "faults":
            return await self._first(scope, body)
        id = about.split("/")[1] if about.startswith(OF_ONE_CALL) else _member(body, "of")
        return await self._at(self._node_of(id), scope, body)

    def _node_of(self, id: object) -> str | None:
        """None: this node, which also answers for calls that no node has."""
        node = id.partition("-")[0] if isinstance(id, str) else ""
        return node if node in self._requests.cluster.nodes else None

    async def _at(self, node: str | None, scope: Scope, body: bytes) -> Answer:
        requests = self._requests
        return await (requests.run_here(scope, body) if node is None else requests.ask(node, scope, body))

    async def _everywhere(self, scope: Scope, body: bytes) -> Answer:
        """This node's answer, with what is held at the others. One that refuses counts only if all do."""
        nodes = [None, *self._requests.cluster.nodes]
        answers = await asyncio.gather(*(self._at(node, scope, body) for node in nodes))
        good = [answer for answer in answers if answer[0]["status"] < 400]
        if not good or not good[0][1]:
            return (good or answers)[0]
        found: list[dict[str, Any]] = [orjson.loads(text) for _, text in good]
        breakpoints = max((each["breakpoints"] for each in found), key=len)
        held = [each for one in found for each in one["held"]]
        return good[0][0] | _JSON, orjson.dumps({"breakpoints": breakpoints, "held": held})

    async def _details(self, scope: Scope, body: bytes) -> Answer:
        ids = _member(body, IDS)
        nodes: dict[str | None, list[object]] = {}
        for id in ids if isinstance(ids, list) else ():
            nodes.setdefault(self._node_of(id), []).append(id)
        if not nodes.keys() - {None}:
            return await self._at(None, scope, body)
        asked = [self._at(node, scope, orjson.dumps({IDS: part})) for node, part in nodes.items()]
        answers = await asyncio.gather(*asked)
        good = [answer for answer in answers if answer[0]["status"] < 400]
        if not good:
            return answers[0]
        details = {each["row"]["id"]: each for _, text in good for each in orjson.loads(text)["details"]}
        return good[0][0] | _JSON, orjson.dumps({"details": [details[id] for id in ids if id in details]})

    async def _first(self, scope: Scope, body: bytes) -> Answer:
        """The answer of the first node that does it."""
        first = await self._at(None, scope, body)
        for node in list(self._requests.cluster.nodes) if first[0]["status"] == 409 else ():
            answer = await self._at(node, scope, body)
            if answer[0]["status"] < 400:
                return answer
        return first


_JSON: Final[dict[str, Any]] = {
    "status": 200,
    "headers": [["content-type", "application/json"], ["cache-control", "no-store"]],
}


def _member(body: bytes, name: str) -> Any:
    try:
        value = orjson.loads(body)
    except ValueError:
        return None  # the route refuses it
    return value.get(name) if isinstance(value, dict) else None
