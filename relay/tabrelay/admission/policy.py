"""Access policy: exact lists of hosts and origins, and the scopes of principals.

Every check returns None (admitted) or a :class:`Refuse` with its HTTP status and a sentence that names the fix.
The lists are exact. There is deliberately no pattern, no suffix and no "starts with": each of these has been a hole in
some local server. This module reads no request, no file and no clock, and does not parse tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tabrelay.calls.principal import CALL, METRICS, SERVE, Principal
from tabrelay.http.addresses import (
    _NAME,
    DEFAULT_PORTS,
    LOOPBACK_NAMES,
    PolicyError,
    bracketed,
    is_wildcard,
    parse_origin,
    parse_public_url,
)
from tabrelay.payloads.printable_text import printable
from tabrelay.system.program import NAME


@dataclass(frozen=True, slots=True)
class Refuse:
    """A refusal as a value: the response, and what the reader can do about it."""

    status: int
    reason: str
    message: str
    headers: tuple[tuple[str, str], ...] = ()
    retry_after_ms: int | None = None  # trying again helps


@dataclass(frozen=True, slots=True)
class Policy:
    """The exact lists. ``origins`` holds every admitted origin, ``own_origins`` those of the relay's own pages.

    ``authorities``: hosts at which no other program can listen. The relay signs challenges for these only.
    ``app_origins``: of the app that `tabrelay dev` serves; its pages are paired without a question, and have no other
    right than those of any paired page.
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    own_origins: frozenset[str] = frozenset()
    authorities: frozenset[str] = frozenset()
    app_origins: frozenset[str] = frozenset()

    @classmethod
    def for_address(
        cls,
        host: str,
        port: int,
        allow_hosts: Sequence[str] = (),
        allow_origins: Sequence[str] = (),
        public_url: str = "",
        held: Sequence[str] | None = None,
    ) -> Policy:
        """The lists of a relay that listens on this address. `port` must be the real one, known after the bind.

        `public_url`: the origin of a proxy in front of the relay; its pages are the relay's own. `held`: names of
        this computer at which only this relay can listen on the port (see `loopback`); by default, that of `host`.
        """
        names = list(LOOPBACK_NAMES)
        if not is_wildcard(host) and bracketed(host) not in names:
            names.append(bracketed(host))
        hosts: set[str] = set()
        own: set[str] = set()
        for name in names:
            _admit(name, port, hosts, own, ("http",))
        named = [bracketed(host)] if held is None else held
        authorities = {host for name in named for host in _hosts(name, port)}
        computer = frozenset(hosts)
        if public_url:
            parts = urlsplit(parse_public_url(public_url))
            _admit(
                bracketed(parts.hostname or ""), parts.port or DEFAULT_PORTS[parts.scheme], hosts, own, (parts.scheme,)
            )
        for value in allow_hosts:
            name, given = _split_host(value)
            if given is None:
                # A bare name means this relay under that name: behind a proxy on port 80 or 443, or directly.
                _admit(name, 80, hosts, own, ("http",))
                _admit(name, 443, hosts, own, ("https",))
            _admit(name, given or port, hosts, own, ("http", "https"))
        origins = frozenset(own | {parse_origin(value) for value in allow_origins})
        # The user controls the names that the user has added.
        authorities |= hosts - computer
        return cls(frozenset(hosts), origins, frozenset(own), frozenset(authorities))

    def with_app(self, host: str, port: int, held: Sequence[str]) -> Policy:
        """This policy, and the names of the port on which the relay serves a developer's app. They are hosts of the
        relay; the origin is none of its own."""
        app = Policy.for_address(host, port, held=held)
        return replace(
            self,
            hosts=self.hosts | app.hosts,
            authorities=self.authorities | app.authorities,
            # defence: the app's origin is none of the relay's
            app_origins=app.own_origins,
        )

    def check_host(self, values: Sequence[str]) -> Refuse | None:
        """``values``: every Host header of the request. RFC 9112 §3.2: none or several is an error of the client."""
        # defence: a rebound Host
        # defence: two Host headers
        if len(values) == 1 and values[0].strip(" \t").lower() in self.hosts:
            return None
        if len(values) != 1:
            return Refuse(421, "forbidden", f"A request needs exactly one Host header; this one has {len(values)}.")
        name = printable(values[0])
        return Refuse(
            421,
            "forbidden",
            f'"{name}" is not a name of this relay. If you reach it under that name on purpose, '
            f"start it with --allow-host {name}",
        )

    def check_origin(self, origin: str | None) -> Refuse | None:
        """Programs send no Origin and are admitted here (their token is checked next); browsers always send one."""
        # defence: a foreign Origin
        if origin is None or origin in self.origins:
            return None
        if origin == "null":
            return Refuse(
                403, "forbidden", 'Pages with the opaque origin "null" (files, sandboxes) are never admitted.'
            )
        name = printable(origin)
        return Refuse(
            403,
            "forbidden",
            f"Pages of {name} may not use this relay. If you trust them, pair them (connect() asks by itself), "
            f"or start it with --allow-origin {name}",
        )

    def is_own_origin(self, origin: str | None) -> bool:
        return origin is not None and origin in self.own_origins


def allows(principal: Principal, scope: str | None, server: str | None) -> Refuse | None:
    """None if the principal has this scope (None: any but only ``metrics``) and this server; else the refusal."""
    if scope not in principal.scopes if scope is not None else principal.scopes == {METRICS}:
        has = ", ".join(sorted(principal.scopes)) or "nothing"
        return Refuse(
            403,
            "forbidden",
            f'This token may not do that: it is for "{has}", and "{scope or CALL}" is needed.',
            (("WWW-Authenticate", f'Bearer realm="tabrelay", error="insufficient_scope", scope="{scope or CALL}"'),),
        )
    if server is not None and not principal.may_see(server):
        names = ", ".join(f'"{name}"' for name in sorted(principal.servers or ())) or "no server"
        return Refuse(403, "forbidden", f"This token is for {names} only.")
    return None


def unauthorized(scope: str | None, was_given: bool, command: str = NAME) -> Refuse:
    """The 401 of a missing or unknown token. RFC 6750 §3.1: no error code when no token was sent at all. `command`:
    what starts this program where the reader is."""
    fix = f"Pair this page again: {command} pair" if scope == SERVE else f"The command `{command} token` prints it."
    problem = "This token is not known to the relay (any more)." if was_given else "This needs a token."
    error = ', error="invalid_token"' if was_given else ""
    needed = f', scope="{scope}"' if scope else ""
    return Refuse(
        401, "unauthorized", f"{problem} {fix}", (("WWW-Authenticate", f'Bearer realm="tabrelay"{error}{needed}'),)
    )


def rate_limited(wait_s: float) -> Refuse:
    """RFC 6585 §4: the 429 of a principal that sends too many requests."""
    seconds = max(1, math.ceil(wait_s))
    return Refuse(
        429,
        "rate_limited",
        f"Too many requests with this token. Try again in {seconds} s.",
        (("Retry-After", str(seconds)),),
        retry_after_ms=math.ceil(wait_s * 1000),
    )


def _split_host(value: str) -> tuple[str, int | None]:
    match = _NAME.fullmatch(value.strip().lower())
    if match is None:
        raise PolicyError(
            f'--allow-host "{printable(value)}": write it as host or host:port, without scheme or wildcard.'
        )
    port = match["port"]
    return match["name"], int(port) if port else None


def _admit(name: str, port: int, hosts: set[str], origins: set[str], schemes: Sequence[str]) -> None:
    hosts |= _hosts(name, port)
    for scheme in schemes:
        origins.add(f"{scheme}://{name}" if DEFAULT_PORTS[scheme] == port else f"{scheme}://{name}:{port}")


def _hosts(name: str, port: int) -> set[str]:
    """The values of a Host header for this name and port."""
    return {f"{name}:{port}", name} if port in DEFAULT_PORTS.values() else {f"{name}:{port}"}
