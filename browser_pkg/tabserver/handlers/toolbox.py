"""Toolbox: the tools, resources and prompts of one worker or page, and the decorators that add to it.

    from tabserver import prompt, resource, tool

A decorator returns its function unchanged. Lists of several toolboxes are merged in `tabs.listing`.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeVar, overload

from ..schema.shapes import Schema
from .completion import Completer
from .context import Cancel, Done, Request
from .hints import Hints, Visibility, tool_meta
from .identity import ServerIdentity
from .prompts import Prompt, UnknownPrompt, declare_prompt
from .resource_changes import ResourceChanges
from .resources import ResourceHandler, ResourceNotFound, declare_resource
from .tools import Tool, UnknownTool, declare

F = TypeVar("F", bound=Callable[..., Any])
Offer = Tool | ResourceHandler | Prompt
Held = TypeVar("Held", Tool, ResourceHandler, Prompt)


class Toolbox:
    """A table of offers, and the listener to its changes."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}
        self._resources: dict[str, ResourceHandler] = {}
        self._prompts: dict[str, Prompt] = {}
        self.identity = ServerIdentity()
        self.changes = ResourceChanges()
        self.listen(lambda: None, lambda uri: None)

    def listen(self, changed: Callable[[], None], updated: Callable[[str], None]) -> None:
        """From now on call `changed` when an offer is added or removed, and `updated` with the URI of a changed
        resource. A toolbox has one listener: the worker or the page that offers it."""
        self._on_change, self._on_update = changed, updated

    def describe(self, identity: ServerIdentity) -> None:
        """Add to the description of the server."""
        self.identity = ServerIdentity.merged((identity, self.identity))
        self._on_change()

    def updated(self, uri: str) -> None:
        self.changes.notify(uri)
        self._on_update(uri)

    def add(self, item: Offer) -> None:
        """Add an offer. A function that is declared again (its module was reloaded) replaces the old one."""
        if isinstance(item, Tool):
            _put(self._tools, item.name, item, "tool")
        elif isinstance(item, Prompt):
            _put(self._prompts, item.name, item, "prompt")
        else:
            _put(self._resources, item.uri, item, "resource")
        self._on_change()

    def remove(self, name: str) -> None:
        """Remove a tool."""
        self._take(self._tools, name)

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or a template, by the URI it was declared with."""
        self._take(self._resources, uri)

    def remove_prompt(self, name: str) -> None:
        self._take(self._prompts, name)

    def _take(self, held: dict[str, Any], name: str) -> None:
        if held.pop(name, None) is not None:
            self._on_change()

    @contextmanager
    def replacing(self, is_old: Callable[[Offer], bool]) -> Iterator[None]:
        """Remove offers whose code is loaded again in the block. If it raises, all offers are as before."""
        before = self._tools, self._resources, self._prompts
        self._tools, self._resources, self._prompts = (
            _without(before[0], is_old),
            _without(before[1], is_old),
            _without(before[2], is_old),
        )
        try:
            yield
        except BaseException:
            # defence: a file with an error keeps the old tools
            self._tools, self._resources, self._prompts = before
            raise
        else:
            self._tools = _in_order_of(before[0], self._tools)
            self._resources = _in_order_of(before[1], self._resources)
            self._prompts = _in_order_of(before[2], self._prompts)
        finally:
            self._on_change()

    # -- what there is ------------------------------------------------------------------------------------------------

    def offers(self) -> list[Offer]:
        return [*self._tools.values(), *self._resources.values(), *self._prompts.values()]

    def tools(self) -> list[dict[str, Any]]:
        return [tool.description for tool in self._tools.values()]

    def resources(self) -> list[dict[str, Any]]:
        return [item.description for item in self._resources.values() if not item.is_template]

    def templates(self) -> list[dict[str, Any]]:
        return [item.description for item in self._resources.values() if item.is_template]

    def prompts(self) -> list[dict[str, Any]]:
        return [prompt.description for prompt in self._prompts.values()]

    def has_resource(self, uri: str) -> bool:
        return self._find(uri) is not None

    def _find(self, uri: str) -> tuple[ResourceHandler, dict[str, str]] | None:
        # A fixed URI comes before a template that matches it.
        for item in sorted(self._resources.values(), key=lambda item: item.is_template):
            if (arguments := item.match(uri)) is not None:
                return item, arguments
        return None

    # -- running it: `done` is called exactly once, for a plain function before the method returns --------------------

    def call(self, name: str, arguments: dict[str, Any], request: Request, done: Done) -> Cancel:
        """Raises UnknownTool or InvalidArguments."""
        tool = self._tools.get(name)
        if tool is None:
            raise UnknownTool(name)
        return tool.start(arguments, request, done)

    def omits_null(self, name: str) -> list[str]:
        """The arguments of a tool for which null means the same as leaving them out, though no schema allows null."""
        tool = self._tools.get(name)
        return [] if tool is None else [key for key, each in tool.signature.properties.items() if each.omits_null]

    def find_plain(self, name: str) -> Tool | None:
        """A synchronous tool without a Context."""
        tool = self._tools.get(name)
        return tool if tool is not None and tool.is_plain else None

    def read(self, uri: str, request: Request, done: Done) -> Cancel:
        """Raises ResourceNotFound."""
        found = self._find(uri)
        if found is None:
            raise ResourceNotFound(uri)
        return found[0].start(uri, found[1], request, done)

    def get_prompt(self, name: str, arguments: Mapping[str, str], request: Request, done: Done) -> Cancel:
        """Raises UnknownPrompt, or a Refusal for arguments that do not fit."""
        prompt = self._prompts.get(name)
        if prompt is None:
            raise UnknownPrompt(name)
        return prompt.start(arguments, request, done)

    def complete_prompt(
        self, name: str, argument: str, typed: str, others: Mapping[str, str], request: Request, done: Done
    ) -> Cancel:
        prompt = self._prompts.get(name)
        if prompt is None:
            raise UnknownPrompt(name)
        return prompt.completions.start(argument, typed, others, done)

    def complete_resource(
        self, uri: str, argument: str, typed: str, others: Mapping[str, str], request: Request, done: Done
    ) -> Cancel:
        """`uri` is that of a template. Raises ResourceNotFound."""
        item = self._resources.get(uri)
        if item is None:
            raise ResourceNotFound(uri)
        return item.completions.start(argument, typed, others, done)


def _without(held: dict[str, Held], is_old: Callable[[Offer], bool]) -> dict[str, Held]:
    return {key: item for key, item in held.items() if not is_old(item)}


def _in_order_of(before: dict[str, Held], now: dict[str, Held]) -> dict[str, Held]:
    """Items that were there before come first, in their order: a reload does not change the order of a list."""
    return {key: now[key] for key in [*(key for key in before if key in now), *now]}


def _put(held: dict[str, Any], name: str, item: Any, noun: str) -> None:
    old = held.get(name)
    if old is not None and _origin(old.function) != _origin(item.function):
        raise ValueError(
            f'{noun} "{name}" is already offered by {_origin(old.function)}; give one of them another name'
        )
    if old is not None and _is_second(old.function, item.function):
        advice = "Give one of them another name."
        warnings.warn(f'{noun} "{name}" replaces another one of this name in the same file. {advice}', stacklevel=4)
    held[name] = item


def _is_second(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Are these two functions of one file? A module that was loaded again has new globals."""
    old, new = inspect.unwrap(old), inspect.unwrap(new)
    has_same_globals = getattr(old, "__globals__", old) is getattr(new, "__globals__", new)
    return has_same_globals and getattr(old, "__code__", None) is not getattr(new, "__code__", None)


def _origin(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}"


default_toolbox: Final = Toolbox()


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    params: Mapping[str, Any] | None = None,
    input_schema: Schema | None = None,
    output_schema: Schema | None = None,
    icons: list[dict[str, Any]] | None = None,
    meta: dict[str, Any] | None = None,
    task: bool | Literal["optional", "required"] = False,
    hints: Hints | None = None,
    visibility: Sequence[Visibility] | None = None,
    toolbox: Toolbox | None = None,
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    params: Mapping[str, Any] | None = None,
    input_schema: Schema | None = None,
    output_schema: Schema | None = None,
    icons: list[dict[str, Any]] | None = None,
    meta: dict[str, Any] | None = None,
    task: bool | Literal["optional", "required"] = False,
    hints: Hints | None = None,
    visibility: Sequence[Visibility] | None = None,
    toolbox: Toolbox | None = None,
) -> F | Callable[[F], F]:
    """Offer a function as a tool. `input_schema` replaces the schema of the signature.

    `task`: a call may outlive its request: the client asks for its state, and gets the result when there is one. True
    is "optional": other clients wait. "required": other clients get an error.

    `hints`: how clients treat the tool. `visibility`: `["app"]` for a tool that the page of an app calls, and no model.

    `params` declares parameters for pages that also run in MicroPython, which keeps no annotations: for each one its
    type, `(type, default)`, a JSON Schema, or `Context`.
    """
    given = {
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    }
    annotations = {key: value for key, value in given.items() if value is not None}

    def register(function: F) -> F:
        declared = declare(
            function,
            name=name,
            title=title,
            description=description,
            annotations=annotations,
            params=params,
            input_schema=input_schema,
            output_schema=output_schema,
            icons=icons,
            meta=tool_meta(meta, hints, visibility),
            task=task,
        )
        (default_toolbox if toolbox is None else toolbox).add(declared)
        return function

    return register if function is None else register(function)


def resource(
    uri: str,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    annotations: dict[str, Any] | None = None,
    complete: Mapping[str, Completer] | None = None,
    icons: list[dict[str, Any]] | None = None,
    meta: dict[str, Any] | None = None,
    toolbox: Toolbox | None = None,
) -> Callable[[F], F]:
    """Offer the returned value of a function as a resource. With `{arguments}` in the URI it is a template."""

    def register(function: F) -> F:
        declared = declare_resource(
            uri,
            function,
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            size=size,
            annotations=annotations,
            complete=complete,
            icons=icons,
            meta=meta,
        )
        (default_toolbox if toolbox is None else toolbox).add(declared)
        return function

    return register


@overload
def prompt(function: F, /) -> F: ...
@overload
def prompt(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    params: Mapping[str, Any] | None = None,
    complete: Mapping[str, Completer] | None = None,
    icons: list[dict[str, Any]] | None = None,
    meta: dict[str, Any] | None = None,
    toolbox: Toolbox | None = None,
) -> Callable[[F], F]: ...
def prompt(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    params: Mapping[str, Any] | None = None,
    complete: Mapping[str, Completer] | None = None,
    icons: list[dict[str, Any]] | None = None,
    meta: dict[str, Any] | None = None,
    toolbox: Toolbox | None = None,
) -> F | Callable[[F], F]:
    """Offer a function as a prompt. `complete`: for an argument, its possible values, or a function that returns them.

    `params` is as for a tool.
    """

    def register(function: F) -> F:
        declared = declare_prompt(
            function,
            name=name,
            title=title,
            description=description,
            params=params,
            complete=complete,
            icons=icons,
            meta=meta,
        )
        (default_toolbox if toolbox is None else toolbox).add(declared)
        return function

    return register if function is None else register(function)


def resource_updated(uri: str, *, toolbox: Toolbox | None = None) -> None:
    """Notify all subscribers of a resource that it has changed."""
    (default_toolbox if toolbox is None else toolbox).updated(uri)
