"""Names of the HTTP headers of MCP and of this product, in lower case.

`RAW_` names are the same as bytes, which is how ASGI has them. What a header may contain is decided where it is read.
"""

from __future__ import annotations

from typing import Final

from tabserver.wire import methods

PROTOCOL_VERSION: Final = "mcp-protocol-version"
SESSION_ID: Final = "mcp-session-id"
METHOD: Final = "mcp-method"
NAME: Final = "mcp-name"
PARAM_PREFIX: Final = "mcp-param-"
LAST_EVENT_ID: Final = "last-event-id"
TABRELAY_ACP: Final = "tabrelay-acp"

# Method -> the param that names its tool, prompt, resource or task, and is repeated in the header Mcp-Name.
NAMED_BY: Final = {
    methods.TOOLS_CALL: "name",
    methods.PROMPTS_GET: "name",
    methods.RESOURCES_READ: "uri",
    methods.TASKS_GET: "taskId",
    methods.TASKS_UPDATE: "taskId",
    methods.TASKS_CANCEL: "taskId",
}

RAW_PROTOCOL_VERSION: Final = PROTOCOL_VERSION.encode()
RAW_SESSION_ID: Final = SESSION_ID.encode()
RAW_METHOD: Final = METHOD.encode()
RAW_NAME: Final = NAME.encode()
RAW_LAST_EVENT_ID: Final = LAST_EVENT_ID.encode()
RAW_TABRELAY_ACP: Final = TABRELAY_ACP.encode()

# In WWW-Authenticate: only the nonce of a proof was missing or old (RFC 9449, section 9).
WANTS_NONCE: Final = "use_dpop_nonce"
