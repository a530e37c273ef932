"""MCP server core: JSON-RPC messages in and out, on channels, for both eras.

Every request gets one response; nothing that a caller sends raises. What is offered comes from a ToolCatalogue, and
requests that run a handler go to `invocations`. It does no I/O and has no notion of tabs or sockets. The relay checks
the envelope of a modern request before it arrives here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from ..handlers.context import Result
from ..handlers.identity import ServerIdentity
from ..handlers.questions import ClientError
from ..handlers.resources import ResourceNotFound
from ..rpc import Refusal, dump, parse, parse_answer, read_level
from ..wire import methods
from ..wire.control_messages import ABOUT, RELAY, TABS
from ..wire.eras import META_SERVER_INFO, META_SUBSCRIPTION, MODERN_VERSIONS, Era, negotiate, server_info_of
from ..wire.events import Closed, Opened, Received
from ..wire.frames import Caller, Kind
from ..wire.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    RequestId,
    is_request_id,
)
from ..wire.names import INSTANCE_SEPARATOR
from .call import RequestMeta, RunningCall
from .capabilities import MODERN_CAPABILITIES, legacy_capabilities
from .catalogue import ToolCatalogue
from .invocations import MAX_RUNNING, UNCACHED, Invocations
from .kept_tasks import KeptTasks, TaskStore
from .list_methods import ListMethods, list_methods, read_uri
from .sessions import CallerSession, CallerSessions, Outbox
from .subscriptions import LISTS, SubscribedTo, read_wanted
from .task_forms import has_tasks
from .task_methods import TaskMethods
from .tasks import Task, TaskTable, newest_rows

__all__ = ["MAX_RUNNING", "Server", "ToolCatalogue"]

Params = dict[str, Any]

MOST_SUBSCRIPTIONS: Final = 1000

_REASONS: Final = {
    INVALID_REQUEST: "invalid_request",
    INVALID_PARAMS: "invalid_params",
    METHOD_NOT_FOUND: "method_not_found",
}

# The result of a method; None: the response is sent later.
_Method = Callable[[CallerSession, RequestId, Params], Result | None]


class Server:
    """One named MCP server for any number of callers. It sends by `send(channel, kind, text, id=…, related=…)`."""

    def __init__(
        self,
        name: str,
        version: str,
        catalogue: ToolCatalogue,
        send: Callable[..., None],
        instructions: str | None = None,
        clock: Callable[[], float] = time.time,
        census: Callable[[], Params] | None = None,
        store: TaskStore | None = None,
    ) -> None:
        """`clock`: wall-clock seconds, because the next worker reads expiry times that this one sealed. `census`: the
        list of tabs for the relay; None for a server without tabs. `store`: where tasks outlive the worker."""
        self._census = census
        self._reported_tasks: tuple[tuple[str, str], ...] = ()
        self._name, self._version = name, version
        self._catalogue = catalogue
        self._describe(ServerIdentity(instructions=instructions))
        self._sessions = CallerSessions()
        self.outbox = Outbox(self._info, self._sessions, send)
        self.tasks = tasks = TaskTable(clock, self._task_changed)
        self._invocations = invocations = Invocations(name, catalogue, self.outbox, clock, tasks, self.tabs_changed)
        if store is not None:
            tasks.kept = KeptTasks(tasks, store, invocations.run_again, invocations.offers)
        self._task_methods = task_methods = TaskMethods(tasks, self.outbox, invocations.format_tool_result)
        # Requests that run a handler: the same in both eras, and the call sends the response.
        self._calls = {
            methods.TOOLS_CALL: invocations.call_tool,
            methods.RESOURCES_READ: invocations.read_resource,
            methods.PROMPTS_GET: invocations.get_prompt,
            methods.COMPLETION_COMPLETE: invocations.complete,
        }
        # A method that an era does not have is not in its table, and gets METHOD_NOT_FOUND.
        self._methods = self._make_methods(task_methods)
        # Of the handshake era, only 2025-11-25 has these.
        self._legacy_task_methods: dict[str, _Method] = {
            methods.TASKS_GET: task_methods.get_legacy,
            methods.TASKS_LIST: task_methods.list_all,
            methods.TASKS_RESULT: task_methods.result,
            methods.TASKS_CANCEL: task_methods.cancel_legacy,
        }

    def _make_methods(self, task_methods: TaskMethods) -> dict[Era, dict[str, _Method]]:
        shared: dict[str, _Method] = list_methods(ListMethods(self._catalogue, self.outbox))
        modern: dict[str, _Method] = {
            methods.SERVER_DISCOVER: self._discover,
            methods.SUBSCRIPTIONS_LISTEN: self._listen,
            methods.TASKS_GET: task_methods.get,
            methods.TASKS_UPDATE: task_methods.update,
            methods.TASKS_CANCEL: task_methods.cancel,
        }
        legacy: dict[str, _Method] = {
            methods.INITIALIZE: self._initialize,
            methods.PING: self._ping,
            methods.LOGGING_SET_LEVEL: self._set_level,
            methods.RESOURCES_SUBSCRIBE: self._subscribe,
            methods.RESOURCES_UNSUBSCRIBE: self._unsubscribe,
        }
        return {Era.MODERN: shared | modern, Era.LEGACY: shared | legacy}

    def _describe(self, identity: ServerIdentity) -> None:
        self._info = identity.info(self._name, self._version)
        self._instructions: Params = {"instructions": identity.instructions} if identity.instructions else {}
        about = {"supportedVersions": list(MODERN_VERSIONS), "capabilities": MODERN_CAPABILITIES}
        # With its icons, which other results leave out.
        self._discovery = dump(about | self._instructions | UNCACHED), dump({META_SERVER_INFO: self._info})

    def use_identity(self, identity: ServerIdentity) -> None:
        """Say this of the server from now on. The relay asks again; a client that is connected does not."""
        self._describe(identity)
        self.outbox.use_info(self._info)
        for session in self._sessions:
            if session.caller.principal == RELAY and session.is_ready:
                self.outbox.notify(session, ABOUT, {})

    def use_home(self, instance: str) -> None:
        """The name of this browser, where several offer the server: the ids of its tasks contain it."""
        self.tasks.home = f"{INSTANCE_SEPARATOR}{instance}"

    def use_key(self, key: str) -> None:
        """Seal the states that clients carry with this key."""
        self._invocations.use_key(key)

    def receive(self, event: Opened | Received[str] | Closed) -> None:
        """Handle one event of the link. A message of a caller is answered or dropped; it never raises."""
        if type(event) is Received:
            channel, kind, id = event.channel, event.kind, event.id
            session = self._sessions.channels.get(channel)
            if event.caller is not None:
                if session is not None:
                    self._close(channel, "opened again")
                session = self._sessions.open(channel, event.caller, is_single=True)
                session.is_repeated = event.again
            # No session: it was closed while this message was on its way, so no client waits for a response.
            elif session is None:
                return
            elif session.is_single:
                for call in session.running.values():
                    if call.runner is not None:
                        call.runner.take_back(call)
            if kind is Kind.REQ and id is not None:
                if event.times is not None:
                    session.measured = {id: event.times}
                self._receive_request(session, id, event.payload)
            elif kind is Kind.NOTE:
                self._receive_notification(session, event.payload)
            elif kind is Kind.RES:
                self._receive_answer(session, event.payload)
        elif isinstance(event, Opened):
            self._close(event.channel, "opened again")
            self._sessions.open(event.channel, event.caller, is_single=False)
        elif isinstance(event, Closed):
            self._close(event.channel, event.why)

    def adopt(self, channel: str, caller: Caller, id: RequestId, meta: RequestMeta, payload: str) -> RunningCall:
        """A plain tool call that JavaScript received and has posted to its tab."""
        return self._invocations.adopt(self._sessions.open(channel, caller, is_single=True), id, meta, payload)

    def catalogue_changed(self, lists: Iterable[str] = LISTS) -> None:
        """Notify sessions after their handshake, and modern callers that listen."""
        if self.tasks.kept is not None:
            self.tasks.kept.run_waiting()
        for name in lists:
            method = f"notifications/{name}/list_changed"
            for session in self._sessions:
                if session.era is Era.LEGACY and session.is_ready:
                    self.outbox.notify(session, method, None)
            self._notify_listeners(method, {}, lambda wanted, name=name: name in wanted.lists)  # type: ignore[misc]

    def tabs_changed(self) -> None:
        """Notify the relay, which has its own session to read the lists."""
        for session in self._sessions:
            if session.caller.principal == RELAY and session.is_ready:
                self._send_census(session)

    def _send_census(self, session: CallerSession) -> None:
        if self._census is not None:
            parked, tasks = self._invocations.parked, newest_rows(self.tasks)
            more = ({"parked": parked} if parked else {}) | ({"tasks": tasks} if tasks else {})
            self.outbox.notify(session, TABS, self._census() | more)

    def resource_updated(self, uri: str) -> None:
        """Notify all subscribers of this resource."""
        method = methods.RESOURCES_UPDATED
        for session in self._sessions:
            if session.era is Era.LEGACY and uri in session.subscribed:
                self.outbox.notify(session, method, {"uri": uri})
        self._notify_listeners(method, {"uri": uri}, lambda wanted: uri in wanted.uris)

    def stop(self) -> None:
        """End all subscriptions with their response: nothing follows."""
        for session in self._sessions:
            for id in list(session.listening):
                del session.listening[id]
                self.outbox.answer(session, id, {"_meta": {META_SUBSCRIPTION: id}})

    def _notify_listeners(self, method: str, params: Params, is_wanted: Callable[[SubscribedTo], bool]) -> None:
        for session in self._sessions:
            for id, wanted in session.listening.items():
                if is_wanted(wanted):
                    self.outbox.notify(session, method, params | {"_meta": {META_SUBSCRIPTION: id}}, id)

    def _close(self, channel: str, why: str) -> None:
        session = self._sessions.close(channel)
        for call in list(session.running.values()) if session else ():
            call.cancel(why)

    # -- messages in --------------------------------------------------------------------------------------------------

    def _receive_request(self, session: CallerSession, id: RequestId, payload: str) -> None:
        if id in session.running or id in session.listening:
            return  # sent again: the response to the first answers both
        try:
            method, params = parse(payload, id)
            run = self._calls.get(method)
            handler = None if run is not None else self._find_method(session, method)
            if run is None and handler is None:
                raise Refusal(METHOD_NOT_FOUND, f"Method not found: {method}")
            if not session.is_greeted and method not in (methods.INITIALIZE, methods.PING):
                raise Refusal(INVALID_REQUEST, f"{method} came before initialize")
            if run is not None:
                run(session, id, params, payload)
                return
            assert handler is not None
            result = handler(session, id, params)
        except Refusal as refusal:
            self.outbox.refuse(session, id, self._not_run(refusal))
        except Exception as error:
            text = f"Internal error: {type(error).__name__}: {error}"
            self.outbox.refuse(session, id, Refusal(INTERNAL_ERROR, text))
        else:
            if result is not None:
                self.outbox.answer(session, id, result)

    def _find_method(self, session: CallerSession, method: str) -> _Method | None:
        found = self._methods[session.era].get(method)
        if found is None and has_tasks(session.caller):
            return self._legacy_task_methods.get(method)
        return found

    def _not_run(self, refusal: Refusal) -> Refusal:
        """State that a request which was refused before it started did not run: agents decide on retries by it."""
        reason = _REASONS.get(refusal.code)
        if reason is not None and refusal.data is None:
            name = self._info["name"]
            refusal.data = {"reason": reason, "delivered": "no", "retryable": False, "server": name}
        return refusal

    def _receive_notification(self, session: CallerSession, payload: str) -> None:
        try:
            method, params = parse(payload, None)
        except Refusal:
            return  # a notification has no response, not even an error
        if session.era is Era.MODERN:
            return  # closing the channel is how a modern caller cancels
        if method == methods.INITIALIZED:
            session.is_ready = session.is_greeted
            if session.caller.principal == RELAY:
                self._send_census(session)
        elif method == methods.CANCELLED:
            id, reason = params.get("requestId"), params.get("reason")
            call = session.running.get(id) if is_request_id(id) else None
            if call is not None and is_request_id(id):
                call.cancel(reason if isinstance(reason, str) else "cancelled by the caller")
                # The caller no longer waits, but the stream of this request ends with its response.
                self.outbox.refuse(session, id, Refusal(REQUEST_CANCELLED, "Request cancelled"))
        # roots/list_changed needs no action: roots are requested each time.

    def _receive_answer(self, session: CallerSession, payload: str) -> None:
        """The client's answer to a question. An answer without a question is dropped."""
        answer = parse_answer(payload)
        waiting = session.asked.pop(answer[0], None) if answer is not None else None
        if answer is None or waiting is None or waiting.done():
            return
        if isinstance(answer[1], Refusal):
            waiting.set_exception(ClientError(answer[1].code, answer[1].message))
        else:
            waiting.set_result(answer[1])

    # -- methods ------------------------------------------------------------------------------------------------------

    def _initialize(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        session.is_greeted = True
        version, client = negotiate(params.get("protocolVersion")), params.get("clientInfo")
        capabilities = params.get("capabilities")
        session.caller = replace(
            session.caller,
            version=version,
            client=client if isinstance(client, dict) else session.caller.client,
            capabilities=capabilities if isinstance(capabilities, dict) else session.caller.capabilities,
        )
        result: Result = {"protocolVersion": version, "capabilities": legacy_capabilities(version), "serverInfo": {}}
        result["serverInfo"] = server_info_of(self._info, version)
        return result | self._instructions

    def _discover(self, session: CallerSession, id: RequestId, params: Params) -> None:
        self.outbox.answer_text(session, id, *self._discovery)

    def _ping(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        return {}

    def _set_level(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        session.level = read_level(params.get("level"), "params.level")
        return {}

    def _subscribe(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        uri = read_uri(params)
        if not self._catalogue.has_resource(uri):
            raise ResourceNotFound(uri)
        if uri not in session.subscribed and len(session.subscribed) >= MOST_SUBSCRIPTIONS:
            raise Refusal(INVALID_PARAMS, f"At most {MOST_SUBSCRIPTIONS:,} subscriptions in one session")
        session.subscribed.add(uri)
        return {}

    def _unsubscribe(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        session.subscribed.discard(read_uri(params))
        return {}

    def _listen(self, session: CallerSession, id: RequestId, params: Params) -> None:
        """Sends the acknowledgement first, then the notifications. The response follows when the server stops."""
        wanted = self._task_methods.check_listener(session, read_wanted(params))
        session.listening[id] = wanted
        acknowledged = {"notifications": wanted.honoured(), "_meta": {META_SUBSCRIPTION: id}}
        self.outbox.notify(session, methods.SUBSCRIPTIONS_ACKNOWLEDGED, acknowledged, id)
        for task in self.tasks:
            if task.id in wanted.tasks:
                self._task_methods.send_state(session, id, task)

    def _task_changed(self, task: Task) -> None:
        self._task_methods.changed(task, list(self._sessions))
        # Not for each status message: the relay shows which tasks there are, and what became of them.
        states = tuple((known.id, known.status) for known in self.tasks)
        if states != self._reported_tasks:
            self._reported_tasks = states
            self.tabs_changed()
