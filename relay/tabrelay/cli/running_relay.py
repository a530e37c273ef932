"""Access to a running relay for other commands: its token, and authenticated requests.

A relay proves itself before it gets a request. Which relay it is, of several, is chosen in `relay_choice`. This module
does not start or stop relays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabrelay.cli import flags
from tabrelay.cli.output import FAILED, UNREACHABLE, ExitWith
from tabrelay.system.program import command as command
from tabrelay.system.program import program as program

if TYPE_CHECKING:
    from http.client import HTTPConnection

TIMEOUT_S = 10.0


class OtherProgram(ExitWith):
    """Another program answers at the relay's address."""


class NoRelay(ExitWith):
    """Nothing answers at the relay's address."""


def request(
    args: argparse.Namespace, path: str, method: str = "GET", body: Any = None, *, server: str | None = None
) -> Any:
    """The JSON answer of the running relay that has `server`, or of the only one."""
    from tabrelay.cli import relay_choice

    settings = flags.settings(args)
    return request_at(relay_choice.base(args, settings, server), settings.home, path, method, body)


def request_at(base: str, home: Path, path: str, method: str = "GET", body: Any = None) -> Any:
    """The JSON answer of the relay at `base`, requested with the token of the state directory.

    The relay proves itself first, on the same connection: another program that has the port gets nothing.
    """
    import http.client

    from tabrelay.calls.proof import Unproven, key_of

    data = None if body is None else json.dumps(body).encode()
    try:
        connection, authorization = proven(base, key_of(token(home)))
        headers = {"Authorization": authorization, "Content-Type": "application/json", "Connection": "close"}
        with contextlib.closing(connection):
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            if 200 <= answer.status < 300:
                return json.load(answer)
            if answer.status in (404, 409) and (problem := _problem(answer)):
                raise ExitWith(problem[0], FAILED, help=problem[1])
            raise ExitWith(
                f"The relay at {base} refused ({answer.status}): was it started with another --home?",
                FAILED,
                help="TR304",
            )
    except Unproven as problem:
        raise OtherProgram(str(problem), FAILED, help="TR305") from None
    except (OSError, ValueError, http.client.HTTPException):
        raise no_relay(base) from None


def no_relay(base: str, server: str = "demo") -> NoRelay:
    """`server`: what the relay is to be started for."""
    if server != "demo":
        return NoRelay(f"No relay answers at {base}. Start one: {command()} serve {server}", UNREACHABLE)
    return NoRelay(f"No relay answers at {base}. Start one: {command()} demo", UNREACHABLE)


def proven(base: str, key: bytes, timeout_s: float | None = None) -> tuple[HTTPConnection, str]:
    """A connection on which the relay at `base` has proved itself, and the Authorization header for it.

    Raises Unproven or OSError. No proxy is used: it would have to be trusted."""
    import http.client
    import socket
    import time
    from urllib.parse import urlsplit

    from tabrelay.calls.proof import ANSWER_S, Challenge, authority_of

    parts = urlsplit(base)
    host, port = parts.hostname or "", parts.port or 80
    challenge = Challenge(key, authority_of(host, port))
    reader, deadline = challenge.reader(), time.monotonic() + (timeout_s or ANSWER_S)
    sock = socket.create_connection((host, port), timeout_s or TIMEOUT_S)
    try:
        sock.sendall(challenge.request())
        answer = None
        while answer is None:
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            answer = reader.feed(sock.recv(4096))
        shown = challenge.verify(*answer).text()
    except BaseException:
        sock.close()
        raise
    sock.settimeout(TIMEOUT_S)
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    connection.sock, connection.auto_open = sock, 0  # never reconnect: only this connection is proved
    return connection, f"Bearer {shown}"


def _problem(answer: Any) -> tuple[str, str] | None:
    """The relay's error message and its code, if the answer has them."""
    try:
        body = json.load(answer)
        return str(body["message"]), str(body["help"])
    except (ValueError, KeyError, TypeError):
        return None


def token(home: Path) -> str:
    from tabrelay.admission.tokens import StateError, Tokens

    try:
        return Tokens(home).master()
    except StateError as problem:
        raise ExitWith(str(problem), help="TR315") from None


def base_url(host: str, port: int) -> str:
    """The URL to show: for a wildcard address, the loopback address."""
    from tabrelay.http.addresses import bracketed, is_wildcard

    name = ("[::1]" if ":" in host else "127.0.0.1") if is_wildcard(host) else bracketed(host)
    return f"http://{name}" if port == 80 else f"http://{name}:{port}"


def home_flag(settings: Any) -> str:
    """The --home flag for other commands, if this relay does not use the default state directory."""
    import shlex

    return "" if settings.home == type(settings).from_args({}).home else f" --home {shlex.quote(str(settings.home))}"
