"""Requests that only one relay of several can answer: pairing codes and questions are in the memory of the one that has
been on the bus for longest. The others hand such requests over to it, and pass its answer on."""

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

PATHS: Final = frozenset({"/-/pair", "/-/ask", "/-/ask/answer", "/-/pairs", "/-/codes"})
REDEEM: Final = "/-/pair"
MAX_BODY: Final = 64 * 1024
# Longer than a page that asks to be paired is kept waiting for its answer.
ANSWER_TIMEOUT_S: Final = 60.0
GONE: Final = b'{"error":"relay_unavailable","message":"The relay that knows of this is gone. Try again."}'

# Status and headers, and the body.
Answer = tuple[dict[str, Any], bytes]
UNAVAILABLE: Final[Answer] = ({"status": 503, "headers": [["content-type", "application/json"]]}, GONE)


class LeaderProxy:
    """ASGI, in front of the application that has these routes."""

    def __init__(self, app: ASGIApp, cluster: Membership) -> None:
        self._app = app
        self._cluster = cluster
        self._numbers = itertools.count(1)
        # By the number of the request: who was asked, and who waits for the answer.
        self._waiting: dict[int, tuple[str, asyncio.Future[Answer]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        cluster.handle("http", self._receive_request)
        cluster.handle("http-answer", self._receive_answer)
        cluster.on_lost.append(self._fail_waiting)
        cluster.on_down.append(self._fail_waiting)

    def _leader(self) -> str | None:
        """The eldest of the others, if that is older than we are."""
        nodes = [(float(node.about.get("since") or 0.0), node.id) for node in self._cluster.nodes.values()]
        eldest = min([*nodes, (self._cluster.since, self._cluster.id)])
        return None if eldest[1] == self._cluster.id else eldest[1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in PATHS or not self._cluster.nodes or not self._cluster.is_up:
            await self._app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body") or len(body) > MAX_BODY:
                break
        response, text = await self._dispatch(scope, body[: MAX_BODY + 1])
        headers = [(str(name).encode("latin-1"), str(value).encode("latin-1")) for name, value in response["headers"]]
        await send({"type": "http.response.start", "status": response["status"], "headers": headers})
        await send({"type": "http.response.body", "body": text})

    async def _dispatch(self, scope: Scope, body: bytes) -> Answer:
        """A code that somebody was shown at the start of a relay is known to that one only; all else to the eldest."""
        if scope["path"] != REDEEM:
            node = self._leader()
            return await (self._run_here(scope, body) if node is None else self._ask_node(node, scope, body))
        answer = await self._run_here(scope, body)
        for node in list(self._cluster.nodes):
            if answer[0]["status"] < 400:
                break
            theirs = await self._ask_node(node, scope, body)
            answer = theirs if theirs[0]["status"] < 400 else answer
        return answer

    async def _ask_node(self, node: str, scope: Scope, body: bytes) -> Answer:
        number = next(self._numbers)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = node, answer
        try:
            self._cluster.send(node, {"op": "http", "x": number, **_pack(scope)}, body.decode("utf-8", "replace"))
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
        """That relay is gone, or the bus is, and with it the answer."""
        for asked, answer in self._waiting.values():
            if node in (None, asked) and not answer.done():
                answer.set_result(UNAVAILABLE)

    async def _run_here(self, scope: Scope, body: bytes) -> Answer:
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

    # -- for the others -----------------------------------------------------------------------------------------------

    def _receive_request(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        task = asyncio.create_task(self._answer(node, header, (payload or "").encode()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, node: str, header: dict[str, Any], body: bytes) -> None:
        response, text = await self._run_here(_unpack(header), body)
        with suppress(BusDown):
            answer = {"op": "http-answer", "x": header.get("x"), **response}
            self._cluster.send(node, answer, text.decode("utf-8", "replace"))


def _pack(scope: Scope) -> dict[str, Any]:
    """What the gate let through, with whom it recognised: the eldest asks nobody again."""
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
