"""Interface between the MCP server and the tools, resources and prompts that it offers.

A Protocol only; the hub of the tabs and a page's own toolbox implement it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..handlers.context import Cancel, Done, Request


class ToolCatalogue(Protocol):
    """Lists what is offered and runs it. A method that starts a handler may call `done` before it returns."""

    def tools(self) -> list[dict[str, Any]]: ...
    def resources(self) -> list[dict[str, Any]]: ...
    def templates(self) -> list[dict[str, Any]]: ...
    def prompts(self) -> list[dict[str, Any]]: ...
    def has_resource(self, uri: str) -> bool: ...
    def call(self, name: str, arguments: dict[str, Any], request: Request, done: Done) -> Cancel:
        """Raises UnknownTool or InvalidArguments."""

    def read(self, uri: str, request: Request, done: Done) -> Cancel:
        """Raises ResourceNotFound."""

    def get_prompt(self, name: str, arguments: Mapping[str, str], request: Request, done: Done) -> Cancel:
        """Raises UnknownPrompt, or a Refusal for arguments that do not fit."""

    def complete_prompt(
        self, name: str, argument: str, typed: str, others: Mapping[str, str], request: Request, done: Done
    ) -> Cancel:
        """Raises UnknownPrompt, or a Refusal for an argument that it does not have."""

    def complete_resource(
        self, uri: str, argument: str, typed: str, others: Mapping[str, str], request: Request, done: Done
    ) -> Cancel:
        """Raises ResourceNotFound, or a Refusal for an argument that it does not have."""
