"""Apps (MCP Apps): a tool whose results a client shows in a page, and the page as a resource `ui://NAME`.

    @app(html=PAGE, live=["counter://value"])
    def counter() -> int:
        "Show the counter."
        return count

The client shows the page in a sandbox without access to this origin. So the page gets a script that calls tools through
its client, and follows the resources in `live` by a tool for apps only, `NAME_watch`: a call of it ends when the
resource has changed. Does not check what the page contains.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, TypeVar

from ..rpc import Refusal
from ..schema.shapes import SchemaError
from .context import Context, Outcome, request_of
from .resources import declare_resource
from .signature import name_of
from .toolbox import Toolbox, default_toolbox, tool
from .tools import ToolError, declare

F = TypeVar("F", bound=Callable[..., Any])
Page = str | Callable[[], str | Awaitable[str]]

APP_TYPE: Final = "text/html;profile=mcp-app"
# A call of a page waits this long for a change. Clients cancel requests after 60 s, by default.
WATCH_S: Final = 20.0
MAX_NAME: Final = 100
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_CSP: Final = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
_PERMISSIONS: Final = ("camera", "microphone", "geolocation", "clipboardWrite")
_COMMENTS: Final = r"(?:\s*<!--(?s:.*?)-->)*"
_MEMBERS: Final = r"""\b(?:[^>"']|"[^"]*"|'[^']*')*>"""
# Where a page begins, up to the tag of its head. Comments and attributes may contain anything.
_HEAD: Final = re.compile(
    rf"{_COMMENTS}(?:\s*<!doctype[^>]*>)?{_COMMENTS}(?:\s*<html{_MEMBERS})?{_COMMENTS}(?:\s*<head{_MEMBERS})?",
    re.IGNORECASE,
)
# Read when the module is loaded: a worker that starts from a memory snapshot has no files.
_VIEW: Final = (Path(__file__).parents[1] / "js" / "app_view.js").read_text(encoding="utf-8")


def app(
    *,
    html: Page,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    csp: Mapping[str, Sequence[str]] | None = None,
    permissions: Sequence[str] = (),
    domain: str | None = None,
    prefers_border: bool | None = None,
    live: Sequence[str] = (),
    meta: Mapping[str, Any] | None = None,
    toolbox: Toolbox | None = None,
    **options: Any,
) -> Callable[[F], F]:
    """Offer a function as a tool whose results clients with MCP Apps show in a page. Other options are those of `tool`.

    `html`: the page, or a function that returns it. `csp`: the origins that the page may use, by `connectDomains`,
    `resourceDomains`, `frameDomains` and `baseUriDomains`; without it, none. `permissions`: of "camera", "microphone",
    "geolocation" and "clipboardWrite". `live`: URIs of resources that the page follows with `tabrelay.connect()`.

    Other clients get what the function returns, as from any tool. If it returns None, they get a text that names the
    app and its resources.
    """
    ui = page_meta(csp, permissions, domain, prefers_border)

    def register(function: F) -> F:
        box = default_toolbox if toolbox is None else toolbox
        own = name_of(function, name, "app")
        if not _NAME.fullmatch(own):
            raise SchemaError(f"app name {own!r}: use 1 to {MAX_NAME} letters, digits, '_', '-' or '.'")
        uri = f"ui://{own}"
        about: dict[str, Any] = {"title": title, "description": description or inspect.getdoc(function)}
        page = _page_of(html, uri, own, f"{own}_watch" if live else None, ui)
        box.add(declare_resource(uri, page, name=own, mime_type=APP_TYPE, meta={"ui": ui} if ui else None, **about))
        shown = {**(meta or {}), "ui": {"resourceUri": uri, **((meta or {}).get("ui") or {})}}
        tool(name=own, **about, meta=shown, toolbox=box, **options)(_with_text(function, title or own, live))
        if live:
            box.add(_watch_tool(box, own, uri, live))
        return function

    return register


def page_meta(
    csp: Mapping[str, Sequence[str]] | None,
    permissions: Sequence[str],
    domain: str | None,
    prefers_border: bool | None,
) -> dict[str, Any]:
    """What the page needs, as `_meta.ui` of its resource. Raises SchemaError for names that MCP Apps does not have."""
    for key, origins in (csp or {}).items():
        if key not in _CSP or isinstance(origins, str):
            raise SchemaError(f"csp: expected lists of origins by {', '.join(_CSP)}, got {key}: {origins!r}")
    for permission in permissions:
        if permission not in _PERMISSIONS:
            raise SchemaError(f"permissions: expected some of {', '.join(_PERMISSIONS)}, got {permission!r}")
    given: dict[str, Any] = {
        "csp": {key: list(origins) for key, origins in csp.items()} if csp else None,
        "permissions": {permission: {} for permission in permissions} or None,
        "domain": domain,
        "prefersBorder": prefers_border,
    }
    return {key: value for key, value in given.items() if value is not None}


def _page_of(html: Page, uri: str, name: str, watch: str | None, ui: dict[str, Any]) -> Callable[[], Any]:
    async def page() -> dict[str, Any]:
        found = html if isinstance(html, str) else html()
        text = found if isinstance(found, str) else await found
        content: dict[str, Any] = {"uri": uri, "mimeType": APP_TYPE, "text": with_view(text, name, watch)}
        return {"contents": [content | ({"_meta": {"ui": ui}} if ui else {})]}

    return page


def with_view(html: str, name: str, watch: str | None) -> str:
    """The page with the script that connects it to its client, before all others. client/apps.js does the same."""
    watched = f' data-watch="{escape(watch)}"' if watch else ""
    script = f'<script data-app="{escape(name)}"{watched}>\n{_VIEW}</script>\n'
    found = _HEAD.match(html)
    at = found.end() if found is not None else 0
    return html[:at] + script + html[at:]


def _with_text(function: F, title: str, live: Sequence[str]) -> Callable[..., Any]:
    """The function, with a text in place of None."""
    state = f" Its state is in {' and '.join(live)}." if live else ""
    text = f"{title} is an app: clients with MCP Apps show it to the user.{state}"

    def replaced(value: Any) -> Any:
        return text if value is None else value

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*args: Any, **given: Any) -> Any:
            return replaced(await function(*args, **given))

        return later

    @functools.wraps(function)
    def now(*args: Any, **given: Any) -> Any:
        return replaced(function(*args, **given))

    return now


# -- what a page follows -----------------------------------------------------------------------------------------------


def _watch_tool(box: Toolbox, name: str, uri: str, live: Sequence[str]) -> Any:
    followed = frozenset(live)

    async def watch(ctx: Context, uri: str, version: str = "") -> dict[str, Any]:
        if uri not in followed:
            raise ToolError(f"This app does not follow {uri}.")
        with box.changes.next(uri) as change:
            seen = await _read(box, uri, ctx)
            if seen["version"] == version:
                await asyncio.wait([change], timeout=WATCH_S)
                seen = await _read(box, uri, ctx)
        return {"version": version} if seen["version"] == version else seen

    return declare(
        watch,
        name=f"{name}_watch",
        description=f"For the page of the app {name}: returns a resource when it differs from a version.",
        annotations={"readOnlyHint": True},
        meta={"ui": {"resourceUri": uri, "visibility": ["app"]}},
    )


async def _read(box: Toolbox, uri: str, ctx: Context) -> dict[str, Any]:
    """The contents of a resource and a text that identifies them."""
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    box.read(uri, request_of(ctx), outcome.set_result)
    found = await outcome
    if isinstance(found, Refusal):
        raise ToolError(found.message)
    if not isinstance(found, dict):
        raise ToolError(f"Reading {uri} asks the client something, which the page of an app can't answer.")
    contents = found["contents"]
    return {"version": _version_of(contents), "contents": contents}


def _version_of(contents: Any) -> str:
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:16]
