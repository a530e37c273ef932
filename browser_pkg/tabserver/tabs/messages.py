"""Messages between the worker and a tab about a running call: the call itself, progress, logs, questions and results.

Functions on a RunningCall: they write the call for its tab and read what the tab sends about it. Where a call runs is
decided in `calls` and `routing`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

from ..handlers.context import Outcome, Result, Written
from ..handlers.execute import run as run_handler
from ..handlers.questions import Answer, ClientError, InputRequired, read_question
from ..handlers.resources import ResourceNotFound
from ..handlers.target import ASKING_TAB
from ..handlers.tools import error_result, text_result
from ..mcp.call import RunningCall
from ..rpc import Refusal
from ..wire.control_messages import RELAY
from ..wire.eras import Era
from ..wire.frames import Caller
from ..wire.jsonrpc import INTERNAL_ERROR
from .requests import RoutedRequest
from .tab import Message, Tab

# The most questions of one call that wait for the client at the same time.
MOST_ASKED: Final = 16
_PLAIN_MEMBERS: Final = frozenset(("name", "arguments", "_meta"))
# For each kind: the list that a result must have, and the member that each item of the list must have.
_RESULTS: Final = {
    "tools": ("content", "type"),
    "resources": ("contents", "uri"),
    "templates": ("contents", "uri"),
    "prompts": ("messages", "content"),
}


# Errors of a page that its tool did not throw, by their class in JavaScript.
_REASONS: Final = {"InvalidArguments": "invalid_arguments", "InvalidResult": "invalid_result"}


class CallWriter:
    """Writes calls for tabs. The caller's text is cached: most calls have the same caller as the one before."""

    def __init__(self) -> None:
        self._last: tuple[Caller | None, str, str] = None, "", ""

    def write(self, call: RunningCall, routed: RoutedRequest, own_key: str, tab: Tab) -> tuple[str, bool]:
        """The call as JSON text: its id, caller and task. Is it plain, and are calls like it read by the page?"""
        reads_requests = tab.port is not None and tab.port.reads_requests
        if reads_requests and routed.own is None and routed.arguments is call.params.get("arguments"):
            # The request is forwarded as text: JSON that was parsed is not written again. A tool's name has no
            # character that JSON would have to escape.
            task = f'"kind":"tools","name":"{own_key}","request":{call.payload}'
        else:
            task = json.dumps(routed.message(own_key))[1:-1]
        if call.times is not None:
            call.times.post(tab.id)
            task += ',"timed":true'
        text = f'{{"t":"call","call":"{call.number}","caller":{self.caller_json(call)},{task}{_more(call)}}}'
        return text, reads_requests and is_plain(call, routed)

    def caller_json(self, call: RunningCall) -> str:
        known, known_key, text = self._last
        caller = call.caller
        is_known = caller is known
        if is_known and caller.era is Era.MODERN:
            return text
        key = call.caller_key
        if not is_known or key != known_key:
            described = {
                "client": caller.client,
                "principal": caller.principal,
                "era": caller.era.value,
                "version": caller.version,
                "capabilities": caller.capabilities,
                "key": key,
                **({} if caller.acp is None else {"acp": caller.acp.to_dict()}),
            }
            text = json.dumps(described)
            self._last = caller, key, text
        return text


def is_plain(call: RunningCall, routed: RoutedRequest) -> bool:
    """Does the call name a tool and its arguments and nothing else? A log level may be given: it is read when a message
    is logged."""
    session, meta, params = call.session, call.meta, call.params
    caller = session.caller
    return (
        session.is_single
        and not session.is_repeated
        and call.times is None
        and call.task_id is None
        and meta.token is None
        and meta.target is None
        and meta.acp is None
        and meta.trace is None
        and caller.era is Era.MODERN
        and caller.tab is None
        and caller.acp is None
        and caller.principal != RELAY
        and params.keys() == _PLAIN_MEMBERS
        and routed.arguments is params["arguments"]
    )


def _more(call: RunningCall) -> str:
    """Members of the message to a tab that few calls have: trace, answers to questions, the tab's own state, and the
    task."""
    trace, answers, state, task = call.meta.trace, call.input_responses, call.request_state, call.task_id
    if trace is None and not answers and state is None and task is None:
        return ""
    more: dict[str, Any] = {} if trace is None else {"trace": trace.to_dict()}
    if task is not None:
        more["task"] = {"id": task} if call.saved is None else {"id": task, "saved": call.saved}
    if answers:
        more["responses"] = answers
    if isinstance(state, dict) and state.get("state") is not None:
        more["state"] = state["state"]
    return f",{json.dumps(more)[1:-1]}" if more else ""


def receive(call: RunningCall, kind: str, message: Message) -> None:
    """Handle the tab's message about the call: progress, a log line, a question to the client, or an error."""
    if kind == "progress":
        call.progress(message["progress"], message.get("total"), message.get("message"))
    elif kind == "log":
        try:
            call.log(message["level"], message.get("data"), message.get("logger"))
        except ValueError as error:  # no such level: log it where the page's author reads
            call.log("warning", f"{error}: {message.get('data')}")
    elif kind == "save":
        with suppress(ValueError):  # too large: the page has refused it already
            call.save(message.get("state"))
    elif kind == "ask":
        _ask(call, message)
    elif kind == "times":
        call.ran_in_page(message.get("began"), message.get("ended"))
    elif kind == "required":
        _require(call, message)
    else:
        _fail(call, message)


def receive_result(call: RunningCall, text: str, is_plain: bool) -> None:
    """Handle the tab's result. `is_plain`: a tool's result may be forwarded without parsing."""
    if is_plain and call.purpose == "tools":
        call.finish(Written(text, call.tab.meta))
        return
    result = json.loads(text)
    if _is_result(call.purpose, result):
        _answer(call, result)
    else:
        _fail(call, {"message": f'The page\'s answer to "{call.name}" is not a valid result.'})


def _answer(call: RunningCall, result: Result) -> None:
    """Finish with a result of the tab, whose `_meta` names the tab."""
    meta = result.get("_meta")
    result["_meta"] = (meta if isinstance(meta, dict) else {}) | call.tab.meta
    call.finish(result)


def _fail(call: RunningCall, message: Message) -> None:
    text, code = str(message.get("message") or "The call failed in the page."), message.get("code")
    if message.get("name") == ResourceNotFound.__name__ and call.purpose in ("resources", "templates"):
        data = message.get("data")
        call.finish(ResourceNotFound(str(data["uri"] if isinstance(data, dict) and "uri" in data else call.name)))
    elif isinstance(code, int):
        call.finish(Refusal(code, text, message.get("data")))
    elif call.purpose == "tools":
        _answer(call, _error_of_page(text, _REASONS.get(str(message.get("name")))))
    else:
        call.finish(Refusal(INTERNAL_ERROR, text))


def _error_of_page(text: str, reason: str | None) -> Result:
    if reason is None:
        return text_result(text, is_error=True)
    return error_result(text, reason, is_delivered=reason == "invalid_result")


def _require(call: RunningCall, message: Message) -> None:
    """The handler returned its questions and does not wait: it is called again with the answers."""
    try:
        asked = {key: read_question(q.get("method"), q.get("params")) for key, q in message["requests"].items()}
    except (AttributeError, ValueError) as error:
        call.finish(Refusal(INTERNAL_ERROR, f"The page's question to the client is not valid: {error}"))
    else:
        call.finish(InputRequired(asked, {ASKING_TAB: call.tab.id, "state": message.get("state")}))


def _ask(call: RunningCall, message: Message) -> None:
    """Ask the client, and send the answer to the tab while the call runs there."""
    number, of, tab = message["ask"], call.number, call.tab
    asked = call.page_questions = {} if call.page_questions is None else call.page_questions

    def reply(outcome: Outcome) -> None:
        asked.pop(number, None)
        if call.runner is not None and call.number == of:
            assert isinstance(outcome, dict)
            tab.send({"t": "answer", "call": of, "ask": number, **outcome})

    if len(asked) >= MOST_ASKED:
        reply(_error_reply(ValueError(f"{MOST_ASKED} questions of this call are open already")))
        return
    try:
        question = read_question(message.get("method"), message.get("params"))
    except ValueError as error:
        reply(_error_reply(error))
        return

    async def ask() -> Answer:
        return await call.ask(question, message.get("key"))

    name = f"question of {call.name}"
    asked[number] = run_handler(name, ask, lambda answer: {"answer": answer}, _error_reply, reply)


def _is_result(kind: str, result: Any) -> bool:
    """Does the result have the form that MCP requires for this kind of call?"""
    if not isinstance(result, dict):
        return False
    if kind == "completion":
        return isinstance(result.get("completion"), dict)
    member, needed = _RESULTS[kind]
    items = result.get(member)
    return isinstance(items, list) and all(isinstance(item, dict) and needed in item for item in items)


def _error_reply(error: BaseException) -> Result:
    """The error for a question without an answer, as the page receives it."""
    members: dict[str, Any] = {"name": type(error).__name__, "message": str(error)}
    if isinstance(error, ClientError):
        members |= {"code": error.code, "data": {"message": error.message}}
    elif isinstance(error, Refusal):
        members |= {"code": error.code, "data": error.data}
    return {"error": members}
