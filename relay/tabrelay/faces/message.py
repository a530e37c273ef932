"""One JSON-RPC message of a client: is it one at all, and does somebody wait for an answer? Pure.

What it asks for is not known here.
"""

from __future__ import annotations

from typing import Any

from tabrelay.errors import BadRequest
from tabserver.wire import jsonrpc


def request_id(message: Any) -> jsonrpc.RequestId | None:
    """The id that an answer needs: also of a request that is wrong in another way. None if nobody can wait for one."""
    is_request = isinstance(message, dict) and "method" in message
    id = message.get("id") if is_request else None
    return id if jsonrpc.is_request_id(id) else None


def check_message(message: Any) -> None:
    """Raises BadRequest unless it is a request, a notification or a response of JSON-RPC 2.0, as MCP narrows it."""
    if not isinstance(message, dict):
        raise BadRequest("The body must be one JSON-RPC message: an object.")
    if message.get("jsonrpc") != "2.0":
        raise BadRequest('The message must say "jsonrpc": "2.0".')
    if "method" in message:
        if not isinstance(message["method"], str):
            raise BadRequest("A message's method must be a string.")
        if "id" in message and not jsonrpc.is_request_id(message["id"]):
            raise BadRequest("A request's id must be a string or an integer.")
    elif "id" not in message or ("result" in message) is ("error" in message):
        raise BadRequest("The body is neither a request nor a notification nor a response.")


def is_request(message: dict[str, Any]) -> bool:
    """Of a message that was checked."""
    return "method" in message and "id" in message
