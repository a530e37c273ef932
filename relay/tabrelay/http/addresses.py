"""Hosts, origins and URLs: loopback and wildcard tests, and parsers for the flags that contain them.

Only exact hosts are accepted, no wildcards. Resolves no name and opens no socket.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from tabrelay.payloads.printable_text import printable

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_NAME = re.compile(rf"(?P<name>\[[0-9a-f:.]+\]|{_LABEL}(?:\.{_LABEL})*)(?::(?P<port>\d{{1,5}}))?")
_LOOPBACK_ORIGIN = re.compile(
    rf"(?P<scheme>https?)://(?P<name>{'|'.join(map(re.escape, LOOPBACK_NAMES))})(?P<port>(:[0-9]{{1,5}})?)"
)


class PolicyError(ValueError):
    """An --allow-host or --allow-origin value that can't be used; the text says why."""


def is_loopback(host: str) -> bool:
    """Is this bind address reachable only from this computer?"""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Does this bind address mean every interface?"""
    try:
        return host == "" or ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def loopback_siblings(origin: str) -> frozenset[str]:
    """The same scheme and port under the other names of this computer. Empty for an origin of another computer.

    `origin` is in the form that browsers send (`parse_origin`). Exactly three names: an address such as 127.0.0.2 may
    belong to another program.
    """
    # defence: an approval covers loopback names of the same scheme and port only
    found = _LOOPBACK_ORIGIN.fullmatch(origin)
    if found is None:
        return frozenset()
    return frozenset(f"{found['scheme']}://{name}{found['port']}" for name in LOOPBACK_NAMES if name != found["name"])


def bracketed(host: str) -> str:
    """A host in the form of a URL: IPv6 addresses in brackets."""
    bare = host.strip("[]").lower()
    return f"[{bare}]" if ":" in bare else bare


def parse_origin(value: str) -> str:
    """The serialised origin a browser would send for ``value``: lower case, no default port, no path."""
    try:
        parts = urlsplit(value.strip())
        port = parts.port
    except ValueError:
        raise PolicyError(f'--allow-origin "{printable(value)}": its host or port is not one.') from None
    if not parts.scheme or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise PolicyError(
            f'--allow-origin "{printable(value)}": write it as scheme://host:port, e.g. https://app.example'
        )
    name = bracketed(parts.hostname)
    if parts.username is not None or not _NAME.fullmatch(name):
        raise PolicyError(f'--allow-origin "{printable(value)}": only exact hosts are possible, no wildcards.')
    suffix = "" if port is None or port == DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    return f"{parts.scheme}://{name}{suffix}"


def parse_public_url(value: str) -> str:
    """The address of a relay behind a proxy: an origin, which must be https unless it is on this computer."""
    wrong = f'--public-url "{printable(value)}"'
    try:
        origin = parse_origin(value)
    except PolicyError as problem:
        why = str(problem).partition(": ")[2]
        raise PolicyError(f"{wrong}: {why}") from None
    parts = urlsplit(origin)
    if parts.scheme not in DEFAULT_PORTS:
        raise PolicyError(f"{wrong}: it must begin with https://")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise PolicyError(f"{wrong}: without encryption, others on the network can read the tokens. Use https://")
    return origin
