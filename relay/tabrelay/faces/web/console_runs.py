"""Console routes that run calls: try a tool, resource or prompt, resend a captured call, answer its questions, cancel;
and requests of apps that the console shows.

The call is one of a modern client, made by the relay, with a captured row of its own (`by: console`): progress and
result are read there. An app gets the response itself, because what is captured is redacted and may be cut. What a
captured call hides in its arguments is taken from the original when it is sent again. Approvals are the server's, as
for any client. Nothing is retried.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from tabrelay import __version__
from tabrelay.calls.calls import LISTS, Call, Pending, Reply
from tabrelay.calls.principal import Principal
from tabrelay.errors import RelayError, UnknownServer
from tabrelay.http.json_body import LargeBody
from tabrelay.http.problems import problem_response
from tabrelay.observe.capture.call_capture import CallCapture
from tabrelay.observe.capture.captured_call import ASKS_CLIENT, CONSOLE, CapturedCall
from tabrelay.observe.redaction import restored
from tabrelay.routing.switch import Switch
from tabrelay.routing.waiting_call import WaitingCall
from tabrelay.system.tasks import BackgroundTasks
from tabserver.wire import eras, methods
from tabserver.wire.eras import Era
from tabserver.wire.extensions import APPS
from tabserver.wire.frames import Caller
from tabserver.wire.static_tools import META_TAB

MAX_RUNS: Final = 64  # calls of consoles that run at the same time
RUNNABLE: Final = frozenset(LISTS) | {
    methods.TOOLS_CALL,
    methods.RESOURCES_READ,
    methods.PROMPTS_GET,
    methods.COMPLETION_COMPLETE,
}
CLIENT: Final = {"name": "Tabrelay console", "version": __version__}
# A person answers the questions in the console.
CAPABILITIES: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
# An app can't answer questions, and gets the tools that are for apps only.
APP_CAPABILITIES: Final[dict[str, Any]] = {"extensions": {APPS: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
VERSION: Final = eras.MODERN_VERSIONS[-1]
NOT_CAPTURED: Final = "This call is not captured (any more)."
CANCELLED: Final = "It was cancelled in the console."

ANSWERS: Final = ("inputResponses", "requestState")

Params = dict[str, Any]


class CancelledInConsole(RelayError):
    """The user of the console does not want the result any more."""

    reason = "cancelled"


class RunRefused(Exception):
    """The console asks for something that can't be run."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


@dataclass(frozen=True, slots=True)
class _Run:
    """A call of a console that runs. `answer`: its reply, or what failed it."""

    id: str
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    answer: asyncio.Future[Reply | RelayError] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class ConsoleRuns:
    """`POST /-/console/run`, `POST /-/console/app`, `POST /-/console/calls/{id}/cancel`."""

    def __init__(self, capture: CallCapture, switch: Switch) -> None:
        self._capture, self._switch = capture, switch
        self._running: dict[str, _Run] = {}
        self._tasks = BackgroundTasks()

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route("/-/console/run", self._run, methods=["POST"])
        app.add_api_route("/-/console/app", self._run_for_app, methods=["POST"])
        app.add_api_route("/-/console/calls/{id}/cancel", self._cancel, methods=["POST"])

    async def _run(self, request: Request, body: LargeBody) -> Response:
        try:
            call, _ = await self._start(request.state.principal, body, CAPABILITIES)
        except RunRefused as refused:
            return problem_response(refused.status, refused.reason, str(refused))
        except RelayError as error:
            return _failed(error)
        return JSONResponse({"id": call.id, "group": call.group}, 202)

    async def _run_for_app(self, request: Request, body: LargeBody) -> Response:
        """Answered with the JSON-RPC response. The call is cancelled if the console closes the connection."""
        try:
            _, run = await self._start(request.state.principal, body, APP_CAPABILITIES)
        except RunRefused as refused:
            return problem_response(refused.status, refused.reason, str(refused))
        except RelayError as error:
            return _failed(error)
        gone = asyncio.ensure_future(request.receive())  # after the body: that the client has left
        try:
            await asyncio.wait((run.answer, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not run.answer.done():
                run.cancelled.set()
        answer = await run.answer
        if isinstance(answer, RelayError):
            return _failed(answer)
        return Response(answer.encoded(), media_type="application/json", headers={"Cache-Control": "no-store"})

    async def _cancel(self, request: Request, id: str) -> Response:
        principal: Principal = request.state.principal
        call, run = self._capture.ring.find(id), self._running.get(id)
        if run is None or call is None or not principal.may_see(call.server):
            return problem_response(404, "unknown_call", "No call of a console with this id is running.")
        run.cancelled.set()
        return Response(status_code=204)

    # -- starting -----------------------------------------------------------------------------------------------------

    async def _start(self, principal: Principal, body: Params, capabilities: Params) -> tuple[CapturedCall, _Run]:
        """Raises RunRefused and RelayError."""
        if not self._capture.is_on:
            raise RunRefused(409, "not_capturing", "Calls are not captured. Open /-/console/events first.")
        original = self._original(principal, body.get("of"))
        # defence: loop time of what a console runs
        server, method, params = await asyncio.to_thread(_wanted, body, original)
        # defence: calls that consoles run
        if len(self._running) >= MAX_RUNS:
            raise RunRefused(429, "too_many", f"{MAX_RUNS} calls of consoles are running already.")
        # defence: calls that a console runs at a server that the principal may not see
        if not principal.may_see(server):
            raise UnknownServer(f'No server is called "{server}".')
        entry = self._switch.registry.find(server)
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        params["_meta"] = _meta(body.get("tab"), capabilities)
        earlier = original if "responses" in body else None
        call = self._capture.capture({}, server, message, by=CONSOLE, earlier=earlier)
        assert call is not None  # those of a console are always captured
        # Not the page's own id: with that, pages call only servers of their own origin.
        caller = Caller(Era.MODERN, VERSION, f"{CONSOLE}:{principal.id}", CLIENT, capabilities)
        text = orjson.dumps(message).decode()
        wire_call = Call(self._switch.new_channel(), 1, method, text, caller, call, _name_of(params))
        started = self._switch.start(entry, wire_call)
        run = self._running[call.id] = _Run(call.id)
        self._tasks.start(self._follow(run, server, started))
        return call, run

    def _original(self, principal: Principal, id: object) -> CapturedCall | None:
        if id is None:
            return None
        found = self._capture.ring.find(id) if isinstance(id, str) else None
        if found is None or not principal.may_see(found.server):
            raise RunRefused(404, "unknown_call", NOT_CAPTURED)
        return found

    # -- running ------------------------------------------------------------------------------------------------------

    async def _follow(self, run: _Run, server: str, started: Pending | WaitingCall) -> None:
        """Until it ends or is cancelled. Its captured row has all that happens."""
        cancelled = asyncio.create_task(run.cancelled.wait())
        starting = asyncio.create_task(started.started())
        try:
            await asyncio.wait((starting, cancelled), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return  # its trace is released below
            reading = asyncio.create_task(_read(starting.result()))
            await asyncio.wait((reading, cancelled), return_when=asyncio.FIRST_COMPLETED)
            pending = starting.result()
            if not pending.is_done:
                self._switch.abandon(server, pending, "cancelled in the console")
                pending.end(CancelledInConsole(CANCELLED))
            run.answer.set_result(await reading)
            pending.release()
        finally:
            del self._running[run.id]
            if not run.answer.done():
                run.answer.set_result(CancelledInConsole(CANCELLED))
            cancelled.cancel()
            if not starting.done():
                starting.cancel()
                if started.call.trace is not None:
                    started.call.trace.released()


async def _read(pending: Pending) -> Reply | RelayError:
    """Wait for the end. Its notices are in its captured row."""
    try:
        while not isinstance(reply := await pending.next(), Reply):
            pass
        return reply
    except RelayError as error:
        return error


def _failed(error: RelayError) -> Response:
    return problem_response(error.status if error.status >= 400 else 409, error.reason, error.message)


def _wanted(body: dict[str, Any], original: CapturedCall | None) -> tuple[str, str, Params]:
    """Server, method and params, completed by those of the original. May take a while."""
    server, method = body.get("server"), body.get("method")
    given, responses = body.get("params"), body.get("responses")
    if original is not None:
        server, method = server or original.server, method or original.method
    if not isinstance(server, str) or not isinstance(method, str):
        raise RunRefused(400, "invalid_request", "Expected server and method, or of: the id of a captured call.")
    if method not in RUNNABLE:
        raise RunRefused(400, "invalid_request", f"The console does not run {method}.")
    if not isinstance(given, dict | None) or not isinstance(responses, dict | None):
        raise RunRefused(400, "invalid_request", "params and responses must be objects.")
    if not isinstance(body.get("tab"), str | None):
        raise RunRefused(400, "invalid_request", "tab must be the id of a tab.")
    before = _params_of(original)
    if original is not None and before is None and (given is None or responses is not None):
        raise RunRefused(409, "truncated", "The request was too long to be captured whole.")
    kept = {name: value for name, value in (before or {}).items() if name not in ("_meta", *ANSWERS)}
    params: Params = dict(kept if given is None else restored(given, kept))
    if responses is not None:
        params |= _answers(original, responses)
    return server, method, params


def _answers(original: CapturedCall | None, responses: Params) -> Params:
    if original is None or original.outcome != ASKS_CLIENT or original.answer.is_cut:
        raise RunRefused(409, "not_asked", "This call asked no question.")
    try:
        result = orjson.loads(original.answer.text)["result"]
    except (ValueError, KeyError):  # text that only the standard library reads
        raise RunRefused(409, "truncated", "The questions can't be read again.") from None
    state = {"requestState": result["requestState"]} if "requestState" in result else {}
    return {"inputResponses": responses, **state}


def _name_of(params: Params) -> str | None:
    name = params.get("name", params.get("uri"))
    return name if isinstance(name, str) else None


def _params_of(call: CapturedCall | None) -> Params | None:
    """None: they were not kept whole."""
    if call is None or call.request.is_cut or not call.request.text:
        return None
    params = orjson.loads(call.request.text).get("params", {})
    return params if isinstance(params, dict) else None


def _meta(tab: str | None, capabilities: Params) -> Params:
    meta: Params = {
        eras.META_VERSION: VERSION,
        eras.META_CLIENT: CLIENT,
        eras.META_CAPABILITIES: capabilities,
        eras.META_LOG_LEVEL: "debug",
        "progressToken": 1,
    }
    return meta if tab is None else {**meta, META_TAB: tab}
