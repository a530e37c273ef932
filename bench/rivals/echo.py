"""The MCP server of every rival: a child process with one tool, `echo`, that is never the bottleneck.

It also runs in the rivals' environments, so it imports only the standard library.
"""

from __future__ import annotations

import json
import sys
from typing import Any

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "bytes": {"type": "integer"}}}
TOOL = {"name": "echo", "description": "Give it back.", "inputSchema": SCHEMA}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None for an unknown method."""
    params = message.get("params") or {}
    match message["method"]:
        case "initialize":
            info = {"name": "echo", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            arguments = params.get("arguments") or {}
            text = "x" * arguments["bytes"] if "bytes" in arguments else arguments.get("text", "")
            return {"content": [{"type": "text", "text": text}]}
        case "ping":
            return {}
    return None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message)
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        reply |= {"error": {"code": -32601, "message": "not here"}} if result is None else {"result": result}
        sys.stdout.write(json.dumps(reply, separators=(",", ":")) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
