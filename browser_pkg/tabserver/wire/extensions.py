"""Extensions of MCP that servers of browsers offer: Apps (`io.modelcontextprotocol/ui`) and Skills (SEP-2640).

Both are made of ordinary tools and resources, with members in their `_meta` that only clients with the extension read.
So the functions here decide what a client's list contains. Relay and worker use the same, because the relay answers
lists from its cache while no browser is connected. Tasks are not here: their forms differ in each era.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .control_messages import RELAY
from .eras import META_PREFIX
from .frames import Caller

APPS: Final = META_PREFIX + "ui"
SKILLS: Final = META_PREFIX + "skills"
# What servers declare.
EXTENSIONS: Final[dict[str, Any]] = {APPS: {}, SKILLS: {"directoryRead": True}}

# In the `_meta` of a tool: which app shows its results, and who may call it. Of an app's resource: what its page needs.
META_UI: Final = "ui"
# In the `_meta` of the resource of a SKILL.md: the skill's frontmatter and files. Clients get it by `skills/list` only.
META_SKILL: Final = "io.modelcontextprotocol.skills/entry"

Item = dict[str, Any]


def shows_apps(capabilities: Mapping[str, Any]) -> bool:
    """Does the client declare that it shows apps?"""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and isinstance(extensions.get(APPS), dict)


def gets_app_tools(caller: Caller) -> bool:
    """Does this caller's list contain the tools that only pages of apps may call? That of the relay does."""
    return caller.principal == RELAY or shows_apps(caller.capabilities)


def is_for_apps_only(tool: Mapping[str, Any]) -> bool:
    """May only the page of an app call this tool?"""
    meta = tool.get("_meta")
    ui = meta.get(META_UI) if isinstance(meta, dict) else None
    visibility = ui.get("visibility") if isinstance(ui, dict) else None
    return isinstance(visibility, list) and "model" not in visibility


def without_app_tools(tools: list[Item]) -> list[Item]:
    """The tools for a client that does not show apps: its model would get those that are for apps only."""
    return [tool for tool in tools if not is_for_apps_only(tool)] if any(map(is_for_apps_only, tools)) else tools


def skill_of(resource: Mapping[str, Any]) -> Item | None:
    """The entry of a skill, if the resource is a SKILL.md."""
    meta = resource.get("_meta")
    entry = meta.get(META_SKILL) if isinstance(meta, dict) else None
    return {"uri": resource.get("uri"), **entry} if isinstance(entry, dict) else None


def skills_of(resources: list[Item]) -> list[Item]:
    return [entry for entry in map(skill_of, resources) if entry is not None]


def without_skill_entries(resources: list[Item]) -> list[Item]:
    """The resources as clients list them: a skill's entry may be as long as all other resources together."""
    return [_without_entry(each) if skill_of(each) is not None else each for each in resources]


def _without_entry(resource: Item) -> Item:
    rest = {key: value for key, value in resource["_meta"].items() if key != META_SKILL}
    return {key: value for key, value in resource.items() if key != "_meta"} | ({"_meta": rest} if rest else {})
