"""Checks messages of a server against the official models of their protocol revision.

`methods` is the public part of that package; it has the methods of every revision and their shapes.
"""

from __future__ import annotations

from typing import Any

import mcp_types
from mcp_types import methods
from mcp_types.jsonrpc import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from pydantic import BaseModel

from tests.support import skill_models, task_models

# Methods between the browser and the relay that are not part of MCP.
OUR_OWN = "$/tabrelay/"


def check_note(version: str, message: dict[str, Any]) -> None:
    """A notification that a server sends."""
    JSONRPCNotification.model_validate(message)
    if message["method"].startswith(OUR_OWN):
        return
    if not task_models.check_notification(version, message["method"], message.get("params") or {}):
        methods.parse_server_notification(message["method"], version, message.get("params"))


def check_request(version: str, message: dict[str, Any]) -> None:
    """A request that a server sends; only handshake revisions have any."""
    JSONRPCRequest.model_validate(message)
    methods.parse_server_request(message["method"], version, message.get("params"))


def check_response(version: str, method: str | None, message: dict[str, Any]) -> None:
    """A server's answer to a request with that method; None: there was no such request."""
    if "error" in message:
        JSONRPCError.model_validate(message)
        return
    JSONRPCResponse.model_validate(message)
    if method is None:
        raise ValueError("an answer to a request that was not made")
    result = message["result"]
    known = task_models.check_result(version, method, result) or skill_models.check_result(version, method, result)
    if not known:
        methods.parse_server_result(method, version, result)
    for question in (result.get("inputRequests") or {}).values():
        _check_question(question)


def check_client_message(version: str, message: dict[str, Any]) -> None:
    """What the relay sends as a client: a request, a notification, or the answer to a server's question."""
    if "method" not in message:
        (JSONRPCError if "error" in message else JSONRPCResponse).model_validate(message)
    elif "id" in message:
        JSONRPCRequest.model_validate(message)
        if not skill_models.is_request(message["method"]):
            methods.parse_client_request(message["method"], version, message.get("params"))
    else:
        JSONRPCNotification.model_validate(message)
        methods.parse_client_notification(message["method"], version, message.get("params"))


def _check_question(question: dict[str, Any]) -> None:
    """A question of `input_required` has the form of the request that it has replaced."""
    models: dict[str, type[BaseModel]] = {
        "elicitation/create": mcp_types.ElicitRequest,
        "sampling/createMessage": mcp_types.CreateMessageRequest,
        "roots/list": mcp_types.ListRootsRequest,
    }
    models[question["method"]].model_validate(question)
