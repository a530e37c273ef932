"""Description of the server by the code that offers something: instructions, title, version, icons, website.

It is a member of the toolbox; the options of `connect` in a tab take precedence, which `tabs.hub` decides.
"""

from __future__ import annotations

import warnings
from typing import Any

from .identity import ServerIdentity, too_long
from .toolbox import Toolbox, default_toolbox


def describe_server(
    *,
    instructions: str | None = None,
    title: str | None = None,
    version: str | None = None,
    icons: list[dict[str, Any]] | None = None,
    website_url: str | None = None,
    toolbox: Toolbox | None = None,
) -> None:
    """Describe the server to clients: instructions for the model, title, version, icons, website.

    The options of `connect` in a tab take precedence. Raises ValueError for values that MCP does not allow.
    """
    given = {"instructions": instructions, "title": title, "version": version, "icons": icons}
    identity = ServerIdentity.read({**given, "websiteUrl": website_url})
    if (warning := too_long(instructions)) is not None:
        warnings.warn(warning, stacklevel=2)
    (default_toolbox if toolbox is None else toolbox).describe(identity)
