"""Python tools of a page (PyScript, main thread): `offer` them through the page's own connection.

    from tabserver import tool
    from tabserver.page import offer
    from pyscript.js_modules import tabrelay

    @tool
    def count_words(text: str) -> int:
        return len(text.split())

    offer(tabrelay.connect, server="notes")

The page's client.js owns the connection; this adds the functions. It is not for PyScript's own workers: a shared worker
can't be reached from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from . import browser
from .context import Outcome
from .messages import Refusal
from .questions import Answer, MissingCapability, Question
from .signature import InvalidArguments
from .toolbox import Toolbox, default_toolbox
from .tools import text_result
from .wire.frames import Caller
from .wire.jsonrpc import RequestId


def offer(connect: Any, *, server: str, toolbox: Toolbox = default_toolbox, **options: Any) -> Any:
    """Offer every tool of this page, now and later, and return the connection that `connect` of client.js made."""
    connection = connect(browser.to_javascript({"server": server, **options}))
    offered: dict[str, dict[str, Any]] = {}

    def offer_new() -> None:
        for description in toolbox.tools():
            if offered.get(description["name"]) is not description:
                offered[description["name"]] = description
                tool = browser.to_javascript(description)
                tool.execute = browser.lasting(_executor(toolbox, description["name"]))
                connection.offerTool(tool)

    toolbox.on_change = offer_new
    offer_new()
    return connection


def _executor(toolbox: Toolbox, name: str) -> Callable[[Any, Any], Any]:
    def execute(arguments: Any, context: Any) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome) -> None:
            if not isinstance(outcome, dict):
                text = outcome.message if isinstance(outcome, Refusal) else "A tool of a page can't ask the client yet."
                outcome = text_result(text, is_error=True)
            if not answer.done():
                answer.set_result(browser.to_javascript(outcome))

        try:
            cancel = toolbox.call(name, browser.to_python(arguments), PageRequest(context), done)
        except InvalidArguments as error:
            done(text_result(f'Invalid arguments for tool "{name}":\n{error}', is_error=True))
        if answer.done():
            return answer.result()
        unwatch = browser.when_aborted(context.signal, lambda: cancel("The caller cancelled the call."))
        answer.add_done_callback(lambda _: unwatch())
        return answer

    return execute


class PageRequest:
    """The Request of a tool that runs in a page, made of what client.js gives to `execute`."""

    input_responses: Mapping[str, Answer] = {}
    request_state: Any = None
    target = None  # it has arrived

    def __init__(self, context: Any) -> None:
        self._context = context

    @property
    def caller(self) -> Caller:
        return Caller.from_dict({"version": "", "capabilities": {}} | browser.to_python(self._context.caller))

    @property
    def request_id(self) -> RequestId:
        return str(self._context.call)

    @property
    def is_cancelled(self) -> bool:
        return bool(self._context.signal.aborted)

    def pin(self, tab: str | None) -> None:
        """It is decided before a call gets here."""

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self._context.progress(progress, total, message)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        self._context.log(level, browser.to_javascript(data))

    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        """The way from a page to the client is not there yet: to the tool it is as if no client could be asked."""
        raise MissingCapability(question.method, question.lacking({}) or {})

    def close_stream(self, retry_ms: int | None) -> None:
        """A page has no stream of its own."""
