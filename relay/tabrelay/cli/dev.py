"""`tabrelay dev`: serves a folder and the relay at one address, and loads pages and Python again on save.

The relay listens on two ports. The first one has the app's files, the client's files, MCP and the workers; its origin
is approved without a question. The second one has the relay's own pages and everything that needs the relay's token,
out of reach of the app's code. Both are on the loopback interface.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tabrelay.cli import flags, running_relay, self_restart, serve
from tabrelay.cli.output import ExitWith

_FREE_PORTS_TRIED = 20
_OPENER_S = 60.0


def add(commands: Any) -> None:
    about = "Serve a folder with the relay at one address, for development: no pairing, and changes at once."
    parser = flags.add_command(commands, "dev", about, "tabrelay init notes && tabrelay dev notes")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="the app's files (default: the current)")
    parser.add_argument(
        "--server",
        dest="servers",
        action="append",
        metavar="NAME",
        help="a name that the page offers (default: the names in its index.html; may be repeated)",
    )
    flags.relay_flags(parser)
    parser.set_defaults(run=_dev)


def _dev(args: argparse.Namespace) -> int:
    from tabrelay.assets.app_folder import AppFolder
    from tabrelay.http.addresses import is_loopback
    from tabrelay.server.runner import BindError, bind

    if args.folder.exists() and not args.folder.is_dir():
        raise ExitWith(
            f"{args.folder} is a file. Name its folder: {running_relay.command()} dev {_quoted(args.folder.parent)}",
            help="TR316",
        )
    if not args.folder.is_dir():
        raise ExitWith(
            f"{args.folder} is not a folder. To make one: {running_relay.command()} init {_quoted(args.folder)}",
            help="TR316",
        )
    settings = flags.settings(args, servers=_names(args))
    if not is_loopback(settings.host):
        raise ExitWith(f"dev works only on a loopback address, not on {settings.host}. Use serve.")
    if settings.public_url or settings.workers > 1:
        raise ExitWith("--public-url and --workers do not work with `tabrelay dev`. Use `tabrelay serve`.")
    sock = _listen(settings, args.folder, is_port_given=args.port is not None)
    port = int(sock.getsockname()[1])
    try:
        with bind(settings.host, port + 1 if port < 65535 else 0) as probe:
            own = int(probe.getsockname()[1])
    except BindError:
        own = 0
    site = DevSite(AppFolder(args.folder), sock, settings)
    try:
        return serve.run_relay(replace(settings, port=own), (), "dev", "/", site=site)
    finally:
        site.close()


def _quoted(folder: Path) -> str:
    return shlex.quote(str(folder))


def _names(args: argparse.Namespace) -> tuple[str, ...]:
    from tabrelay.assets.app_folder import server_names
    from tabserver.wire.errors import ServerNameError
    from tabserver.wire.names import check_server_name

    if args.servers:
        return tuple(args.servers)
    found = []
    for name in server_names(args.folder):
        try:
            found.append(check_server_name(name))
        except ServerNameError:
            continue
    return tuple(dict.fromkeys(found))


def _listen(settings: Any, folder: Path, *, is_port_given: bool) -> Any:
    """The app's port: without --port, the first free one from the default on."""
    from tabrelay.server.runner import BindError, bind

    last = settings.port if is_port_given or not settings.port else settings.port + 2 * _FREE_PORTS_TRIED
    for port in range(settings.port, last + 1, 2):
        try:
            return bind(settings.host, port)
        except BindError as problem:
            if port == last:
                again = f"{running_relay.command()} dev {_quoted(folder)} --port {problem.free_port}"
                hint = f" Try: {again}" if problem.free_port else ""
                raise ExitWith(f"{problem}{hint}", help="TR306") from None
    raise AssertionError("the last port returns or raises")


class DevSite:
    """The app's side of the relay: its socket, its origin, and what is printed about it."""

    def __init__(self, folder: Any, sock: Any, settings: Any) -> None:
        from tabrelay.http import loopback

        self._folder, self._settings = folder, settings
        self._sock = sock
        self.port = int(sock.getsockname()[1])
        self._reserved = loopback.reserve(sock)
        self._held = loopback.held_names(sock, settings.host, is_taken=self._reserved.is_taken)
        self.url = running_relay.base_url(settings.host, self.port)
        self._hosts: frozenset[str] = frozenset()

    def allow(self, policy: Any) -> Any:
        """The relay's policy, with the app's origin."""
        from tabrelay.admission.policy import Policy

        self._hosts = Policy.for_address(self._settings.host, self.port, held=self._held).hosts
        return policy.with_app(self._settings.host, self.port, self._held)

    def wrap(self, relay: Any, relay_url: str, drain: Any) -> tuple[Any, list[Any]]:
        """The application for both ports, and the socket of the app's."""
        from tabrelay.faces.web.app_site import AppSite

        app = AppSite(
            relay,
            self._folder,
            port=self.port,
            hosts=self._hosts,
            relay_url=relay_url,
            is_stopping=lambda: drain.is_on,
            servers=self._settings.servers,
        )
        return app, [self._sock]

    def announce(self, settings: Any, token: str, relay_page: str, opener: Any) -> None:
        """Print the app's address, and open it."""
        from tabrelay.system.open_browser import has_display

        if settings.json:
            servers = {name: f"{self.url}/{name}" for name in settings.servers}
            mcp_url = next(iter(servers.values()), f"{self.url}/{{server}}")
            line = {"url": f"{self.url}/", "mcp_url": mcp_url, "token": token, "base_url": self.url}
            print(json.dumps({**line, "relay_url": relay_page, "servers": servers}), flush=True)
            return
        print(self._text(settings, relay_page), flush=True)
        if settings.open_browser and not self_restart.is_restarted() and has_display():
            opener.open(f"{self.url}/", _OPENER_S)

    def _text(self, settings: Any, relay_page: str) -> str:
        command, home = running_relay.command(), running_relay.home_flag(settings)
        bold = (lambda words: f"\x1b[1m{words}\x1b[0m") if sys.stdout.isatty() else str
        names = settings.servers or ("NAME",)
        return "\n".join(
            [
                bold(f"Tabrelay serves {self._folder.root}"),
                "",
                f"  Page     {bold(f'{self.url}/')}",
                *(f"  MCP URL  {bold(f'{self.url}/{name}')}" for name in names),
                f"  Relay    {relay_page}",
                "",
                "Save a file: pages and Python tools are loaded again.",
                f"  See the tools        {command} tools {names[0]}{home}",
                f"  Connect a client     {command} install claude-code {names[0]}{home}",
                "",
                "Ctrl+C stops.",
            ]
        )

    def close(self) -> None:
        self._reserved.close()
        self._sock.close()
