"""Startup message of the relay: its URLs, and how to connect a client, ready to copy.

The token is shown on a terminal only; in a pipe or a log file, the command that prints it is shown instead. Pure text
from plain values; printing is done in `serve`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tabrelay.cli.colours import PLAIN, Colours
from tabrelay.http.addresses import is_loopback


@dataclass(frozen=True, slots=True)
class Announcement:
    """``page_url`` holds a pairing code; ``servers`` are the declared names, the first one is the example."""

    base_url: str
    page_url: str
    servers: tuple[str, ...]
    token: str
    needs_token: bool = True
    command: str = "tabrelay"
    flags: str = ""  # flags with which other commands find this relay's state

    def mcp_url(self, server: str | None = None) -> str:
        name = server or (self.servers[0] if self.servers else "{server}")
        return f"{self.base_url}/{name}"

    def json_line(self) -> str:
        """One line for scripts; ``mcp_url`` is a template if no server was declared."""
        return json.dumps(
            {
                "url": self.page_url,
                "mcp_url": self.mcp_url(),
                "token": self.token,
                "base_url": self.base_url,
                "servers": {name: self.mcp_url(name) for name in self.servers},
            }
        )

    def text(self, is_terminal: bool, colour: Colours = PLAIN) -> str:
        server = self.servers[0] if self.servers else "NAME"
        url = self.mcp_url(server)
        bold = functools.partial(colour, "bold")
        secret = self.token if is_terminal else f"$({self.command} token{self.flags})"
        header = f' --header "Authorization: Bearer {secret}"' if self.needs_token else ""
        others = [f"           {self.mcp_url(name)}" for name in self.servers[1:]]
        note = [] if self.servers else ["           (NAME: the server name that your page connects with)"]
        shown = self.token if is_terminal else f"<output of: {self.command} token{self.flags}>"
        client = entry(url, shown if self.needs_token else None)
        lines = [
            bold("Tabrelay is ready."),
            "",
            f"  Page     {bold(self.page_url)}",
            f"           (the code in it works once, within ten minutes; for another: {self.command} pair{self.flags})",
            f"  MCP URL  {bold(url)}",
            *others,
            *note,
            "",
            "Connect a client:",
            "",
            "  Claude Code",
            f"    claude mcp add --transport http {server} {url}{header}",
            "  Cursor (.cursor/mcp.json)",
            f"    {json.dumps({'mcpServers': {server: client}})}",
            "  VS Code (.vscode/mcp.json)",
            f"    {json.dumps({'servers': {server: {'type': 'http', **client}}})}",
            "",
            "Ctrl+C stops.",
        ]
        return "\n".join(lines)


def question(
    origin: str, server: str, code: str, others: Sequence[str] = (), *, command: str = "tabrelay", flags: str = ""
) -> str:
    """The message for a page of another origin that requests pairing. All its values were validated before."""
    plain = " (not encrypted)" if origin.startswith("http://") and not _is_here(origin) else ""
    also = [f'  "{server}" is offered by {", ".join(others)} too.'] if others else []
    return "\n".join(
        [
            f'{origin}{plain} wants to offer tools as "{server}" — code {code}',
            *also,
            f"  Does the page show the same code? Then approve it:  {command} pairs approve {code}{flags}",
            f"  Otherwise:                                          {command} pairs refuse {code}{flags}",
        ]
    )


def _is_here(origin: str) -> bool:
    return is_loopback(urlsplit(origin).hostname or "")


def entry(url: str, token: str | None) -> dict[str, Any]:
    return {"url": url, "headers": {"Authorization": f"Bearer {token}"}} if token else {"url": url}
