"""Validation of one JSON-RPC message of a client, as MCP narrows JSON-RPC 2.0. Pure.

Checks the shape, the id, `_meta` and the size of the client description. Does not look at what a method means.
"""

from __future__ import annotations

from typing import Any, Final

from tabrelay.errors import BadRequest
from tabrelay.mcp_headers import NAMED_BY
from tabserver.wire import jsonrpc

# Bytes of a client's description, which is kept in memory for as long as its session or its call.
MAX_CLIENT_INFO: Final = 16 * 1024


def name_of(message: dict[str, Any]) -> str | None:
    """The tool, prompt or resource that a request is for."""
    params = message.get("params")
    if type(params) is not dict:
        return None
    name = params.get(NAMED_BY.get(message["method"]))
    return name if type(name) is str else None


def request_id(message: Any) -> jsonrpc.RequestId | None:
    """The id for a response, also of a request that is invalid in another way. None if no response is expected."""
    is_request = isinstance(message, dict) and "method" in message
    id = message.get("id") if is_request else None
    return id if jsonrpc.is_request_id(id) else None


def check_message(message: Any) -> None:
    """Raises BadRequest unless it is a request, a notification or a response of JSON-RPC 2.0, as MCP narrows it."""
    if type(message) is not dict:  # a value of a JSON parser: no subclass, so `isinstance` only takes longer
        raise BadRequest("The body must be one JSON-RPC message: an object.")
    if message.get("jsonrpc") != "2.0":
        raise BadRequest('The message must have "jsonrpc": "2.0".')
    if "method" in message:
        if type(message["method"]) is not str:
            raise BadRequest("A message's method must be a string.")
        if "id" in message and type(message["id"]) is not int and (flaw := jsonrpc.id_flaw(message["id"])) is not None:
            raise BadRequest(flaw)
        params = message.get("params")
        is_plain = params is None or (type(params) is dict and "_meta" not in params)
        # defence: params of any type: where requests enter
        if not is_plain and (flaw := _params_flaw(params)) is not None:
            raise BadRequest(flaw, code=jsonrpc.INVALID_PARAMS, reason="invalid_params")
    elif "id" not in message or ("result" in message) is ("error" in message):
        raise BadRequest("The body is neither a request nor a notification nor a response.")
    elif isinstance(message["id"], str) and (flaw := jsonrpc.id_flaw(message["id"], "A response's id")) is not None:
        raise BadRequest(flaw)


def _params_flaw(params: Any) -> str | None:
    """What is wrong with params that have a `_meta`, or are no object, for any server: many read them as an object
    without checking."""
    if type(params) is not dict:
        return "params must be an object."
    meta = params["_meta"]
    if not isinstance(meta, dict):
        return "params._meta must be an object."
    token = meta.get("progressToken")
    is_token = token is None or isinstance(token, float) or jsonrpc.is_request_id(token)
    return None if is_token else jsonrpc.id_flaw(token, "A progress token")


def check_client_info(text: bytes) -> None:
    """`text`: client info and capabilities as JSON. Raises BadRequest if they are too large."""
    # defence: what a client says of itself
    if len(text) > MAX_CLIENT_INFO:
        raise BadRequest(
            f"The client info and capabilities have more than {MAX_CLIENT_INFO:,} bytes.",
            status=413,
            code=jsonrpc.INVALID_PARAMS,
            reason="too_large",
        )


def is_request(message: dict[str, Any]) -> bool:
    """For a checked message."""
    return "method" in message and "id" in message
