"""Interface between the MCP server and the tools, resources and prompts that it offers.

A Protocol only; the hub of the tabs implements it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..handlers.context import Cancel
from .call import RunningCall


class ToolCatalogue(Protocol):
    """Lists what is offered and runs it. A method that starts a handler may finish the call before it returns."""

    def tools(self) -> list[dict[str, Any]]: ...
    def resources(self) -> list[dict[str, Any]]: ...
    def templates(self) -> list[dict[str, Any]]: ...
    def prompts(self) -> list[dict[str, Any]]: ...
    def has_resource(self, uri: str) -> bool: ...
    def task_support(self, name: str) -> str | None:
        """May calls of the tool run as tasks: "optional", "required", or None."""

    def call(self, name: str, arguments: dict[str, Any], call: RunningCall) -> Cancel:
        """Raises UnknownTool or InvalidArguments."""

    def read(self, uri: str, call: RunningCall) -> Cancel:
        """Raises ResourceNotFound."""

    def get_prompt(self, name: str, arguments: Mapping[str, str], call: RunningCall) -> Cancel:
        """Raises UnknownPrompt, or a Refusal for arguments that do not fit."""

    def complete_prompt(
        self, name: str, argument: str, typed: str, others: Mapping[str, str], call: RunningCall
    ) -> Cancel:
        """Raises UnknownPrompt, or a Refusal for an argument that it does not have."""

    def complete_resource(
        self, uri: str, argument: str, typed: str, others: Mapping[str, str], call: RunningCall
    ) -> Cancel:
        """Raises ResourceNotFound, or a Refusal for an argument that it does not have."""
