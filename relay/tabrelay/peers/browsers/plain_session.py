"""MCP client session on one plain socket: one handshake, one session, the calls of many callers.

The page has one client, so ids and progress tokens of all callers are replaced by numbers of this session, and restored
in responses. A request of the page during a call is forwarded to the caller of that call; if it is not clear which call
that is, it is refused. The owner (`PlainPeer`) decides which socket is used, and gets messages that belong to no call.
A page may answer on another of its sockets: a message that names a request of another session is handled there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

from tabrelay import __version__
from tabrelay.calls.calls import Notice, Pending, Reply
from tabrelay.errors import BadAnswer, BrowserGone, ResultTooLarge
from tabrelay.payloads.json_skeleton import checking_weight
from tabrelay.payloads.list_checks import read_server_description
from tabrelay.routing.question_limits import OpenQuestions, QuestionLimits
from tabrelay.system.loop_turns import run_in_turns
from tabrelay.translation import messages
from tabrelay.translation.shared_calls import SharedCalls, TrackedCall
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.jsonrpc import RequestId

log = logging.getLogger(__name__)

# All client capabilities: the callers are not known yet, and a page requests only what its client has declared. For a
# caller without the capability, the relay answers with an error.
CAPABILITIES: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
MAX_REPEAT_S: Final = 30.0
MAX_INITIALIZE_IDS: Final = 64  # whose answer is still accepted
# Characters of a message that is checked and parsed in one callback of the event loop. A longer one is checked in
# slices of this size, with a callback for each step.
LARGE: Final = 64 * 1024
# A message that is not parsed, because it is no JSON or has too many values, still has the id of its request.
_VERSION: Final = r'"jsonrpc"\s*+:\s*+"2\.0"\s*+'
_NUMBER: Final = r'"id"\s*+:\s*+([0-9]{1,15})\s*+'
_FIRST_ID: Final = re.compile(rf"\s*+\{{\s*+(?:{_VERSION},\s*+)?{_NUMBER},")
_LAST_ID: Final = re.compile(rf",\s*+{_NUMBER}(?:,\s*+{_VERSION})?\}}\s*+\Z")
_ID_WINDOW: Final = 1024
# Characters of a page's notification or request, which is encoded and parsed again for a modern caller.
MAX_NOTICE: Final = 2 * 1024 * 1024


# The text of a response, the code of its error, and its values; no text if it can't be passed on.
EncodedResponse = tuple[str | None, int | None, dict[str, Any] | None]


class PlainSocket(Protocol):
    """One WebSocket, for writing."""

    def write(self, frames: Sequence[tuple[str, str | None]]) -> None: ...

    def close(self, code: int, reason: str) -> None: ...


class PlainSessionOwner(Protocol):
    """What a session reports to its owner."""

    def sender_of(self, session: PlainSession, id: object) -> PlainSession | None:
        """Another session of the same principal, which sent the request with this id."""

    def initialized(self, session: PlainSession) -> None:
        """The page has answered `initialize`."""

    def announced(self, session: PlainSession, message: dict[str, Any]) -> None:
        """A notification that belongs to no call."""

    def logged(self, session: PlainSession, params: dict[str, Any]) -> None:
        """A log message that belongs to no call."""

    def wants_log(self, channel: str, params: object) -> bool:
        """Did this caller ask for log messages of that level?"""


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """A request of the page that a caller has not answered yet. `id` is the page's."""

    id: RequestId
    running: TrackedCall
    size: int  # in characters


class PlainSession:
    """The session of one socket. A page that dials again gets another one."""

    def __init__(
        self,
        server: str,
        principal: str,
        socket: PlainSocket,
        owner: PlainSessionOwner,
        *,
        ids: Iterator[int],
        repeat_s: float,
        limits: QuestionLimits,
        max_values: int,
    ) -> None:
        """`ids`: of requests, different for all sockets of a server. `repeat_s`: an `initialize` without an answer is
        sent again after this. `limits`: of the page's questions."""
        self._max_values = max_values
        self.server = server
        self.principal = principal
        self.about: dict[str, Any] | None = None
        self._socket = socket
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._ids = ids
        self._initialize_ids: deque[int] = deque(maxlen=MAX_INITIALIZE_IDS)
        self._repeat_s = repeat_s
        self._timer: asyncio.TimerHandle | None = None
        self._calls = SharedCalls()
        self._questions: dict[RequestId, PageQuestion] = {}
        self._open = OpenQuestions(limits)

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    # -- towards the page ---------------------------------------------------------------------------------------------

    def send_initialize(self) -> None:
        """Send `initialize`, and again until it is answered: a page may have missed it. Until then, it is idle."""
        id = next(self._ids)
        self._initialize_ids.append(id)
        client = {"name": "tabrelay", "version": __version__}
        params = {"protocolVersion": eras.NEWEST_LEGACY, "capabilities": CAPABILITIES, "clientInfo": client}
        self._write(jsonrpc.request(id, methods.INITIALIZE, params))
        self._timer = self._loop.call_later(self._repeat_s, self.send_initialize)
        self._repeat_s = min(self._repeat_s * 2, MAX_REPEAT_S)

    def call(self, pending: Pending, params: dict[str, Any] | None) -> None:
        id, token = next(self._ids), None
        if params is not None and (token := messages.progress_token(params)) is not None:
            params = {**params, "_meta": {**params["_meta"], "progressToken": id}}
        self._calls.put(id, TrackedCall(pending, token))
        self._write(jsonrpc.request(id, pending.call.method, params))

    def send_request(self, method: str, params: dict[str, Any]) -> None:
        """Send a request of the relay itself. Its answer is ignored."""
        self._write(jsonrpc.request(next(self._ids), method, params))

    def has_sent(self, id: object) -> bool:
        """Does a call, or an `initialize`, of this socket have the id?"""
        return self._calls.get(id) is not None or id in self._initialize_ids

    def find(self, channel: str, id: object) -> Pending | None:
        return self._calls.find(channel, id)

    def calls_of(self, channel: str) -> list[Pending]:
        return self._calls.of(channel)

    def cancel(self, pending: Pending, why: str) -> bool:
        """Cancel a call at the page. False if the call is not on this socket."""
        id = self._calls.id_of(pending)
        running = self._calls.drop(id, self._loop.time()) if id is not None else None
        if running is None:
            return False
        self._close_questions(running)
        self._write(jsonrpc.notification(methods.CANCELLED, {"requestId": id, "reason": why}))
        return True

    def answer(self, channel: str, message: dict[str, Any]) -> bool:
        """Forward a caller's answer to a question. False if it was not asked on this socket, or not of this caller."""
        question = self._questions.get(message["id"])
        if question is None or question.running.channel != channel:
            return False
        self._close_question(message["id"])
        outcome = {"error": message["error"]} if "error" in message else {"result": message.get("result", {})}
        self._write({"jsonrpc": "2.0", "id": question.id, **outcome})
        return True

    def close(self, code: int, reason: str) -> None:
        self._socket.close(code, reason)

    def end(self, text: str) -> None:
        """The socket is gone, and its answers are lost: a plain page discards what it can't send."""
        if self._timer is not None:
            self._timer.cancel()
        self.drop_calls(text)

    def drop_calls(self, text: str) -> None:
        for id in list(self._questions):
            self._close_question(id)
        for pending in self._calls.clear():
            pending.end(BrowserGone(text))

    def _write(self, message: dict[str, Any]) -> None:
        self._socket.write([(orjson.dumps(message).decode(), None)])

    # -- from the page ------------------------------------------------------------------------------------------------

    async def receive(self, text: str) -> None:
        """Handle one message of the page. A large one takes several event-loop iterations."""
        # defence: values of a plain page's message
        if len(text) > LARGE and await run_in_turns(checking_weight(text, self._max_values)):
            self._refuse(text)
            return
        message = _parse(text)
        if message is None:
            log.warning("%s: the page sent something that is not a JSON-RPC message", self.server)
            return
        if len(text) <= LARGE:
            self._dispatch(message)
            return
        if "method" in message and len(text) > MAX_NOTICE:
            log.warning("%s: the page sent a notification or request of %s characters", self.server, f"{len(text):,}")
            if jsonrpc.is_request_id(message.get("id")):
                error = f"A request has at most {MAX_NOTICE:,} characters."
                self._write(jsonrpc.error_message(message["id"], jsonrpc.INVALID_REQUEST, error))
            return
        del text
        await asyncio.sleep(0)
        running = self._session_of(message)._calls.get(message.get("id")) if "method" not in message else None
        encoded = _encode_response(message, running.pending.call.id) if running is not None else None
        await asyncio.sleep(0)
        self._dispatch(message, encoded)

    def _refuse(self, text: str) -> None:
        """The message has more values than the relay parses. If it is a response, its call fails."""
        found = _FIRST_ID.match(text[:_ID_WINDOW]) or _LAST_ID.search(text[-_ID_WINDOW:])
        log.warning("%s: the page sent a message of more than %s values", self.server, f"{self._max_values:,}")
        session = self._session_of({"id": int(found[1])}) if found is not None else self
        running = session._calls.take(int(found[1])) if found is not None else None
        if running is not None:
            session._close_questions(running)
            text = f"The page's answer has more than {self._max_values:,} values, where keys and lists count twice."
            running.pending.end(ResultTooLarge(f"{text} Ask for less at once."))

    def _session_of(self, message: dict[str, Any]) -> PlainSession:
        """The session whose request a message names, if that is another one of the same principal. A page that gives up
        a dial without closing it has two sockets: websocket-mcp handles what it receives on both, and sends on one."""
        named = message.get("id") if "method" not in message else message.get("relatedRequestId")
        if message.get("method") == methods.PROGRESS and isinstance(params := message.get("params"), dict):
            named = params.get("progressToken")
        # defence: plain pages: an answer on another socket of the page
        if jsonrpc.is_request_id(named) and not self.has_sent(named):
            return self._owner.sender_of(self, named) or self
        return self

    def _dispatch(self, message: dict[str, Any], encoded: EncodedResponse | None = None) -> None:
        if (session := self._session_of(message)) is not self:
            session._dispatch(message, encoded)
            return
        method, id = message.get("method"), message.get("id")
        # websocket-mcp adds members to the message. This one is used here, and none of them is passed on.
        related = message.get("relatedRequestId")
        if isinstance(method, str) and id is None:
            self._received_notification(method, message.get("params"), related)
        elif isinstance(method, str) and jsonrpc.is_request_id(id):
            self._received_request(id, method, message.get("params"), related)
        elif jsonrpc.is_request_id(id):
            self._received_response(id, message, encoded)
        elif isinstance(method, str):
            text = jsonrpc.id_flaw(id) or "A request needs an id."
            self._write(jsonrpc.error_message(None, jsonrpc.INVALID_REQUEST, text))

    def _received_response(self, id: RequestId, message: dict[str, Any], encoded: EncodedResponse | None) -> None:
        if id in self._initialize_ids:
            self._received_about(message.get("result"))
            return
        running = self._calls.take(id)
        if running is None:
            return  # cancelled, or a request of the relay itself
        self._close_questions(running)
        pending = running.pending
        text, code, said = encoded or _encode_response(message, pending.call.id)
        if text is None:
            pending.end(BadAnswer("The page's answer is not a JSON-RPC response that can be passed on."))
        else:
            pending.end(Reply(text, code, values=said))

    def _received_about(self, result: object) -> None:
        if not isinstance(result, dict):
            log.warning("%s: the page refused to be initialized", self.server)
            return
        if self.about is None:
            self.about = {"serverInfo": {"name": self.server, "version": "0"}, **read_server_description(result)}
            if self._timer is not None:
                self._timer.cancel()
            self._write(jsonrpc.notification(methods.INITIALIZED))
            self._owner.initialized(self)

    def _received_notification(self, method: str, params: object, related: object) -> None:
        content = params if isinstance(params, dict) else {}
        if method == methods.PROGRESS:
            running = self._calls.get(content.get("progressToken"))
            if running is not None and running.token is not None:
                running.notify(method, {**content, "progressToken": running.token})
        elif method == methods.CANCELLED:
            self._received_cancellation(content)
        elif method == methods.LOG_MESSAGE:
            self._received_log(content, related)
        elif (running := self._calls.get(related)) is not None and not method.endswith("/list_changed"):
            running.notify(method, content)
        else:
            self._owner.announced(self, jsonrpc.notification(method, content or None))

    def _received_log(self, params: dict[str, Any], related: object) -> None:
        running = self._call_of(related)
        if running is not None:
            if self._owner.wants_log(running.channel, params):
                running.notify(methods.LOG_MESSAGE, params)
        elif related is None and self._calls.is_quiet(self._loop.time()):
            self._owner.logged(self, params)

    def _received_cancellation(self, params: dict[str, Any]) -> None:
        """The page withdrew a question; its caller has it under the session's id."""
        for id, question in self._questions.items():
            if question.id == params.get("requestId"):
                self._close_question(id)
                question.running.notify(methods.CANCELLED, {**params, "requestId": id})
                return

    def _received_request(self, id: RequestId, method: str, params: object, related: object) -> None:
        if method == methods.PING:
            self._write(jsonrpc.result_message(id, {}))
            return
        if method not in messages.MAY_BE_ASKED:
            self._write(jsonrpc.error_message(id, jsonrpc.METHOD_NOT_FOUND, f'The client has no method "{method}".'))
            return
        running = self._call_of(related)
        if running is None or running.pending.is_done:
            text = "No client can be asked: it is not clear which call this belongs to, or its caller has left."
            self._write(jsonrpc.error_message(id, jsonrpc.INVALID_REQUEST, text))
        elif messages.missing_capability(running.pending.call.caller.capabilities, method, params) is not None:
            text = f"The client of this call can't do {method}."
            self._write(jsonrpc.error_message(id, jsonrpc.METHOD_NOT_FOUND, text))
        else:
            self._forward_question(id, method, params if isinstance(params, dict) else None, running)

    def _forward_question(
        self, id: RequestId, method: str, params: dict[str, Any] | None, running: TrackedCall
    ) -> None:
        ours = f"ask-{next(self._ids)}"
        text = messages.text(jsonrpc.request(ours, method, params))
        if text is None:
            self._write(jsonrpc.error_message(id, jsonrpc.INVALID_PARAMS, "The question nests too deeply."))
            return
        question = PageQuestion(id, running, len(text) + (len(id) if isinstance(id, str) else 0))
        refusal = self._open.refusal(running, question.size)
        if refusal is not None:
            self._write(jsonrpc.error_message(id, jsonrpc.INVALID_REQUEST, refusal))
        else:
            self._questions[ours] = question
            self._open.add(running, question.size)
            running.pending.notify(Notice(text))

    def _close_question(self, id: RequestId) -> None:
        question = self._questions.pop(id)
        self._open.remove(question.running, question.size)

    def _call_of(self, related: object) -> TrackedCall | None:
        """The call that a message belongs to: the one it names, or the only one that can have caused it."""
        return self._calls.get(related) if related is not None else self._calls.only_sender(self._loop.time())

    def _close_questions(self, running: TrackedCall) -> None:
        for id in [id for id, question in self._questions.items() if question.running is running]:
            self._close_question(id)


def _encode_response(message: dict[str, Any], id: RequestId) -> EncodedResponse:
    """A page's response, with the caller's id."""
    error = message.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int):
        response = {"jsonrpc": "2.0", "id": id, "error": error}
        return messages.text(response), code, response
    if "result" not in message:
        return None, None, None
    response = jsonrpc.result_message(id, message["result"])
    return messages.text(response), None, response


def _parse(text: str) -> dict[str, Any] | None:
    """A message, or None. Of a response that only a lenient parser accepts, just the id is kept."""
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:
        if len(text) > LARGE:  # the standard library is several times slower
            found = _FIRST_ID.match(text[:_ID_WINDOW]) or _LAST_ID.search(text[-_ID_WINDOW:])
            return {"id": int(found[1])} if found is not None else None
        try:
            lenient = json.loads(text)
        except (ValueError, RecursionError):
            return None
        message = {"id": lenient.get("id")} if isinstance(lenient, dict) and "method" not in lenient else None
    return message if isinstance(message, dict) else None
