"""JSON values of any shape, for tests of code that reads foreign messages."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

# Members that methods of MCP and the relay's own notifications read.
MEMBERS = [
    *("name", "arguments", "uri", "cursor", "level", "ref", "argument", "context", "notifications", "requestId"),
    *("reason", "protocolVersion", "clientInfo", "capabilities", "inputResponses", "requestState", "progressToken"),
    *("value", "type", "toolsListChanged", "resourceSubscriptions", "tab", "tabs", "used", "id", "method", "x"),
]
META = [
    *("progressToken", "io.modelcontextprotocol/logLevel", "io.modelcontextprotocol/clientInfo", "tabrelay/acp"),
    *("tabrelay/tab", "tabrelay/pin", "traceparent", "tracestate", "baggage"),
]


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"x": value}
    return value


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(
        ["say", "text:x", "greet", "info", "ref/prompt", "ref/resource", "debug", "a", "\ud800", "x" * 3000]
    )
)
anything: st.SearchStrategy[Any] = st.recursive(
    scalars | st.just(nested(200)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=8,
)
metas = st.dictionaries(st.sampled_from(META), anything, max_size=4) | anything
params = (
    st.dictionaries(st.sampled_from(MEMBERS), anything, max_size=6)
    | st.builds(
        lambda some, meta: {**some, "_meta": meta},
        st.dictionaries(st.sampled_from(MEMBERS), anything, max_size=5),
        metas,
    )
    | anything
)
