"""Messages of any shape from a client: the core answers with an error or not at all, and continues."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tabserver.handlers.toolbox import Toolbox, prompt, resource, tool
from tabserver.tabs.hub import Hub
from tabserver.wire.events import Received
from tabserver.wire.frames import Caller, Kind
from tabserver.wire.jsonrpc import INTERNAL_ERROR
from tests.support.fake_port import FakePort
from tests.support.odd_values import anything, nested, params
from tests.support.server_harness import MODERN, READY, CoreHarness

METHODS = [
    *("initialize", "ping", "server/discover", "tools/list", "tools/call", "resources/list", "resources/read"),
    *("resources/templates/list", "resources/subscribe", "resources/unsubscribe", "prompts/list", "prompts/get"),
    *("completion/complete", "logging/setLevel", "subscriptions/listen", "tasks/get", "x", ""),
]
NOTES = [
    *("notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/message"),
    *("notifications/roots/list_changed", "notifications/tasks/status", "$/tabrelay/pin", "$/tabrelay/tabs", "x"),
]


class Core:
    """A core with tools, resources and prompts of the worker and of a tab, and one session."""

    def __init__(self) -> None:
        box = Toolbox()
        self.now_ms = 0.0
        hub = Hub(box, now_ms=lambda: self.now_ms, defer=lambda due: None, later=lambda delay_ms, ring: None)
        self.bench = CoreHarness(hub)
        hub.attach(FakePort(), {"id": "a", "title": "A", "visible": True, "watches": False})

        @tool(toolbox=box)
        def say(text: str, times: int = 1) -> str:
            """Return the text."""
            return text * min(times, 3)

        @resource("text:{name}", toolbox=box)
        def text(name: str) -> str:
            """A text."""
            return name

        @prompt(toolbox=box)
        def greet(name: str) -> str:
            """Greet."""
            return f"Hello {name}"

        self.bench.open(READY)

    def ask(self, caller: Caller | None, method: Any, said: Any) -> None:
        """The answer is an error with its reason, another answer, or not there yet; and the next request is
        answered."""
        channel = "c" if caller is None else "m"
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": said}
        if isinstance(method, str):
            self.bench._methods[channel, 1] = method
        answer = self.bench.raw(json.dumps(message), 1, channel, caller)
        if answer is not None and "error" in answer:
            assert answer["error"]["code"] != INTERNAL_ERROR, answer
        self.is_well()

    def receive(self, kind: Kind, text: str) -> None:
        self.bench.receive(Received("c", kind, None, None, text, None))
        self.is_well()

    def is_well(self) -> None:
        self.bench.close("m")
        assert self.bench.request("ping", {}, id="still there") == {"jsonrpc": "2.0", "id": "still there", "result": {}}


@settings(max_examples=600, deadline=None)
@example(True, "tools/call", {"name": "say", "arguments": {"text": "x"}, "_meta": {"progressToken": [1]}})
@example(False, "tools/call", {"name": "say", "arguments": {"text": "x"}, "_meta": 5})
@example(False, "resources/subscribe", {"uri": 5})
@example(True, "tools/call", {"name": "say", "arguments": nested(200)})
@given(st.booleans(), st.sampled_from(METHODS) | anything, params)
def test_a_request_of_any_shape_is_answered_with_what_is_wrong_in_it(is_modern: bool, method: Any, said: Any) -> None:
    Core().ask(MODERN if is_modern else None, method, said)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(NOTES) | anything, params)
def test_a_notification_of_any_shape_is_taken_or_dropped(method: Any, said: Any) -> None:
    Core().receive(Kind.NOTE, json.dumps({"jsonrpc": "2.0", "method": method, "params": said}))


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([Kind.NOTE, Kind.RES]),
    anything
    | st.builds(
        lambda id, x: {"jsonrpc": "2.0", "id": id, **x},
        anything,
        st.dictionaries(st.sampled_from(["result", "error", "method"]), anything),
    ),
)
def test_a_message_or_an_answer_of_any_shape_is_taken_or_dropped(kind: Kind, said: Any) -> None:
    Core().receive(kind, json.dumps(said))
