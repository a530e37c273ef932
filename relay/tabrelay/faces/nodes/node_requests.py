"""HTTP requests that another node of the bus answers: they are sent over the bus, with the principal that the gate has
recognised, and run by the application there.

What is asked of which node is decided by its users. A request is answered once, or refused when the node or the bus is
gone.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tabrelay.bus.bus import BusDown
from tabrelay.bus.members import Membership
from tabrelay.calls.principal import Principal
from tabrelay.system.tasks import BackgroundTasks

# Longer than the long poll of a page that asks to be paired (HOLD_S in faces/web/pairing.py).
ANSWER_TIMEOUT_S: Final = 60.0
GONE: Final = b'{"error":"relay_unavailable","message":"The relay that handles this is gone. Try again."}'

# Status and headers, and the body.
Answer = tuple[dict[str, Any], bytes]
UNAVAILABLE: Final[Answer] = ({"status": 503, "headers": [["content-type", "application/json"]]}, GONE)


class NodeRequests:
    """One per relay on a bus. `app` runs the requests of other nodes."""

    def __init__(self, app: ASGIApp, cluster: Membership) -> None:
        self._app = app
        self.cluster = cluster
        self._numbers = itertools.count(1)
        # By the number of the request: the node that was asked, and the future of its answer.
        self._waiting: dict[int, tuple[str, asyncio.Future[Answer]]] = {}
        self.tasks = BackgroundTasks()
        cluster.handle("http", self._receive_request)
        cluster.handle("http-answer", self._receive_answer)
        cluster.on_lost.append(self._fail_waiting)
        cluster.on_down.append(self._fail_waiting)

    async def close(self) -> None:
        """Drop the requests of other nodes. They get no answer: they notice that this node stops."""
        # defence: requests of other relays when this one stops
        await self.tasks.cancel()

    @property
    def has_others(self) -> bool:
        return bool(self.cluster.nodes) and self.cluster.is_up

    async def ask(self, node: str, scope: Scope, body: bytes) -> Answer:
        number = next(self._numbers)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = node, answer
        try:
            self.cluster.send(node, {"op": "http", "x": number, **_pack(scope)}, body.decode("utf-8", "replace"))
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await answer
        except (BusDown, TimeoutError):
            return UNAVAILABLE
        finally:
            del self._waiting[number]

    def _receive_answer(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        asked, answer = self._waiting.get(int(header.get("x", 0)), ("", None))
        if answer is not None and asked == node and not answer.done():
            answer.set_result((header, (payload or "").encode()))

    def _fail_waiting(self, node: str | None = None) -> None:
        """A relay or the bus is gone, so these answers will not come."""
        for asked, answer in self._waiting.values():
            if node in (None, asked) and not answer.done():
                answer.set_result(UNAVAILABLE)

    async def run_here(self, scope: Scope, body: bytes) -> Answer:
        response: dict[str, Any] = {"status": 500, "headers": []}
        parts: list[bytes] = []
        came = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if came:
                return came.pop()
            await asyncio.sleep(ANSWER_TIMEOUT_S)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                response["status"] = message["status"]
                headers = message.get("headers", ())
                response["headers"] = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]
            else:
                parts.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return response, b"".join(parts)

    # -- requests of other nodes ---------------------------------------------------------------------------------------

    def _receive_request(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        self.tasks.start(self._answer(node, header, (payload or "").encode()))

    async def _answer(self, node: str, header: dict[str, Any], body: bytes) -> None:
        response, text = await self.run_here(_unpack(header), body)
        with suppress(BusDown):
            answer = {"op": "http-answer", "x": header.get("x"), **response}
            self.cluster.send(node, answer, text.decode("utf-8", "replace"))


async def read_body(receive: Receive, most: int) -> bytes:
    """The body; of a longer one, its first `most` bytes and one more."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body") or len(body) > most:
            return bytes(body[: most + 1])


async def write_answer(send: Send, answer: Answer) -> None:
    response, text = answer
    headers = [(str(name).encode("latin-1"), str(value).encode("latin-1")) for name, value in response["headers"]]
    await send({"type": "http.response.start", "status": response["status"], "headers": headers})
    await send({"type": "http.response.body", "body": text})


def _pack(scope: Scope) -> dict[str, Any]:
    """The request and the principal that our gate recognised, so that the other node need not check the token again."""
    principal: Principal | None = scope.get("state", {}).get("principal")
    who = None
    if principal is not None:
        servers = None if principal.servers is None else sorted(principal.servers)
        who = [principal.id, sorted(principal.scopes), principal.origin, servers, principal.credential]
    return {
        "method": scope["method"],
        "path": scope["path"],
        "query": scope.get("query_string", b"").decode("latin-1"),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "client": list(scope["client"]) if scope.get("client") else None,
        "scheme": scope.get("scheme", "http"),
        "who": who,
    }


def _unpack(header: dict[str, Any]) -> Scope:
    state: dict[str, Any] = {}
    if header.get("who") is not None:
        id, scopes, origin, servers, credential = header["who"]
        principal = Principal(id, frozenset(scopes), origin, None if servers is None else frozenset(servers))
        state["principal"] = replace(principal, credential=credential)
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": header["method"],
        "path": header["path"],
        "raw_path": header["path"].encode(),
        "root_path": "",
        "query_string": header["query"].encode("latin-1"),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in header["headers"]],
        "client": tuple(header["client"]) if header.get("client") else None,
        "server": None,
        "scheme": header["scheme"],
        "state": state,
    }
