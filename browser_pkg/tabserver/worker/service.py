"""MCP server of one name on its link to the relay, and the connection state that pages receive.

It connects transport, core, hub and granted calls, and turns each state of the transport into the message for pages. A
stopped link stays stopped until a page asks for a retry or brings a token. Dialing and reconnecting are in `transport`.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ..browser.clock import now_s, steady_clock
from ..browser.python_bridge import PythonBridge, report, when_online
from ..browser.task_store import BrowserTaskStore
from ..browser.values import Aborter
from ..browser.websocket import CallRecorder, Dialer
from ..handlers.identity import ServerIdentity
from ..handlers.toolbox import default_toolbox
from ..mcp.server import Server
from ..mcp.tasks import TaskTerms
from ..tabs.hub import Hub
from ..timing import Timing
from ..transport.dialing import DialError
from ..transport.reconnect import Transport, TransportState
from ..wire.events import Closed, Opened, Received
from ..wire.frames import Greeting
from ..wire.limits import Limits
from ..wire.link import Link
from ..wire.names import check_server_name
from .js_calls import CallGrants, JsCallRecorder

# Long enough for a page to offer its tools one after the other, too short for a user to notice.
COALESCE_S: Final = 0.02
_STATE_MESSAGES: Final = {
    "connecting": "Connecting to the relay",
    "stopped": "A page closed the connection.",
}


class Service:
    """One server's tabs, its MCP core, its link, and its state."""

    def __init__(
        self,
        server: str,
        timing: Timing,
        instance: str | None,
        *,
        bridge: PythonBridge,
        new_dialer: Callable[[str, Callable[[], CallRecorder]], Dialer],
        build: str,
        version: str,
    ) -> None:
        """`instance`: the name of this browser, where several browsers offer the server."""
        self._server_name = check_server_name(server)
        self._build = build
        self._dialer = new_dialer(server, lambda: self._recorder)
        self._store = BrowserTaskStore(bridge, server)
        self._restoring: asyncio.Future[None] | None = None
        info = {"name": server, "version": version}
        self._grants = grants = CallGrants(bridge, info, lambda entries: self._recorder.record(entries))
        self.hub = Hub(
            default_toolbox,
            now_ms=steady_clock(),
            defer=lambda function: _later(COALESCE_S, grants.after_sync(function)),
            later=lambda delay_ms, function: _later(delay_ms / 1000, grants.after_sync(function)),
            on_change=lambda lists: self._core.catalogue_changed(lists),
            on_update=lambda uri: self._core.resource_updated(uri),
            on_tabs=lambda: self._core.tabs_changed(),
            on_identity=lambda identity: self._use_identity(identity),
            grants=grants,
            timing=timing,
        )

        def serve(send: Callable[..., None]) -> Callable[[Received[str] | Opened | Closed], None]:
            self._core = Server(server, version, self.hub, send, census=self.hub.census, store=self._store)
            if instance:
                self._core.use_home(instance)
            return self._core.receive

        greeting = Greeting(server=server, inst=uuid.uuid4().hex, build=build, browser=instance)
        link: Link[str] = Link.dialer(greeting, Limits(watchdog_s=timing.watchdog_s))
        self._transport = Transport(
            link,
            self._dialer,
            clock=now_s,
            new_abort=Aborter,
            jitter=random.random,
            timing=timing,
            new_receiver=serve,
            sync=grants.sync,
            on_state=self._state_changed,
            on_error=_report_bug,
        )
        self._recorder = JsCallRecorder(grants, self._core, self.hub.calls, self._transport.session)
        self._is_started = False
        # The relay serves another build of the browser code than this worker runs.
        self._is_outdated = False
        self.state = describe_state(TransportState("connecting"), server)
        when_online(bridge, self.retry_if_waiting)

    def _use_identity(self, identity: ServerIdentity) -> None:
        self._core.use_identity(identity)
        self._grants.use_info(self._core.outbox.info)

    async def start(self, token: str) -> None:
        self.use_token(token)
        if not self._is_started:
            self._is_started = True
            await self._transport.start()

    async def restore_tasks(self) -> None:
        """Continue with the tasks of workers that have ended."""
        kept = self._core.tasks.kept
        if self._restoring is None and kept is not None:
            self._restoring = asyncio.ensure_future(self._store.read(kept.restore))
        if self._restoring is not None:
            await self._restoring

    async def stop_dialing(self) -> None:
        """No tab is left: stop dialing. A link that is up stays: most pages that go away are only reloading."""
        if self._is_started and self.state["state"] in ("connecting", "waiting") and not self.hub.tabs:
            self._is_started = False
            await self._transport.close()
            if not self._is_started:  # no tab attached while the dial was cancelled
                self.state = describe_state(TransportState("connecting"), self._server_name)

    async def stop(self) -> None:
        """Close the link, also for tabs that attach later, until a page asks for a retry."""
        self._core.stop()
        await self._transport.close()

    def interrupt(self) -> None:
        """A page wants to see that calls survive a lost connection."""
        self._transport.interrupt()

    async def retry(self) -> None:
        """A page asked for a retry: dial now, whatever the reason to wait or to stop was."""
        await self._transport.start()
        self._transport.retry_now()

    def retry_if_waiting(self) -> None:
        """Dial now if the link waits for its next attempt: the network is back, or a tab became visible. A stopped link
        stays stopped."""
        if self.state["state"] == "waiting":
            self._transport.retry_now()

    def retry_if_displaced(self) -> None:
        """The first page is here after a time without pages: like a new worker, this one may take the name again."""
        if self.state["state"] == "waiting" or self.state["why"] == "replaced":
            self._transport.retry_now()

    def use_token(self, token: str) -> None:
        if not token or token == self._dialer.token:
            return
        self._dialer.token = token
        if self.state["state"] == "stopped" and self.state["why"] in (
            "unauthorized",
            "forbidden",
            "taken",
            "not_paired",
        ):
            self._transport.retry_now()

    def _state_changed(self, state: TransportState) -> None:
        welcome = self._transport.welcome
        if state.state == "connected" and welcome is not None:
            self.hub.use_static_tools(welcome.static_tools)
            self.hub.use_approval(welcome.approve)
            self._core.use_key(welcome.key)
            self._core.tasks.terms = TaskTerms.read(welcome.tasks)
            self._is_outdated = welcome.build != self._build
        # An outdated worker keeps serving until a page starts a worker with the relay's build, which then takes the
        # name.
        if self._is_outdated and state.state == "connected":
            state = replace(state, why="version", message="The relay was updated. Reload the page to update it too.")
        elif self._is_outdated and state.why == "replaced":
            text = "The relay was updated, and a page with the new version has taken over. Reload this one."
            state = replace(state, why="version", message=text)
        self.state = describe_state(state, self._server_name)
        self.hub.broadcast(self.state)


def describe_state(state: TransportState, server: str) -> dict[str, Any]:
    # The only stop without a reason is one that a page asked for.
    why = "closed" if state.state == "stopped" and state.why is None else state.why
    return {
        "t": "state",
        "state": state.state,
        "why": why,
        "message": state.message or _STATE_MESSAGES.get(state.state),
        "retry_in_ms": state.retry_in_ms,
        "server": server,
        "since_ms": time.time() * 1000,
        "attempts": state.attempts,
    }


def _report_bug(error: Exception) -> None:
    # A failed dial is part of the state that pages receive.
    if not isinstance(error, DialError):
        report(error, "the connection to the relay failed")


def _later(delay_s: float, function: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_s, function)
