"""Translation table of MCP messages between the handshake era and the modern era, method by method.

Pure functions on plain values, for both directions: a modern client (2026-07-28) with a legacy server, and a legacy
client with a modern server. Messages of a server that supports both eras are not translated. Nothing is sent from here
and no state of a call is kept.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from tabrelay.payloads.json_limits import is_deeper_than
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.frames import Caller

Params = dict[str, Any]
Result = dict[str, Any]

# Keys of `_meta` that describe the client in every modern request. A legacy server received this once, in `initialize`.
# Other `_meta` keys are forwarded.
ENVELOPE: Final = frozenset({eras.META_VERSION, eras.META_CLIENT, eras.META_CAPABILITIES, eras.META_LOG_LEVEL})
# Params of a retry that are for the relay, because the relay sent the questions.
ANSWERS: Final = ("inputResponses", "requestState")

# Members that only modern results have.
MODERN_ONLY: Final = frozenset({"resultType", "ttlMs", "cacheScope"})

MAY_ASK: Final = frozenset({methods.TOOLS_CALL, methods.PROMPTS_GET, methods.RESOURCES_READ})
MAY_BE_ASKED: Final = frozenset({methods.ELICITATION_CREATE, methods.SAMPLING_CREATE_MESSAGE, methods.ROOTS_LIST})
CACHEABLE: Final = frozenset(
    {
        methods.SERVER_DISCOVER,
        methods.TOOLS_LIST,
        methods.PROMPTS_LIST,
        methods.RESOURCES_LIST,
        methods.RESOURCES_TEMPLATES_LIST,
        methods.RESOURCES_READ,
        methods.SKILLS_LIST,
        methods.SKILLS_GET,
        methods.RESOURCES_DIRECTORY_READ,
    }
)
# Methods that 2026-07-28 no longer has. The face rejects them too; a peer must not depend on that.
REMOVED: Final = frozenset(
    {
        methods.INITIALIZE,
        methods.PING,
        methods.LOGGING_SET_LEVEL,
        methods.RESOURCES_SUBSCRIBE,
        methods.RESOURCES_UNSUBSCRIBE,
    }
)

TASKS: Final = "io.modelcontextprotocol/tasks"


# Error code of the handshake era that must not reach a modern client.
URL_ELICITATION_REQUIRED: Final = -32042

# Filters of `subscriptions/listen`: key, capability that the server needs, notification.
LIST_CHANGES: Final = (
    ("toolsListChanged", "tools", methods.TOOLS_LIST_CHANGED),
    ("promptsListChanged", "prompts", methods.PROMPTS_LIST_CHANGED),
    ("resourcesListChanged", "resources", methods.RESOURCES_LIST_CHANGED),
)
# Levels of nesting; orjson writes slightly more.
DEEPEST: Final = 250


def text(message: Mapping[str, Any]) -> str | None:
    """A message as one line of JSON; None if it nests too deeply to be written."""
    try:
        return orjson.dumps(message).decode()
    except orjson.JSONEncodeError:
        # The text is parsed and serialized again by later steps, so it must not nest deeper than they can handle.
        if is_deeper_than(message, DEEPEST):
            return None
    try:
        return json.dumps(message, separators=(",", ":"))  # for numbers over 64 bits, which orjson rejects
    except ValueError:
        return None


def is_removed(method: str) -> bool:
    """Tasks have a different model in each era: they are hidden, not translated."""
    return method in REMOVED or method.startswith("tasks/")


# -- requests ----------------------------------------------------------------------------------------------------------


def legacy_params(params: Params) -> Params:
    """Params of a modern request without the members that only modern requests have."""
    kept = {key: value for key, value in params.items() if key not in ANSWERS and key != "_meta"}
    meta = params.get("_meta")
    if isinstance(meta, dict) and (rest := {key: value for key, value in meta.items() if key not in ENVELOPE}):
        kept["_meta"] = rest
    return kept


def modern_params(params: Params, caller: Caller, level: str | None) -> Params:
    """Params of a legacy caller with the `_meta` that every modern request must have."""
    meta = params.get("_meta")
    stamped = dict(meta) if isinstance(meta, dict) else {}
    stamped[eras.META_VERSION] = caller.version
    stamped[eras.META_CAPABILITIES] = dict(caller.capabilities)
    if caller.client is not None:
        stamped[eras.META_CLIENT] = dict(caller.client)
    if level is not None:
        stamped[eras.META_LOG_LEVEL] = level
    return {**params, "_meta": stamped}


def log_level(params: Params) -> object:
    """The log level that the request sets; None: no log message may be sent for it."""
    meta = params.get("_meta")
    return meta.get(eras.META_LOG_LEVEL) if isinstance(meta, dict) else None


def is_level_enabled(message_params: object, wanted: str | None) -> bool:
    """May this log message be sent to a request that set the level `wanted`?"""
    level = message_params.get("level") if isinstance(message_params, dict) else None
    if wanted is None or level not in methods.LOG_LEVELS:
        return False
    return methods.LOG_LEVELS.index(level) >= methods.LOG_LEVELS.index(wanted)


def progress_token(params: Mapping[str, Any]) -> object:
    meta = params.get("_meta")
    return meta.get("progressToken") if isinstance(meta, dict) else None


def digest(server: str, method: str, params: Params) -> str:
    """Hash of everything that a retry and the request it continues must share: all but `_meta` and the answers."""
    asked = {key: value for key, value in params.items() if key not in ANSWERS and key != "_meta"}
    return hashlib.sha256(orjson.dumps([server, method, asked], option=orjson.OPT_SORT_KEYS)).hexdigest()


# -- results and errors ------------------------------------------------------------------------------------------------


def discover(about: Mapping[str, Any]) -> Result:
    """Result of `server/discover`, made from the server's InitializeResult."""
    result: Result = {
        "supportedVersions": list(eras.MODERN_VERSIONS),
        "capabilities": visible_capabilities(about),
    }
    if isinstance(about.get("instructions"), str):
        result["instructions"] = about["instructions"]
    return modern_result(methods.SERVER_DISCOVER, result, about)


def session_capabilities(about: Mapping[str, Any]) -> dict[str, Any]:
    """The capabilities of a server of the handshake era for clients of that era."""
    capabilities, seen = about.get("capabilities"), visible_capabilities(about)
    tasks = capabilities.get("tasks") if isinstance(capabilities, dict) else None
    return seen | {"tasks": tasks} if isinstance(tasks, dict) else seen


def visible_capabilities(about: Mapping[str, Any]) -> dict[str, Any]:
    """The server's capabilities without tasks, which belong to one caller and have a different model in each era."""
    capabilities = about.get("capabilities")
    if not isinstance(capabilities, dict):
        return {}
    seen = {name: value for name, value in capabilities.items() if name != "tasks"}
    extensions = seen.get("extensions")
    if isinstance(extensions, dict) and TASKS in extensions:
        seen["extensions"] = {name: value for name, value in extensions.items() if name != TASKS}
    return seen


def modern_result(method: str, result: object, about: Mapping[str, Any]) -> Result:
    """Result of a legacy server with the modern members added. It has no cache hints, so it must not be cached."""
    stamped: Result = {**result} if isinstance(result, dict) else {}
    if method == methods.TOOLS_LIST and isinstance(stamped.get("tools"), list):
        stamped["tools"] = [_without_execution(tool) for tool in stamped["tools"]]
    stamped["resultType"] = "complete"
    if method in CACHEABLE:
        stamped["ttlMs"] = 0
        stamped["cacheScope"] = "private"
    meta = stamped.get("_meta")
    info = about.get("serverInfo")
    if isinstance(info, dict):
        stamped["_meta"] = {**(meta if isinstance(meta, dict) else {}), eras.META_SERVER_INFO: info}
    return stamped


def _without_execution(tool: object) -> object:
    """`execution` describes how a tool runs as a task, and tasks are hidden."""
    return {key: value for key, value in tool.items() if key != "execution"} if isinstance(tool, dict) else tool


def modern_error(error: Mapping[str, Any]) -> dict[str, Any]:
    if error.get("code") == jsonrpc.RESOURCE_NOT_FOUND:
        return {**error, "code": jsonrpc.INVALID_PARAMS}
    return dict(error)


def url_elicitations(error: Mapping[str, Any]) -> list[Params] | None:
    """URLs that the user must open, from a legacy error that requires it; None for any other error."""
    if error.get("code") != URL_ELICITATION_REQUIRED:
        return None
    data = error.get("data")
    wanted = data.get("elicitations") if isinstance(data, dict) else None
    if not isinstance(wanted, list):
        return []
    return [
        modern_ask(methods.ELICITATION_CREATE, {"mode": "url", **item})["params"] for item in wanted if _is_url(item)
    ]


def _is_url(item: object) -> bool:
    return isinstance(item, dict) and isinstance(item.get("url"), str)


def initialized(discovered: Mapping[str, Any], version: str) -> Result:
    """Result of `initialize`, made from a modern server's DiscoverResult."""
    meta = discovered.get("_meta")
    info = meta.get(eras.META_SERVER_INFO) if isinstance(meta, dict) else None
    result: Result = {
        "protocolVersion": version,
        "capabilities": visible_capabilities(discovered),
        "serverInfo": info if isinstance(info, dict) else {"name": "unknown", "version": "0"},
    }
    if isinstance(discovered.get("instructions"), str):
        result["instructions"] = discovered["instructions"]
    return result


def legacy_result(method: str, result: object) -> Result:
    """Result of a modern server without the members that only modern results have."""
    kept = {key: value for key, value in result.items() if key not in MODERN_ONLY} if isinstance(result, dict) else {}
    meta = kept.get("_meta")
    if isinstance(meta, dict) and eras.META_SERVER_INFO in meta:
        kept["_meta"] = {key: value for key, value in meta.items() if key != eras.META_SERVER_INFO}
        if not kept["_meta"]:
            del kept["_meta"]
    if method == methods.TOOLS_LIST and isinstance(kept.get("tools"), list):
        kept["tools"] = [_with_object_schema(tool) for tool in kept["tools"]]
    if "structuredContent" in kept and not isinstance(kept["structuredContent"], dict):
        kept["structuredContent"] = {"result": kept["structuredContent"]}
    return kept


def _with_object_schema(tool: object) -> object:
    """Before 2026-07-28 structured results are objects: any other value is wrapped in one, under `result`."""
    schema = tool.get("outputSchema") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or schema is None or (isinstance(schema, dict) and schema.get("type") == "object"):
        return tool
    return {**tool, "outputSchema": {"type": "object", "properties": {"result": schema}, "required": ["result"]}}


def legacy_error(method: str, error: Mapping[str, Any]) -> dict[str, Any]:
    data = error.get("data")
    is_missing = error.get("code") == jsonrpc.INVALID_PARAMS and isinstance(data, dict) and "uri" in data
    if method == methods.RESOURCES_READ and is_missing:
        return {**error, "code": jsonrpc.RESOURCE_NOT_FOUND}
    return dict(error) if isinstance(error.get("code"), int) else {**error, "code": jsonrpc.INTERNAL_ERROR}


# -- questions of a server to its client -------------------------------------------------------------------------------


def modern_ask(method: str, params: object) -> dict[str, Any]:
    """A server's request as an entry of `inputRequests`, without members of pushed requests: tokens, ids, tasks."""
    kept = dict(params) if isinstance(params, dict) else {}
    kept.pop("task", None)
    meta = kept.pop("_meta", None)
    if isinstance(meta, dict) and (rest := {key: value for key, value in meta.items() if key != "progressToken"}):
        kept["_meta"] = rest
    if method == methods.ELICITATION_CREATE:
        kept.pop("elicitationId", None)
        kept.setdefault("mode", "form")
    return {"method": method, "params": kept}


def legacy_ask(method: str, params: object) -> Params | None:
    """Params of a legacy server's request, made from an entry of `inputRequests`."""
    if not isinstance(params, dict):
        return None
    asked = dict(params)
    if method == methods.ELICITATION_CREATE:
        if asked.get("mode") == "url":
            # Required by the schema, although no completion notification will follow.
            asked.setdefault("elicitationId", secrets.token_hex(8))
        else:
            asked.pop("mode", None)  # the first revision with elicitation had only forms, and no `mode`
    return asked


def missing_capability(capabilities: Mapping[str, Any], method: str, params: object) -> dict[str, Any] | None:
    """The capability that a client lacks for this question; None if it may be asked."""
    asked = params if isinstance(params, dict) else {}
    if method == methods.ROOTS_LIST:
        return None if isinstance(capabilities.get("roots"), dict) else {"roots": {}}
    if method == methods.SAMPLING_CREATE_MESSAGE:
        sampling = capabilities.get("sampling")
        if not isinstance(sampling, dict):
            return {"sampling": {}}
        needs_tools = "tools" in asked or "toolChoice" in asked
        return {"sampling": {"tools": {}}} if needs_tools and not isinstance(sampling.get("tools"), dict) else None
    elicitation = capabilities.get("elicitation")
    mode = "url" if asked.get("mode") == "url" else "form"
    if not isinstance(elicitation, dict):
        return {"elicitation": {mode: {}}}
    # The first revision with elicitation had only forms, and an empty object still means forms.
    is_able = isinstance(elicitation.get(mode), dict) or (mode == "form" and "url" not in elicitation)
    return None if is_able else {"elicitation": {mode: {}}}


def fits(method: str, params: object, answer: Mapping[str, Any]) -> bool:
    """Could this be the answer to that question?"""
    if method == methods.ROOTS_LIST:
        return isinstance(answer.get("roots"), list)
    if method == methods.SAMPLING_CREATE_MESSAGE:
        return "role" in answer and "content" in answer
    content = answer.get("content")
    if answer.get("action") != "accept" or not isinstance(content, dict):
        return False
    schema = params.get("requestedSchema") if isinstance(params, dict) else None
    fields = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required", []) if isinstance(schema, dict) else []
    if not isinstance(fields, dict) or not isinstance(required, list):
        return False
    return bool(content) and set(required) <= content.keys() <= fields.keys()


# -- subscriptions -----------------------------------------------------------------------------------------------------


def honoured(wanted: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a `subscriptions/listen` filter that this server supports."""
    capabilities = visible_capabilities(about)

    def can(name: str, feature: str) -> bool:
        capability = capabilities.get(name)
        return isinstance(capability, dict) and capability.get(feature) is True

    kept: dict[str, Any] = {}
    for key, name, _method in LIST_CHANGES:
        if wanted.get(key) is True and can(name, "listChanged"):
            kept[key] = True
    uris = wanted.get("resourceSubscriptions")
    if isinstance(uris, list) and uris and can("resources", "subscribe"):
        kept["resourceSubscriptions"] = [uri for uri in uris if isinstance(uri, str)]
    return kept


def is_wanted(message: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
    """Does this notification belong on a listen stream with that filter?"""
    method, params = message.get("method"), message.get("params")
    if method == methods.RESOURCES_UPDATED:
        uri = params.get("uri") if isinstance(params, dict) else None
        return isinstance(uri, str) and covers(kept.get("resourceSubscriptions", ()), uri)
    return any(method == name and kept.get(key) is True for key, _capability, name in LIST_CHANGES)


def covers(subscriptions: Sequence[str], uri: str) -> bool:
    """A server may report a sub-resource of a subscription, so every URI below a subscribed one matches."""
    return any(uri == wanted or uri.startswith(wanted.rstrip("/") + "/") for wanted in subscriptions)


def tagged(message: Mapping[str, Any], id: jsonrpc.RequestId) -> dict[str, Any]:
    """A notification for a listen stream, with the id of the request that subscribed."""
    params = message.get("params")
    kept = dict(params) if isinstance(params, dict) else {}
    meta = kept.get("_meta")
    kept["_meta"] = {**(meta if isinstance(meta, dict) else {}), eras.META_SUBSCRIPTION: id}
    return jsonrpc.notification(str(message.get("method")), kept)


def untagged(message: Mapping[str, Any]) -> dict[str, Any]:
    """A notification of a listen stream without its subscription id."""
    params = message.get("params")
    kept = dict(params) if isinstance(params, dict) else {}
    meta = kept.pop("_meta", None)
    if isinstance(meta, dict) and (
        rest := {key: value for key, value in meta.items() if key != eras.META_SUBSCRIPTION}
    ):
        kept["_meta"] = rest
    return jsonrpc.notification(str(message.get("method")), kept or None)
