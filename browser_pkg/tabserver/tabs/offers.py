"""Validation of what a page offers: tools, resources, resource templates and prompts.

Each check returns the item reduced to the members that MCP defines, or raises ValueError with a text for the page's
author. Pure: it stores nothing, and does not compare offers of different tabs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..handlers.skills import read_entry
from ..handlers.uri_templates import check_uri
from ..schema.size_caps import check_caps
from ..wire.extensions import META_SKILL

Item = dict[str, Any]

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
# May calls of a tool run as tasks? A tool without this can't.
TASK_SUPPORT: Final = ("optional", "required")
_SHOWN: Final = ("title", "description", "icons", "_meta")
_TOOL_FIELDS: Final = ("name", *_SHOWN, "inputSchema", "outputSchema", "annotations", "execution")
_RESOURCE_FIELDS: Final = ("name", *_SHOWN, "mimeType", "size", "annotations")
_ARGUMENT_FIELDS: Final = ("name", "title", "description", "required")
_TYPES: Final[Mapping[str, tuple[type, str]]] = {
    "title": (str, "a string"),
    "description": (str, "a string"),
    "mimeType": (str, "a string"),
    "size": (int, "a number of bytes"),
    "annotations": (dict, "an object"),
    "icons": (list, "an array"),
    "_meta": (dict, "an object"),
    "required": (bool, "a boolean"),
}


def check_tool(tool: Any) -> Item:
    """The tool with MCP's members only. Raises ValueError, as all checks do."""
    if not isinstance(tool, dict):
        raise ValueError("A tool is an object with a name, a description and an inputSchema.")
    if not _TOOL_NAME.fullmatch(str(tool.get("name", ""))):
        raise ValueError("A tool's name has 1 to 128 characters: A-Z, a-z, 0-9, '_', '-' and '.'.")
    checked = _reduce(tool, _TOOL_FIELDS)
    schema = checked.setdefault("inputSchema", {"type": "object"})
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError('Its inputSchema must be a JSON Schema with "type": "object".')
    if not isinstance(checked.get("outputSchema", {}), dict):
        raise ValueError("Its outputSchema must be a JSON Schema.")
    for name in ("inputSchema", "outputSchema"):
        _check_members(name, checked.get(name, {}))
    if (execution := checked.pop("execution", None)) is not None:
        if not isinstance(execution, dict) or execution.get("taskSupport") not in TASK_SUPPORT:
            raise ValueError('Its task must be "optional" or "required".')
        checked["execution"] = {"taskSupport": execution["taskSupport"]}
    return checked


def _check_members(name: str, schema: Item) -> None:
    """Clients that check the list of tools refuse all of it for one schema with other members."""
    required, properties = schema.get("required", []), schema.get("properties", {})
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        raise ValueError(f'The member "required" of its {name} must be a list of names, such as ["text"].')
    if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
        raise ValueError(f'The member "properties" of its {name} must be an object with a JSON Schema for each name.')


def check_resource(resource: Any) -> Item:
    return _check_resource(resource, "uri")


def check_template(template: Any) -> Item:
    return _check_resource(template, "uriTemplate")


def _check_resource(item: Any, key: str) -> Item:
    if not isinstance(item, dict) or not isinstance(item.get(key), str):
        raise ValueError(f"A resource is an object with a {key}.")
    has_variables = bool(check_uri(item[key]))
    if has_variables != (key == "uriTemplate"):
        raise ValueError(f"A {key} has {'no' if has_variables else 'at least one'} {{variable}} in it.")
    checked = {key: item[key]} | _reduce(item, _RESOURCE_FIELDS)
    if not isinstance(checked.setdefault("name", item[key]), str):
        raise ValueError("Its name must be a string.")
    if META_SKILL in (meta := checked.get("_meta", {})):
        # The page sends the text of the frontmatter: one parser is enough.
        checked["_meta"] = meta | {META_SKILL: read_entry(item[key], meta[META_SKILL])}
    return checked


def check_prompt(prompt: Any) -> Item:
    if not isinstance(prompt, dict) or not isinstance(prompt.get("name"), str) or not prompt["name"]:
        raise ValueError("A prompt is an object with a name.")
    checked = _reduce(prompt, ("name", *_SHOWN))
    arguments = prompt.get("arguments")
    if arguments is None:
        return checked
    if not isinstance(arguments, list) or not all(
        isinstance(argument, dict) and isinstance(argument.get("name"), str) for argument in arguments
    ):
        raise ValueError("Its arguments must be an array of objects with a name.")
    return checked | {"arguments": [_reduce(argument, _ARGUMENT_FIELDS) for argument in arguments]}


def _reduce(given: Item, fields: tuple[str, ...]) -> Item:
    kept = {key: given[key] for key in fields if given.get(key) is not None}
    for key, (kind, name) in _TYPES.items():
        if not isinstance(kept.get(key, kind()), kind):
            raise ValueError(f"Its {key} must be {name}.")
    check_caps(kept)
    return kept


CHECKS: Final[Mapping[str, Callable[[Any], Item]]] = {
    "tools": check_tool,
    "resources": check_resource,
    "templates": check_template,
    "prompts": check_prompt,
}
