"""The bare forwarder: the floor that the relay is measured against.

It is the minimum between an HTTP caller and a WebSocket peer: uvicorn, httptools, uvloop, plain ASGI; one parse and one
dump of the request, a number in front of it to find the caller again, one WebSocket. It deliberately lacks everything
that makes a relay: no tokens, no checks, no bounds, no deadline, no resume, one peer, results unread.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
import uvicorn

from bench.stage import announce
from tabrelay.server.runner import bind

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_MESSAGE = 64 * 1024 * 1024


class Forwarder:
    """ASGI application. Frames are `<number>\\n<message>` both ways, text."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._send: Send | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._forward(receive, send)
        elif scope["type"] == "websocket":
            await self._serve(receive, send)

    async def _forward(self, receive: Receive, send: Send) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        number = str(next(self._numbers))
        self._waiting[number] = reply = asyncio.get_running_loop().create_future()
        assert self._send is not None, "a call before the peer"
        text = orjson.dumps(orjson.loads(body)).decode()
        await self._send({"type": "websocket.send", "text": f"{number}\n{text}"})
        answer = (await reply).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _serve(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self._send = send
        while (message := await receive())["type"] == "websocket.receive":
            number, _, answer = message["text"].partition("\n")
            self._waiting.pop(number).set_result(answer)


def configure() -> uvicorn.Config:
    """uvicorn without optional parts."""
    return uvicorn.Config(
        Forwarder(),
        http="httptools",
        ws="websockets-sansio",
        loop="uvloop",
        lifespan="off",
        ws_max_size=MAX_MESSAGE,
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    sock = bind("127.0.0.1", 0)
    announce(base_url=f"http://127.0.0.1:{sock.getsockname()[1]}", token="none")
    uvicorn.Server(configure()).run(sockets=[sock])


if __name__ == "__main__":
    main()
