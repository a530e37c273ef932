"""Requirements that the relay meets for MCP clients over HTTP: each behaviour once, with the text that requires it.

`test_requirements.py` fails when a requirement has no test, and when a test of the files listed there has no
requirement.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    """`source`: a part of the specification, or of the project's documentation."""

    id: str
    source: str
    behaviour: str


REQUIREMENTS = (
    Requirement(
        "modern-json-or-stream",
        "MCP 2026-07-28, basic/transports: Streamable HTTP, sending messages",
        "A request is answered with one JSON object, or with a stream once there is something to say "
        "before the result; the stream has no event ids.",
    ),
    Requirement(
        "modern-closing-cancels",
        "MCP 2026-07-28, basic/utilities/cancellation",
        "Closing the response stream cancels the request.",
    ),
    Requirement(
        "modern-headers-agree",
        "MCP 2026-07-28, basic/transports: standard headers",
        "MCP-Protocol-Version, Mcp-Method and Mcp-Name are there once and say what the body says; "
        "blanks around them do not count, base64 is decoded.",
    ),
    Requirement(
        "modern-param-headers",
        "MCP 2026-07-28, basic/transports: custom headers",
        "Mcp-Param headers and the arguments that a schema marks are there together and equal.",
    ),
    Requirement(
        "modern-unsupported-version",
        "MCP 2026-07-28, basic/versioning",
        "An unknown version gets 400 and -32022, with the versions that are supported.",
    ),
    Requirement(
        "modern-envelope",
        "MCP 2026-07-28, basic: per-request protocol fields",
        "A request without its envelope gets 400 and -32602.",
    ),
    Requirement(
        "modern-method-not-found",
        "MCP 2026-07-28, basic/transports: status codes",
        "A method that is unknown or was removed gets 404 with -32601 in the body.",
    ),
    Requirement(
        "modern-notifications",
        "MCP 2026-07-28, basic/transports",
        "A notification is acknowledged with 202 and has no effect on others' requests.",
    ),
    Requirement(
        "modern-post-only",
        "MCP 2026-07-28, basic/transports",
        "GET and DELETE are not methods of this era: 405.",
    ),
    Requirement(
        "modern-no-server-requests",
        "MCP 2026-07-28, basic/transports",
        "A stream never carries a request of the server's, nor our own wishes about it.",
    ),
    Requirement(
        "modern-listen",
        "MCP 2026-07-28, server/utilities/subscriptions",
        "A listen stream begins with its acknowledgement, carries what was asked for with its "
        "subscription id, and ends with a result.",
    ),
    Requirement(
        "modern-input-required",
        "MCP 2026-07-28, basic/patterns/mrtr",
        "A question is the answer to a request; a retry with its state goes on, for the same principal and request, "
        "in time, once. A call that went with its browser fails, or is run again if that is safe.",
    ),
    Requirement(
        "request-id-types",
        "JSON-RPC 2.0 as MCP narrows it",
        "A request's id is a string or an integer; any other gets 400 and -32600.",
    ),
    Requirement(
        "bad-input",
        "JSON-RPC 2.0; RFC 9110",
        "Broken, deep, large or mistyped bodies get the right status and code, and the next request works.",
    ),
    Requirement(
        "initialize-opens-session",
        "MCP 2025-11-25, basic/transports: session management",
        "initialize gives a session id of visible ASCII that cannot be guessed.",
    ),
    Requirement(
        "session-required",
        "MCP 2025-11-25, basic/transports: session management",
        "Without a session id 400 where a session is needed, with an unknown one 404, with a bad version 400.",
    ),
    Requirement(
        "session-delete",
        "MCP 2025-11-25, basic/transports: session management",
        "DELETE ends a session for good, here and at the browser.",
    ),
    Requirement(
        "session-of-one-credential",
        "Tabrelay: admission",
        "A session is of one server and one credential; to others it does not exist.",
    ),
    Requirement(
        "session-outlives-page",
        "Tabrelay: sessions",
        "After a reload or a browser restart the client's next call works; level and subscriptions are "
        "told to the new worker first.",
    ),
    Requirement(
        "session-outlives-relay",
        "Tabrelay: sessions",
        "After a restart of the relay the same session id works, with all that was set.",
    ),
    Requirement(
        "session-limits",
        "Tabrelay: settings",
        "Idle sessions cost no memory, unused ones end, and at the cap a new one is refused in words.",
    ),
    Requirement(
        "legacy-streams",
        "MCP 2025-11-25, basic/transports: sending messages",
        "What belongs to a request comes on its own stream; what belongs to none on the GET stream, of "
        "which there is one.",
    ),
    Requirement(
        "legacy-cancel",
        "MCP 2025-11-25, basic/utilities/cancellation",
        "notifications/cancelled cancels; hanging up does not.",
    ),
    Requirement(
        "legacy-resume",
        "MCP 2025-11-25, basic/transports: resumability and redelivery",
        "Events have ids; after a loss the rest of that stream, and of no other, is replayed.",
    ),
    Requirement(
        "legacy-prefers-stream",
        "RFC 9110, 12.5.1: Accept; Tabrelay: the way of a call",
        "A client with a session that would rather have an event stream, by weight or by order, gets every "
        "answer as one that can be taken up again.",
    ),
    Requirement(
        "legacy-close-stream",
        "MCP 2025-11-25, basic/transports: sending messages",
        "A server may end a stream early once the client has an event id, and says when to come back.",
    ),
    Requirement(
        "legacy-questions",
        "MCP 2025-11-25, client: elicitation, sampling, roots",
        "A question of the server's reaches the client on the right stream, and its answer the server.",
    ),
    Requirement(
        "legacy-batch",
        "MCP 2025-03-26, basic: batching",
        "A batch is received and answered with an array; initialize is never in one; other versions have none.",
    ),
    Requirement(
        "tasks-modern",
        "SEP-2663, io.modelcontextprotocol/tasks: task creation, polling, update, cancellation",
        "A tool call of a client that declares the extension may be answered with a task, whose state, questions and "
        "result the client asks for; other clients never get one.",
    ),
    Requirement(
        "tasks-notifications",
        "SEP-2663, io.modelcontextprotocol/tasks: task status notifications",
        "A client that listens to its tasks gets each state of them, and of no others.",
    ),
    Requirement(
        "tasks-handshake",
        "MCP 2025-11-25, basic/utilities/tasks",
        "A tool call with `task` is answered with a task at once; tasks/result waits for the result of the tool.",
    ),
    Requirement(
        "http-sse",
        "MCP 2024-11-05, basic/transports: HTTP with SSE",
        "A stream that names its endpoint, messages POSTed there, everything else on the stream.",
    ),
    Requirement(
        "discovery-while-away",
        "Tabrelay: discovery",
        "initialize, server/discover and every list answer while the browser is away, also after a restart.",
    ),
    Requirement(
        "static-tools",
        "Tabrelay: tabs, clients that read the list once",
        "A server that has static tools lists them from before its first browser, and no other server does.",
    ),
    Requirement(
        "pins",
        "Tabrelay: tabs, pins",
        "A caller's requests go to the tab that it pinned, also with another worker and after a restart.",
    ),
    Requirement(
        "instances",
        "Tabrelay: tabs, several browsers",
        "Where a server keeps several browsers, its address is the one used last and each has an address of its own; "
        "a session, a call, a named and a pinned tab find their browser.",
    ),
    Requirement(
        "list-changed",
        "Tabrelay: discovery",
        "Clients that listen are notified once, by the relay, when a list differs from theirs, and only then; "
        "a browser that came a moment ago is given time to say what it offers.",
    ),
    Requirement(
        "errors",
        "Tabrelay: errors that callers see",
        "Code and data of run-time failures arrive in real clients; the others arrive as text.",
    ),
    Requirement(
        "client-matrix",
        "Tabrelay: every client",
        "Real clients list, call, get progress, cancel, and get an error when the browser is away, in their own era.",
    ),
    Requirement(
        "conformance",
        "@modelcontextprotocol/conformance",
        "The official suite passes with a browser behind the relay, with every check tried.",
    ),
)
