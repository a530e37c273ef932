"""Methods that list what is offered: tools, resources, templates, prompts, skills, and the directories of skills.

A list is that of this moment, in pages. Each client gets the members that its version and its extensions define: tools
for the pages of apps only go to clients that show apps, and the entries of skills to `skills/list`. Runs no handler.
"""

from __future__ import annotations

from typing import Any, Final

from ..handlers.context import Result
from ..rpc import Refusal, dump
from ..wire import extensions, methods
from ..wire.control_messages import RELAY
from ..wire.eras import Era
from ..wire.frames import Caller
from ..wire.jsonrpc import INVALID_PARAMS, RequestId, show
from .catalogue import ToolCatalogue
from .invocations import UNCACHED
from .paging import page
from .sessions import CallerSession, Outbox
from .task_forms import tools_for

Params = dict[str, Any]
Item = dict[str, Any]

DIRECTORY: Final = "inode/directory"
MANIFEST: Final = "SKILL.md"


class ListMethods:
    """Answers list requests from the catalogue."""

    def __init__(self, catalogue: ToolCatalogue, outbox: Outbox) -> None:
        self._catalogue, self._outbox = catalogue, outbox
        # The last list of tools, and its first page as a modern result, for clients with apps and for those without.
        self._listed_tools: tuple[list[Item], dict[bool, str]] = ([], {})

    def tools(self, session: CallerSession, id: RequestId, params: Params) -> Result | None:
        tools, has_apps = self._catalogue.tools(), extensions.gets_app_tools(session.caller)
        if session.era is not Era.MODERN or params.get("cursor") is not None:
            return _listed(session, "tools", _visible(tools, session.caller, has_apps), params)
        # The catalogue returns the same list until something changes, and most clients read the first page.
        listed, texts = self._listed_tools
        if tools is not listed:
            texts = {}
            self._listed_tools = tools, texts
        text = texts.get(has_apps)
        if text is None:
            text = dump(_listed(session, "tools", _visible(tools, session.caller, has_apps), params))
            texts[has_apps] = text
        self._outbox.answer_text(session, id, text)
        return None

    def resources(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        resources = self._catalogue.resources()
        # The relay's cache has the entries, so that it can list skills while no browser is connected.
        shown = resources if session.caller.principal == RELAY else extensions.without_skill_entries(resources)
        return _listed(session, "resources", shown, params)

    def templates(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        return _listed(session, "resourceTemplates", self._catalogue.templates(), params)

    def prompts(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        return _listed(session, "prompts", self._catalogue.prompts(), params)

    # -- skills -------------------------------------------------------------------------------------------------------

    def skills(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        return _listed(session, "skills", extensions.skills_of(self._catalogue.resources()), params)

    def skill(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        uri = read_uri(params)
        for entry in extensions.skills_of(self._catalogue.resources()):
            if entry["uri"] == uri:
                return {"skill": entry} | _cache_hints(session)
        raise Refusal(INVALID_PARAMS, f"Skill not found: {uri}. skills/list returns the skills.", {"uri": uri})

    def directory(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        uri = read_uri(params)
        children = _children(uri, self._catalogue.resources())
        if not children:
            raise Refusal(INVALID_PARAMS, f"Not a directory of a skill: {uri}", {"uri": uri})
        return _listed(session, "resources", children, params)


def _visible(tools: list[Item], caller: Caller, has_apps: bool) -> list[Item]:
    return tools_for(tools if has_apps else extensions.without_app_tools(tools), caller)


def _children(directory: str, resources: list[Item]) -> list[Item]:
    """The files and directories directly in a directory of a skill, by name."""
    found: dict[str, Item] = {}
    prefix = f"{directory}/"
    for resource in resources:
        entry = extensions.skill_of(resource)
        root = entry["uri"].removesuffix(MANIFEST) if entry is not None else ""
        if entry is None or not prefix.startswith(root):
            continue
        for file in entry["resources"]:
            if not file["uri"].startswith(prefix):
                continue
            name, _, deeper = file["uri"][len(prefix) :].partition("/")
            uri = prefix + name
            if deeper:
                found[uri] = {"uri": uri, "name": name, "mimeType": DIRECTORY}
            elif uri == entry["uri"]:
                found[uri] = extensions.without_skill_entries([resource])[0]
            else:
                found[uri] = {"uri": uri, "name": name, "size": file["size"]}
    return [found[uri] for uri in sorted(found)]


def _listed(session: CallerSession, key: str, items: list[Item], params: Params) -> Result:
    return page(key, items, params.get("cursor")) | _cache_hints(session)


def _cache_hints(session: CallerSession) -> Result:
    return UNCACHED if session.era is Era.MODERN else {}


def read_uri(params: Params) -> str:
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise Refusal(INVALID_PARAMS, f"params.uri: expected string, got {show(uri)}")
    return uri


def list_methods(lists: ListMethods) -> dict[str, Any]:
    """The same in both eras."""
    return {
        methods.TOOLS_LIST: lists.tools,
        methods.RESOURCES_LIST: lists.resources,
        methods.RESOURCES_TEMPLATES_LIST: lists.templates,
        methods.PROMPTS_LIST: lists.prompts,
        methods.SKILLS_LIST: lists.skills,
        methods.SKILLS_GET: lists.skill,
        methods.RESOURCES_DIRECTORY_READ: lists.directory,
    }
