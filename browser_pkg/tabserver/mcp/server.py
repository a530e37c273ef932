"""The MCP core: a message in, messages out, for both eras at once.

It speaks JSON-RPC on channels and asks a Catalogue for what there is. It does no I/O, and knows no tabs and no sockets.
What the envelope of a modern request must hold is checked by the relay before it gets here. Requests that run something
are taken at the `desk`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import Any, Final

from ..handlers.context import Result
from ..handlers.questions import ClientError
from ..handlers.resources import ResourceNotFound
from ..rpc import Refusal, parse, parse_answer, read_level
from ..schema.shapes import show
from ..wire import methods
from ..wire.control_messages import RELAY, TABS
from ..wire.eras import META_SUBSCRIPTION, MODERN_VERSIONS, Era, negotiate
from ..wire.events import Closed, Opened, Received
from ..wire.frames import Kind
from ..wire.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    RequestId,
    is_request_id,
)
from .catalogue import ToolCatalogue
from .invocations import MAX_RUNNING, UNCACHED, Invocations
from .legacy import legacy_tool
from .outbox import Outbox
from .paging import page
from .sessions import CallerSession, CallerSessions
from .subscriptions import LISTS, SubscribedTo, read_wanted

__all__ = ["MAX_RUNNING", "Server", "ToolCatalogue"]

MOST_SUBSCRIPTIONS: Final = 1000

# The same for everybody and always: a session asks once, and a tab that comes later may bring any of it.
_CAPABILITIES: Final = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}

_REASONS: Final = {
    INVALID_REQUEST: "invalid_request",
    INVALID_PARAMS: "invalid_params",
    METHOD_NOT_FOUND: "method_not_found",
}

Params = dict[str, Any]
# What a method answers with; None: the answer comes by itself.
_Method = Callable[[CallerSession, RequestId, Params], Result | None]


class Server:
    """One named MCP server for any number of callers. It speaks by `send(channel, kind, text, id=…, related=…)`."""

    def __init__(
        self,
        name: str,
        version: str,
        catalogue: ToolCatalogue,
        send: Callable[..., None],
        instructions: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock`: seconds since a time that is the same for the next worker, which may get what this one sealed."""
        # Which tabs there are; whoever has tabs says.
        self.census: Callable[[], Params] = lambda: {"tabs": [], "used": 0}
        self._info = {"name": name, "version": version}
        self._catalogue = catalogue
        self._instructions = instructions
        self._sessions = CallerSessions()
        self.channels: Container[str] = self._sessions.channels
        self.outbox = Outbox(self._info, self._sessions, send)
        self._desk = desk = Invocations(name, catalogue, self.outbox, clock)
        shared: dict[str, _Method] = {
            methods.TOOLS_LIST: self._list_tools,
            methods.TOOLS_CALL: desk.call_tool,
            methods.RESOURCES_LIST: self._list_resources,
            methods.RESOURCES_TEMPLATES_LIST: self._list_templates,
            methods.RESOURCES_READ: desk.read_resource,
            methods.PROMPTS_LIST: self._list_prompts,
            methods.PROMPTS_GET: desk.get_prompt,
            methods.COMPLETION_COMPLETE: desk.complete,
        }
        # What a version removed is simply absent from its table, and so answered as unknown.
        self._methods: dict[Era, dict[str, _Method]] = {
            Era.MODERN: shared | {methods.SERVER_DISCOVER: self._discover, methods.SUBSCRIPTIONS_LISTEN: self._listen},
            Era.LEGACY: shared
            | {
                methods.INITIALIZE: self._initialize,
                methods.PING: self._ping,
                methods.LOGGING_SET_LEVEL: self._set_level,
                methods.RESOURCES_SUBSCRIBE: self._subscribe,
                methods.RESOURCES_UNSUBSCRIBE: self._unsubscribe,
            },
        }

    def use_key(self, key: str) -> None:
        """What clients carry for us is sealed with this."""
        self._desk.use_key(key)

    def receive(self, event: Opened | Received[str] | Closed) -> None:
        """Take one event of the link. Whatever a caller sends is answered or dropped, never raised."""
        if isinstance(event, Opened):
            self._close(event.channel, "opened again")
            self._sessions.open(event.channel, event.caller, is_single=False)
        elif isinstance(event, Closed):
            self._close(event.channel, event.why)
        else:
            session = self._sessions.get(event.channel)
            if event.caller is not None:
                if session is not None:
                    self._close(event.channel, "opened again")
                session = self._sessions.open(event.channel, event.caller, is_single=True)
            # No session: it was closed while this was under way, and nobody waits for an answer any more.
            if session is None:
                return
            if event.kind is Kind.REQ and event.id is not None:
                self._take_request(session, event.id, event.payload)
            elif event.kind is Kind.NOTE:
                self._take_notification(session, event.payload)
            elif event.kind is Kind.RES:
                self._take_answer(session, event.payload)

    def catalogue_changed(self, lists: Iterable[str] = LISTS) -> None:
        """Tell those who want to know: sessions past their handshake, and modern callers that listen."""
        for name in lists:
            method = f"notifications/{name}/list_changed"
            for session in self._sessions:
                if session.era is Era.LEGACY and session.is_ready:
                    self.outbox.notify(session, method, None)
            self._tell(method, {}, lambda wanted, name=name: name in wanted.lists)  # type: ignore[misc]

    def tabs_changed(self) -> None:
        """Tell the relay, which reads the lists as a caller of its own."""
        for session in self._sessions:
            if session.caller.principal == RELAY and session.is_ready:
                self.outbox.notify(session, TABS, self.census())

    def resource_updated(self, uri: str) -> None:
        """Tell everybody who subscribed to it."""
        method = methods.RESOURCES_UPDATED
        for session in self._sessions:
            if session.era is Era.LEGACY and uri in session.subscribed:
                self.outbox.notify(session, method, {"uri": uri})
        self._tell(method, {"uri": uri}, lambda wanted: uri in wanted.uris)

    def stop(self) -> None:
        """The server goes: whoever listens is told that nothing more will come."""
        for session in self._sessions:
            for id in list(session.listening):
                del session.listening[id]
                self.outbox.answer(session, id, {"_meta": {META_SUBSCRIPTION: id}})

    def _tell(self, method: str, params: Params, is_wanted: Callable[[SubscribedTo], bool]) -> None:
        for session in self._sessions:
            for id, wanted in session.listening.items():
                if is_wanted(wanted):
                    self.outbox.notify(session, method, params | {"_meta": {META_SUBSCRIPTION: id}}, id)

    def _close(self, channel: str, why: str) -> None:
        session = self._sessions.close(channel)
        for call in list(session.running.values()) if session else ():
            call.cancel(why)

    # -- messages in --------------------------------------------------------------------------------------------------

    def _take_request(self, session: CallerSession, id: RequestId, payload: str) -> None:
        if id in session.running or id in session.listening:
            return  # the same request again: the answer to the first is the answer to both
        try:
            method, params = parse(payload, id)
            handler = self._methods[session.era].get(method)
            if handler is None:
                raise Refusal(METHOD_NOT_FOUND, f"Method not found: {method}")
            if not session.is_greeted and method not in (methods.INITIALIZE, methods.PING):
                raise Refusal(INVALID_REQUEST, f"{method} came before initialize")
            result = handler(session, id, params)
        except Refusal as refusal:
            self.outbox.refuse(session, id, self._not_run(refusal))
        except Exception as error:
            text = f"Internal error: {type(error).__name__}: {error}"
            self.outbox.refuse(session, id, Refusal(INTERNAL_ERROR, text))
        else:
            if result is not None:
                self.outbox.answer(session, id, result)

    def _not_run(self, refusal: Refusal) -> Refusal:
        """What is refused at the door was certainly not done: an agent may want to know."""
        reason = _REASONS.get(refusal.code)
        if reason is not None and refusal.data is None:
            name = self._info["name"]
            refusal.data = {"reason": reason, "delivered": "no", "retryable": False, "server": name}
        return refusal

    def _take_notification(self, session: CallerSession, payload: str) -> None:
        try:
            method, params = parse(payload, None)
        except Refusal:
            return  # a notification has no answer, not even a bad one
        if session.era is Era.MODERN:
            return  # closing the channel is how a modern caller cancels
        if method == methods.INITIALIZED:
            session.is_ready = session.is_greeted
            if session.caller.principal == RELAY:
                self.outbox.notify(session, TABS, self.census())
        elif method == methods.CANCELLED:
            id, reason = params.get("requestId"), params.get("reason")
            call = session.running.get(id) if is_request_id(id) else None
            if call is not None and is_request_id(id):
                call.cancel(reason if isinstance(reason, str) else "cancelled by the caller")
                # The caller no longer waits, but the stream that carries this request ends with its answer.
                self.outbox.refuse(session, id, Refusal(REQUEST_CANCELLED, "Request cancelled"))
        # roots/list_changed needs nothing: roots are asked for anew each time.

    def _take_answer(self, session: CallerSession, payload: str) -> None:
        """What a client says to a question of ours; what we did not ask has no meaning."""
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
        return {"protocolVersion": version, "capabilities": _CAPABILITIES, "serverInfo": self._info} | self._manual()

    def _discover(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        result: Result = {"supportedVersions": list(MODERN_VERSIONS), "capabilities": _CAPABILITIES}
        return result | self._manual() | UNCACHED

    def _manual(self) -> Result:
        return {"instructions": self._instructions} if self._instructions else {}

    def _ping(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        return {}

    def _set_level(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        session.level = read_level(params.get("level"), "params.level")
        return {}

    def _list_tools(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        tools = self._catalogue.tools()
        if session.era is Era.LEGACY:
            tools = [legacy_tool(tool) for tool in tools]
        return _listed(session, "tools", tools, params)

    def _list_resources(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        return _listed(session, "resources", self._catalogue.resources(), params)

    def _list_templates(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        return _listed(session, "resourceTemplates", self._catalogue.templates(), params)

    def _list_prompts(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        return _listed(session, "prompts", self._catalogue.prompts(), params)

    def _subscribe(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        uri = _uri(params)
        if not self._catalogue.has_resource(uri):
            raise ResourceNotFound(uri)
        if uri not in session.subscribed and len(session.subscribed) >= MOST_SUBSCRIPTIONS:
            raise Refusal(INVALID_PARAMS, f"At most {MOST_SUBSCRIPTIONS:,} subscriptions in one session")
        session.subscribed.add(uri)
        return {}

    def _unsubscribe(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        session.subscribed.discard(_uri(params))
        return {}

    def _listen(self, session: CallerSession, id: RequestId, params: Params) -> None:
        """The acknowledgement comes first, then what was asked for. The response ends it, when the server goes."""
        wanted = read_wanted(params)
        session.listening[id] = wanted
        said = {"notifications": wanted.honoured(), "_meta": {META_SUBSCRIPTION: id}}
        self.outbox.notify(session, methods.SUBSCRIPTIONS_ACKNOWLEDGED, said, id)


def _listed(session: CallerSession, key: str, items: list[dict[str, Any]], params: Params) -> Result:
    result = page(key, items, params.get("cursor"))
    return result | UNCACHED if session.era is Era.MODERN else result


def _uri(params: Params) -> str:
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise Refusal(INVALID_PARAMS, f"params.uri: expected string, got {show(uri)}")
    return uri
