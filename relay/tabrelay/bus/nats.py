"""NATS bus for relays on several machines, without JetStream: the server stores subscriptions and nothing else.

nats-py carries the messages. Reconnecting is done here, with a new client each time: nats-py would keep messages that
are sent meanwhile and send them later, when their callers already have an error. Liveness is checked here too: nats-py
queues its pings behind all other data, and reports a closed connection only after its written data was read.

Does not redeliver lost messages: `redelivery` does.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tabrelay.bus.bus import BusDown, BusMessage, OnReply
from tabrelay.bus.nats_credentials import NatsCredentials

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

log = logging.getLogger(__name__)

CONNECT_S: Final = 2
PING_S: Final = 5.0
# Waits of `ping_s` for a pong. Several waits instead of one: after a suspension of this process, a single wait would
# end before data that arrived meanwhile is read.
PONG_WAITS: Final = 3
NEVER_S: Final = 86_400 * 365
LOOK_S: Final = 0.5
FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 2.0
STOP_S: Final = 2.0
# nats-py buffers what it is given and never yields: with thousands of names, yield to the event loop after so many.
AT_A_TIME: Final = 100
# Bytes of messages of one subscription that are handled in one callback. Each message counts as `MESSAGE` more.
AT_ONCE: Final = 256 * 1024
MESSAGE: Final = 4096
SMALLEST_PAYLOAD: Final = 64 * 1024
# Bytes that wait to be written, with subjects and `ENTRY` for each message. With more, the bus is too slow, and calls
# are refused.
MAX_QUEUED: Final = 64 * 1024 * 1024
ENTRY: Final = 512
# Messages that wait to be written, and changes of subscriptions beside them. A change is never dropped: with more, the
# connection is given up, and the next one subscribes to what is wanted then.
MAX_ENTRIES: Final = 65_536
MAX_CHANGES: Final = 65_536
# Unread bytes and messages of one subscription. Handlers return at once, so it fills only while the event loop is busy.
MAX_UNREAD: Final = 64 * 1024 * 1024
MAX_UNREAD_MESSAGES: Final = 65_536


@dataclass(frozen=True, slots=True)
class NatsAuth:
    """Authentication at the server, if it is not in the address."""

    credentials: Path | None = None
    ca: Path | None = None


@dataclass(slots=True, eq=False)
class _Subscription:
    """One subscription, which is made again on each new connection."""

    subject: str
    on_message: Callable[[BusMessage], None]
    is_open: bool = True
    subscription: Subscription | None = None


class NatsBus:
    """One connection, kept open while the relay runs."""

    def __init__(self, urls: tuple[str, ...], auth: NatsAuth, name: str, *, ping_s: float = PING_S) -> None:
        """`name`: of this client in the server's monitoring. `ping_s`: interval of pings."""
        self.on_state: list[Callable[[bool], None]] = []
        self.max_payload = SMALLEST_PAYLOAD
        self.problem: str | None = None
        self._urls = urls
        self._auth = auth
        self._name = name
        self._ping_s = ping_s
        self._client: Client | None = None
        self._subscriptions: dict[_Subscription, None] = {}
        self._inbox = f"_rl.{secrets.token_hex(8)}"
        self._replies: dict[str, OnReply] = {}
        self._ids = itertools.count(1)
        self._queue: deque[tuple[int, Callable[[Client], Awaitable[Any]]]] = deque()
        self._queued = 0
        self._wake = asyncio.Event()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def is_up(self) -> bool:
        return self._client is not None and self._client.is_connected

    async def start(self) -> None:
        self._subscriptions[_Subscription(f"{self._inbox}.*", self._replied)] = None
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._flush()
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _flush(self) -> None:
        """Wait until everything that was queued before is written."""
        done = asyncio.Event()

        async def finish(client: Client) -> None:
            await client.flush()
            done.set()

        if self.is_up:
            self._enqueue(0, finish)
            await done.wait()

    # -- publish and subscribe ----------------------------------------------------------------------------------------

    def subscribe(self, subject: str, on_message: Callable[[BusMessage], None]) -> Callable[[], None]:
        wanted = _Subscription(subject, on_message)
        self._subscriptions[wanted] = None
        if self.is_up:
            self._enqueue_change(lambda client: self._subscribe(client, wanted))

        def close() -> None:
            if wanted.is_open:
                wanted.is_open = False
                self._subscriptions.pop(wanted, None)
                if self.is_up:
                    self._enqueue_change(lambda client: self._unsubscribe(wanted))

        return close

    def send(self, subject: str, data: bytes, on_reply: OnReply | None = None) -> Callable[[], None]:
        if not self.is_up:
            raise BusDown("The bus is not connected.")
        reply = f"{self._inbox}.{next(self._ids)}" if on_reply is not None else ""
        size = _size(subject, data, reply)
        if not self._has_room(size) or len(data) > self.max_payload:
            raise BusDown("The bus accepts no more data.")
        self._enqueue(size, lambda client: client.publish(subject, data, reply))
        if on_reply is None:
            return lambda: None
        self._replies[reply] = on_reply
        return lambda: self._replies.pop(reply, None) and None

    def answer(self, reply: str, data: bytes) -> None:
        size = _size(reply, data)
        # defence: bounds: answers that the bus has not taken
        if self.is_up and len(data) <= self.max_payload and self._has_room(size):
            self._enqueue(size, lambda client: client.publish(reply, data))

    def _has_room(self, size: int) -> bool:
        """May a message of this size be queued?"""
        # defence: bounds: messages that the bus has not taken
        return self._queued + size <= MAX_QUEUED and len(self._queue) < MAX_ENTRIES

    def _enqueue(self, size: int, act: Callable[[Client], Awaitable[Any]]) -> None:
        self._queued += size
        self._queue.append((size, act))
        self._wake.set()

    def _enqueue_change(self, act: Callable[[Client], Awaitable[Any]]) -> None:
        """Queue a change of a subscription, or give up a connection that takes too few."""
        # defence: bounds: changes of subscriptions that the bus has not taken
        if len(self._queue) >= MAX_ENTRIES + MAX_CHANGES:
            self._lost.set()
            return
        self._enqueue(0, act)

    def _replied(self, message: BusMessage) -> None:
        on_reply = self._replies.get(message.subject)
        if on_reply is not None:
            on_reply(message.data)

    # -- the connection -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Connect, write the queue until the connection is lost, and reconnect."""
        pause_s = FIRST_PAUSE_S
        from nats.aio.client import Client

        while not self._stopping:
            client = Client()
            try:
                await self._connect(client)
                pause_s = FIRST_PAUSE_S
                await self._serve(client)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # nats-py may raise anything if the server is not a NATS server
                self._failed(error)
            finally:
                was_up, self._client = self._client is not None, None
                self._queue.clear()
                self._queued = 0
                self._replies.clear()
                if was_up and not self._stopping:
                    log.warning("The bus is lost: servers on other relays can't be reached.")
                    self._notify_state(False)
                await _close_client(client)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _notify_state(self, is_up: bool) -> None:
        for notify in self.on_state:
            notify(is_up)

    def _failed(self, error: Exception) -> None:
        """Log each problem once: connecting is retried without limit."""
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if text != self.problem:
            self.problem = text
            log.warning("Can't reach the bus at %s (%s). Trying again.", without_credentials(self._urls), text)

    async def _connect(self, client: Client) -> None:
        self._lost = lost = asyncio.Event()

        async def closed() -> None:
            lost.set()

        async def complain(error: Exception) -> None:
            log.debug("bus: %s", error)

        auth: dict[str, Any] = {}
        if self._auth.credentials is not None:
            # Read for each connection: operators may replace the file while the relay runs.
            credentials = NatsCredentials(self._auth.credentials)
            auth |= {"signature_cb": credentials.sign, "user_jwt_cb": credentials.jwt}
            client._auth_configured = True  # nats-py sets it only for files that it reads itself
        if self._auth.ca is not None or any(urlsplit(url).scheme == "tls" for url in self._urls):
            import ssl

            auth["tls"] = ssl.create_default_context(cafile=self._auth.ca)
        async with asyncio.timeout(CONNECT_S * (len(self._urls) + 1)):
            await client.connect(
                list(self._urls),
                name=self._name,
                allow_reconnect=False,
                connect_timeout=CONNECT_S,
                max_reconnect_attempts=1,
                ping_interval=NEVER_S,
                closed_cb=closed,
                disconnected_cb=closed,
                error_cb=complain,
                no_echo=False,
                **auth,
            )

    async def _serve(self, client: Client) -> None:
        """Write until the connection is lost, or the server is silent."""
        lost = self._lost
        work = asyncio.create_task(self._subscribe_and_write(client, lost))
        ends = (work, asyncio.create_task(lost.wait()), asyncio.create_task(_wait_for_silence(client, self._ping_s)))
        try:
            done: set[asyncio.Task[Any]] = set()
            while not done and client.is_connected:  # it may be disconnected long before it calls `closed_cb`
                done, _ = await asyncio.wait(ends, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.set()
            await _end(ends)
        if self._client is None:
            error = None if work.cancelled() else work.exception()
            raise error or ConnectionError("the connection was closed at once")

    async def _subscribe_and_write(self, client: Client, lost: asyncio.Event) -> None:
        """Listen again to all that is listened to, then write what is queued."""
        for number, wanted in enumerate(list(self._subscriptions), 1):
            if lost.is_set():
                return
            await self._subscribe(client, wanted)
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)
        await client.flush()
        self.max_payload = max(client.max_payload, SMALLEST_PAYLOAD)
        self._client, self.problem = client, None
        log.info("Connected to the bus at %s.", without_credentials(self._urls))
        self._notify_state(True)
        await self._write(client, lost)

    async def _write(self, client: Client, lost: asyncio.Event) -> None:
        done = 0
        while True:
            while self._queue:
                if lost.is_set():
                    return
                size, act = self._queue[0]
                await act(client)
                self._queue.popleft()
                self._queued -= size
                done += 1
                if done % AT_A_TIME == 0:
                    await asyncio.sleep(0)
            self._wake.clear()
            await self._wake.wait()

    async def _subscribe(self, client: Client, wanted: _Subscription) -> None:
        done = [0]

        async def receive(message: Msg) -> None:
            if not wanted.is_open:
                return
            if message.headers and message.headers.get("Status") == "503" and not message.data:
                on_reply = self._replies.pop(message.subject, None)
                if on_reply is not None:
                    on_reply(None)
                return
            try:
                wanted.on_message(BusMessage(message.subject, message.data, message.reply))
            except Exception:  # an unexpected message must not end the subscription
                log.exception("A message from the bus could not be handled.")
            # nats-py delivers all received messages in one callback of the event loop.
            done[0] += len(message.data) + MESSAGE
            if done[0] > AT_ONCE:
                done[0] = 0
                await asyncio.sleep(0)

        if wanted.is_open:
            wanted.subscription = await client.subscribe(
                wanted.subject,
                cb=receive,
                pending_bytes_limit=MAX_UNREAD,
                # defence: bounds: unread messages of a subscription
                pending_msgs_limit=MAX_UNREAD_MESSAGES,
            )

    async def _unsubscribe(self, wanted: _Subscription) -> None:
        if wanted.subscription is not None:
            with suppress(Exception):  # its connection is closed, and with it the subscription
                await wanted.subscription.unsubscribe()


async def _wait_for_silence(client: Client, ping_s: float) -> None:
    """Returns when the server has not answered a ping for long."""
    while True:
        await asyncio.sleep(ping_s)
        # Not `flush`, which cancels this future on a timeout: nats-py then fails when the pong arrives.
        pong: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with suppress(TimeoutError):
            async with asyncio.timeout(ping_s):  # the ping is queued at once; the wait is for the write
                await client._send_ping(pong)
        for _ in range(PONG_WAITS):
            await asyncio.wait((pong,), timeout=ping_s)
            if pong.done():
                break
        else:
            return


async def _end(tasks: tuple[asyncio.Task[Any], ...]) -> None:
    """Cancel tasks until they end: nats-py swallows a cancellation while it waits for a write."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=LOOK_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def _close_client(client: Client) -> None:
    """Close a client. Also one that was never connected, whose socket nats-py leaves open, and one whose server no
    longer reads, for which nats-py would wait."""
    transport: Any = client._transport
    with suppress(Exception):
        async with asyncio.timeout(STOP_S):
            await client.close()
    if transport is not None:
        with suppress(Exception):
            transport._io_writer.transport.abort()
            async with asyncio.timeout(STOP_S):
                await transport.wait_closed()


def _size(subject: str, data: bytes, reply: str = "") -> int:
    """Bytes of memory of a message that waits to be written."""
    return len(data) + len(subject) + len(reply) + ENTRY


def without_credentials(urls: tuple[str, ...]) -> str:
    """Addresses for messages, without user and password."""
    return ", ".join(f"{(parts := urlsplit(url)).scheme}://{parts.netloc.rpartition('@')[2]}" for url in urls)
