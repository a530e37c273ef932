"""Target of the bridge: a URL, or the name of a server of the local relay.

A name is resolved for each request: the relay may have restarted on another port. Plain HTTP to another computer needs
the user's permission, since every host in between could read the token. Connecting is done in `http`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit, urlunsplit

from tabrelay.http.addresses import is_loopback


class TargetError(ValueError):
    """The target can't be used; the text gives advice."""


@dataclass(frozen=True, slots=True)
class Address:
    url: str
    is_loopback: bool
    advice: str = ""
    """For the user, when nothing answers there."""
    is_relay: bool = False
    """The local relay: it must prove itself, whatever its token looks like."""

    @property
    def shown(self) -> str:
        """For messages and logs: without parts that may be secret."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class UrlTarget:
    """A server by its URL."""

    def __init__(self, url: str, allows_plain: bool = False, *, is_relay: bool = False) -> None:
        """`is_relay`: it is the URL of a relay of this user, which has to prove itself."""
        self._address = replace(parse_url(url, allows_plain), is_relay=is_relay)

    def __call__(self) -> Address:
        return self._address


class NameTarget:
    """A server of the local relay. `base` returns the relay's current URL, `command` starts this program."""

    def __init__(self, name: str, base: Callable[[], str], command: str = "tabrelay") -> None:
        from tabserver.wire.errors import ServerNameError
        from tabserver.wire.names import check_address, server_of

        self._server = server_of(name)
        try:
            self._name = check_address(name)
        except ServerNameError as problem:
            raise TargetError(f"{name!r} is neither a URL nor a server name. {problem}") from None
        self._base = base
        self._command = command

    def __call__(self) -> Address:
        found = relay_address(f"{self._base()}/{self._name}")
        return replace(found, advice=f"Is the relay running? Start it: {self._command} serve {self._server}")


def relay_address(url: str) -> Address:
    return replace(parse_url(url, allows_plain=True), is_relay=True)


def is_url(text: str) -> bool:
    return "://" in text


def parse_url(url: str, allows_plain: bool) -> Address:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError as problem:
        raise TargetError(f"{url!r} is not a URL: {problem}.") from None
    if parts.scheme not in ("http", "https") or not host:
        raise TargetError(f"{url!r} is not a URL that can be used: it must begin with https:// or http://")
    loopback = is_loopback(host)
    if parts.scheme == "http" and not loopback and not allows_plain:
        raise TargetError(
            f"http://{host} is another computer, and without TLS every host in between can read what is sent, "
            "the token included. Use https://, or add --allow-insecure-http if the network is yours."
        )
    return Address(urlunsplit(parts._replace(fragment="")), loopback)
