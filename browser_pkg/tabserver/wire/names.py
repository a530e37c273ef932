"""Grammar of server names and of browser names: one segment of a URL path, safe in a shell, a log and a page.

A name is checked with the functions here wherever it enters. Which names exist is known to the relay's registry.
"""

from __future__ import annotations

import re
from typing import Final

from .errors import ServerNameError

MAX_NAME: Final = 64
MAX_INSTANCE: Final = 32
# Between a server and one of the browsers that offer it: `notes~laptop`.
INSTANCE_SEPARATOR: Final = "~"
_GRAMMAR: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}", re.ASCII)
_INSTANCE: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_INSTANCE - 1}}}", re.ASCII)

# Paths that browsers, crawlers and MCP clients request at the root of any host by themselves: a server of that name
# would respond to them. `authorize`, `token`, `register`: 2025-03-26 clients without metadata look for OAuth there.
RESERVED: Final = frozenset(
    {
        "apple-touch-icon.png",
        "apple-touch-icon-precomposed.png",
        "authorize",
        "browserconfig.xml",
        "favicon.ico",
        "favicon.svg",
        "index.html",
        "manifest.json",
        "manifest.webmanifest",
        "messages",
        "register",
        "robots.txt",
        "service-worker.js",
        "sitemap.xml",
        "sse",
        "sw.js",
        "token",
    }
)


def check_server_name(name: str) -> str:
    """Return `name` if it is a valid server name; else raise ServerNameError with the reason."""
    shown = repr(name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…")  # escapes what is not printable
    if not name:
        raise ServerNameError(
            "A server name can't be empty. Use letters, digits, '-', '_' and '.', such as: notes"  # style: ok, A to Z
        )
    if name.startswith("-"):
        raise ServerNameError(f"Server name {shown} is reserved: names that begin with '-' are the relay's own routes.")
    if name.startswith("."):
        raise ServerNameError(f"Server name {shown} is reserved: names that begin with '.' belong to the web.")
    if name.lower() in RESERVED:
        raise ServerNameError(f"Server name {shown} is reserved: browsers or MCP clients request it by themselves.")
    if INSTANCE_SEPARATOR in name:
        raise ServerNameError(
            f"Server name {shown} is reserved: '{INSTANCE_SEPARATOR}' separates a server from one of its browsers."
        )
    if len(name) > MAX_NAME:
        raise ServerNameError(f"Server name {shown} is too long: {len(name)} characters, at most {MAX_NAME}.")
    if not _GRAMMAR.fullmatch(name):
        raise ServerNameError(
            f"Server name {shown} is not allowed: it must begin with a letter or digit and have only "
            "letters, digits, '-', '_' and '.'."  # style: ok, A to Z
        )
    return name


def check_instance(instance: str) -> str:
    """Return `instance` if it is a valid name for one of several browsers of a server."""
    if not _INSTANCE.fullmatch(instance):
        raise ServerNameError(
            f"{instance[:MAX_INSTANCE]!a} can't name a browser: it must begin with a letter or digit and have at "
            f"most {MAX_INSTANCE} letters, digits, '-', '_' and '.'."  # style: ok, A to Z
        )
    return instance


def check_address(name: str) -> str:
    """Return `name` if it is a valid server, or browser of a server: `notes`, `notes~laptop`."""
    server, of, instance = name.partition(INSTANCE_SEPARATOR)
    check_server_name(server)
    if of:
        check_instance(instance)
    return name


def server_of(address: str) -> str:
    """The server in an address."""
    return address.partition(INSTANCE_SEPARATOR)[0]
