"""Python of a page (PyScript, main thread): `offer` its tools, resources and prompts through the page's own connection.

    from pyscript.js_modules import tabrelay
    from tabserver import Context, tool
    from tabserver.page import offer

    @tool
    async def count_words(text: str, ctx: Context) -> int:
        return len(text.split())

    offer(tabrelay.connect, server="notes")

What is declared later is offered too. The page's client.js owns the connection; this module adds the functions. It does
not work in PyScript's own workers: a shared worker can't be reached from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from .browser.clock import now_s
from .browser.values import (
    Aborter,
    Promised,
    Rejected,
    as_object,
    log_error,
    persistent_proxy,
    release,
    result_of,
    to_javascript,
    to_python,
    when_aborted,
)
from .handlers.context import Cancel, Done, Outcome, Request
from .handlers.execute import nothing_to_cancel
from .handlers.failures import handler_failures
from .handlers.questions import Answer, ClientError, InputRequired, MissingCapability, Question, wire_form
from .handlers.signature import InvalidArguments
from .handlers.target import Target
from .handlers.toolbox import Toolbox, default_toolbox
from .handlers.tools import invalid_arguments
from .handlers.uri_templates import check_uri
from .mcp.caller_state import CallerStates
from .rpc import Refusal
from .wire.frames import Caller
from .wire.jsonrpc import RequestId
from .wire.trace_context import TraceContext

Start = Callable[[Request, Done], Cancel]
Item = dict[str, Any]

# Shared by all that this page offers: a caller has one state for all of it.
_states: Final = CallerStates(now_s)


def offer(connect: Any, *, server: str, toolbox: Toolbox = default_toolbox, **options: Any) -> Any:
    """Offer everything of this page, now and later, and return the connection that `connect` of client.js made.

    `options` are those of `connect`: `relay`, `token`, `worker`, `modules`. What `describe_server` said is added.
    """

    def join() -> Any:
        """Called again, `connect` adds to the options of its connection."""
        return connect(to_javascript({"server": server, **toolbox.identity.to_options(), **options}))

    connection = join()
    handler_failures.listen(lambda text, files: log_error(f"tabrelay: {text}"))
    sync = _OfferSync(connection, toolbox, join)
    toolbox.listen(sync.update, connection.resourceUpdated)
    sync.update()
    return connection


class _OfferSync:
    """Keeps the page's offers equal to the contents of a toolbox."""

    def __init__(self, connection: Any, toolbox: Toolbox, join: Callable[[], Any]) -> None:
        self._connection, self._toolbox, self._join = connection, toolbox, join
        self._identity = toolbox.identity
        self._offered: dict[tuple[str, str], _OfferedItem] = {}

    def update(self) -> None:
        box = self._toolbox
        if box.identity != self._identity:
            self._identity = box.identity
            self._join()
        wanted: dict[tuple[str, str], Item] = {}
        wanted |= {("Tool", item["name"]): item for item in box.tools()}
        wanted |= {("Resource", item["uri"]): item for item in box.resources()}
        wanted |= {("Resource", item["uriTemplate"]): item for item in box.templates()}
        wanted |= {("Prompt", item["name"]): item for item in box.prompts()}
        for key, offered_item in list(self._offered.items()):
            if wanted.get(key) is not offered_item.item:
                del self._offered[key]
                offered_item.withdraw()
        for key, item in wanted.items():
            if key not in self._offered:
                self._offered[key] = _OfferedItem(self._connection, box, *key, item)


class _OfferedItem:
    """One item that the page offers, and its functions that client.js calls."""

    def __init__(self, connection: Any, box: Toolbox, kind: str, key: str, item: Item) -> None:
        self.item = item
        self._box, self._key = box, key
        self._abort = Aborter()
        self._functions: list[Any] = []
        offered = to_javascript({**item, "uri": key} if kind == "Resource" else item)
        if kind == "Tool":
            if "execution" in item:
                offered.task = item["execution"]["taskSupport"]
            offered.execute = self._function(self._execute)
            offered.omitsNull = to_javascript(box.omits_null(key))
            offer = connection.offerTool
        elif kind == "Resource":
            offered.read = self._function(lambda uri, context: _run(partial(box.read, str(uri)), context))
            offered.complete = self._completers(box.complete_resource, check_uri(key))
            offer = connection.offerResource
        else:
            offered.get = self._function(self._get)
            names = [argument["name"] for argument in item.get("arguments", ())]
            offered.complete = self._completers(box.complete_prompt, names)
            offer = connection.offerPrompt
        offer(offered, as_object({"signal": self._abort.signal}))

    def withdraw(self) -> None:
        self._abort.abort("withdrawn")
        release(*self._functions)

    def _function(self, function: Callable[..., Any]) -> Any:
        lasting = persistent_proxy(function)
        self._functions.append(lasting)
        return lasting

    def _execute(self, given: Any, context: Any) -> Any:
        name = self._key

        def start(request: Request, done: Done) -> Cancel:
            try:
                return self._box.call(name, to_python(given), request, done)
            except InvalidArguments as error:
                done(invalid_arguments(name, error))
                return nothing_to_cancel

        return _run(start, context)

    def _get(self, given: Any, context: Any) -> Any:
        return _run(partial(self._box.get_prompt, self._key, to_python(given)), context)

    def _completers(self, complete: Callable[..., Cancel], names: list[str]) -> Any:
        """One function for each argument, in the form that client.js expects."""

        def completer(name: str) -> Any:
            def values(typed: Any, others: Any, context: Any) -> Any:
                start = partial(complete, self._key, name, str(typed), to_python(others))
                return _run(start, context, lambda result: result["completion"]["values"])

            return self._function(values)

        return as_object({name: completer(name) for name in names})


def _run(start: Start, context: Any, pick: Callable[[Any], Any] = lambda result: result) -> Any:
    """Run something for client.js and return a promise of the part of its result that `pick` selects."""
    answer = Promised()
    unwatch: Callable[[], None] | None = None

    def done(outcome: Outcome) -> None:
        if answer.is_settled:
            return
        if unwatch is not None:
            unwatch()
        if isinstance(outcome, Refusal):
            answer.reject(type(outcome).__name__, outcome.message, outcome.code, outcome.data)
        elif isinstance(outcome, InputRequired):
            asked = {key: wire_form(question) for key, question in outcome.requests.items()}
            required = {"resultType": "input_required", "inputRequests": asked, "requestState": outcome.state}
            answer.resolve(to_javascript(required))
        else:
            answer.resolve(to_javascript(pick(outcome)))

    try:
        cancel = start(PageRequest(context), done)
    except Refusal as refusal:
        done(refusal)
    if not answer.is_settled:
        unwatch = when_aborted(context.signal, lambda: cancel("The caller cancelled the call."))
    return answer.promise


class PageRequest:
    """The Request of a call that runs in the page, built from the context that client.js passes."""

    target: Target | None = None
    goes_on = False  # the worker decides about approvals; the page does not need to know

    def __init__(self, context: Any) -> None:
        self._context = context
        caller = to_python(context.caller)
        self.caller_key = str(caller.pop("key", ""))
        self.caller = Caller.from_dict(caller)
        self.input_responses: Mapping[str, Answer] = to_python(context.inputResponses)
        self.request_state: Any = to_python(context.requestState)
        self.trace = TraceContext.read(to_python(context.trace))
        self.task_id: str | None = to_python(context.taskId)
        self.saved: Any = to_python(context.saved)

    @property
    def state(self) -> dict[str, Any]:
        return _states.of(self.caller_key)

    @property
    def request_id(self) -> RequestId:
        return str(self._context.call)

    @property
    def is_cancelled(self) -> bool:
        return bool(self._context.signal.aborted)

    def pin(self, tab: str | None) -> None:
        """No effect: the worker pins a tab before the call reaches the page."""

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self._context.progress(progress, total, message)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        self._context.log(level, to_javascript(data), logger)

    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        if (needed := question.lacking(self.caller.capabilities)) is not None:
            raise MissingCapability(question.method, needed)
        params, options = question.params(), {"key": key} if key else {}
        asked = self._context.ask(question.method, to_javascript(params), to_javascript(options))
        try:
            answer: Answer = await result_of(asked)
        except Rejected as error:
            raise _to_exception(error) from None
        return answer

    def save(self, state: Any) -> None:
        self._context.save(to_javascript(state))

    def close_stream(self, retry_ms: int | None) -> None:
        """No effect: a page has no response stream."""


def _to_exception(error: Rejected) -> Exception:
    """The exception that a handler in the worker would get for the same failure."""
    if error.name == "TimeoutError":
        return TimeoutError(error.message)
    if error.name == "ClientError":
        return ClientError(error.code, error.data["message"])
    return RuntimeError(error.message)
