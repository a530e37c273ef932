"""Access to the running relay for other commands: its address, its token, and authenticated requests.

A relay writes its URL and process id to `running.json` in the state directory. It proves itself before it gets a
request. This module also returns the command that starts this program again. It does not start or stop relays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabrelay.cli import flags
from tabrelay.cli.output import FAILED, ExitWith

if TYPE_CHECKING:
    from http.client import HTTPConnection

TIMEOUT_S = 10.0


class Impostor(ExitWith):
    """Another program answers at the relay's address."""


def request(args: argparse.Namespace, path: str, method: str = "GET", body: Any = None) -> Any:
    """The running relay's JSON answer at `path`, requested with the token of the state directory.

    The relay proves itself first, on the same connection: another program that has the port gets nothing.
    """
    import http.client

    from tabrelay.calls.proof import Unproven, key_of

    settings = flags.settings(args)
    was_given = args.host is not None or args.port is not None
    base = (None if was_given else address(settings.home)) or base_url(settings.host, settings.port)
    data = None if body is None else json.dumps(body).encode()
    try:
        connection, authorization = proven(base, key_of(token(settings.home)))
        headers = {"Authorization": authorization, "Content-Type": "application/json", "Connection": "close"}
        with contextlib.closing(connection):
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            if 200 <= answer.status < 300:
                return json.load(answer)
            if answer.status == 404 and (text := _message(answer)):
                raise ExitWith(text, FAILED)
            raise ExitWith(
                f"The relay at {base} refused ({answer.status}): was it started with another --home?", FAILED
            )
    except Unproven as problem:
        raise Impostor(str(problem), FAILED) from None
    except (OSError, ValueError, http.client.HTTPException):
        raise ExitWith(f"No relay answers at {base}. Start one: tabrelay demo", FAILED) from None


def proven(base: str, key: bytes) -> tuple[HTTPConnection, str]:
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
    reader, deadline = challenge.reader(), time.monotonic() + ANSWER_S
    sock = socket.create_connection((host, port), TIMEOUT_S)
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


def _message(answer: Any) -> str | None:
    """The relay's error message, if the answer has one."""
    try:
        return str(json.load(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return None


def token(home: Path) -> str:
    from tabrelay.admission.tokens import StateError, Tokens

    try:
        return Tokens(home).master()
    except StateError as problem:
        raise ExitWith(str(problem)) from None


def address_file(home: Path) -> Path:
    """The file with the URL and process id of the relay."""
    return home / "running.json"


def write_address(home: Path, base: str) -> None:
    address_file(home).write_text(json.dumps({"url": base, "pid": os.getpid()}), encoding="utf-8")


def address(home: Path) -> str | None:
    """The URL of the relay of this user that started last, if its process still exists."""
    try:
        written = json.loads(address_file(home).read_text(encoding="utf-8"))
        url, pid = str(written["url"]), int(written["pid"])
        if os.name == "posix":
            os.kill(pid, 0)
        return url
    except (OSError, ValueError, KeyError, TypeError):
        return None


def base_url(host: str, port: int) -> str:
    """The URL to show: for a wildcard address, the loopback address."""
    from tabrelay.http.addresses import bracketed, is_wildcard

    name = ("[::1]" if ":" in host else "127.0.0.1") if is_wildcard(host) else bracketed(host)
    return f"http://{name}" if port == 80 else f"http://{name}:{port}"


def program() -> tuple[str, ...]:
    """The full path of this installation's program, for processes with no PATH or another one."""
    beside = Path(sys.executable).with_name("tabrelay.exe" if sys.platform == "win32" else "tabrelay")
    # -P: it may be started in any directory, and must not import modules from there.
    return (str(beside),) if beside.is_file() else (sys.executable, "-P", "-m", "tabrelay")


def command() -> str:
    """The command that starts this program again: its name if it is on the PATH, otherwise as it was started."""
    import shlex
    import shutil

    if shutil.which("tabrelay"):
        return "tabrelay"
    is_script = Path(sys.argv[0]).name == "tabrelay"
    return shlex.quote(os.path.abspath(sys.argv[0])) if is_script else f"{shlex.quote(sys.executable)} -m tabrelay"


def home_flag(settings: Any) -> str:
    """The --home flag for other commands, if this relay does not use the default state directory."""
    import shlex

    return "" if settings.home == type(settings).from_args({}).home else f" --home {shlex.quote(str(settings.home))}"
