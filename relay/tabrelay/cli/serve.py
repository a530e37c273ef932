"""`tabrelay demo` and `tabrelay serve`: start the relay and run it until a signal.

Everything that can be known to fail is checked before the port is bound. The port is bound before the application is
built, since its list of host names needs the real port. The application is in `tabrelay.server`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tabrelay.cli import colours, flags, running_relay, self_restart, sign_in
from tabrelay.cli.output import OK, ExitWith
from tabrelay.system import relay_records
from tabrelay.system.process_identity import ProcessIdentity


def add(commands: Any) -> None:
    demo = flags.add_command(
        commands, "demo", "Start the relay and open the demo page.", "tabrelay demo --port 9000 --no-open"
    )
    flags.relay_flags(demo)
    demo.set_defaults(run=_demo)

    about = "Start the relay for your own pages, and for the servers of a configuration."
    serve = flags.add_command(
        commands, "serve", about, "tabrelay serve notes --port 9000\n  tabrelay serve -c tabrelay.toml"
    )
    serve_flags(serve)
    serve.set_defaults(run=_serve)


def serve_flags(serve: flags.Parser, json_help: str = flags.READY_LINE) -> None:
    serve.mixes = True  # serve -p 3003 NAME --plain NAME OTHER
    serve.add_argument(
        "servers",
        nargs="*",
        metavar="NAME[:/PATH]",
        help="server names that exist from the start; with a path, plain pages connect there (see --plain)",
    )
    flags.config_flag(serve)
    serve.add_argument(
        "--watch",
        action="store_true",
        default=None,
        help="apply changes of the configuration files at once; without it, on SIGHUP",
    )
    serve.add_argument(
        "--plain",
        action="append",
        metavar="NAME",
        help="a server whose pages contain their own MCP SDK and connect without a token: any page of the relay's "
        "origin or of an --allow-origin may then offer NAME; only on a loopback address (may be repeated)",
    )
    serve.add_argument(
        "--bus",
        action="append",
        metavar="URL",
        help="a NATS server, nats://… or tls://…, that connects several relays: each serves the browsers of all (may "
        "be repeated for a cluster; if it contains a password, use the environment variable TABRELAY_BUS)",
    )
    serve.add_argument("--bus-credentials", metavar="FILE", help="the relay's credentials for the bus (.creds)")
    serve.add_argument(
        "--bus-ca", metavar="FILE", help="certificates of the bus's authority, if the system does not trust it"
    )
    serve.add_argument("--workers", type=int, metavar="N", help="run N processes on this port; needs --bus")
    flags.relay_flags(serve, json_help)


def effective(args: argparse.Namespace) -> tuple[Any, Any]:
    """The settings and the configuration for these flags."""
    from tabrelay.config import reader
    from tabrelay.config.settings import ConfigError, refuse_secrets

    args.servers = args.servers or None
    try:
        refuse_secrets(getattr(args, "bus", None) or ())
        return reader.effective(vars(args))
    except ConfigError as problem:
        raise ExitWith(str(problem), help="TR309") from None


def _demo(args: argparse.Namespace) -> int:
    return run_relay(flags.settings(args, servers=("demo",)), (), "demo", "/-/demo/", beside=_with_example)


def _serve(args: argparse.Namespace) -> int:
    from tabrelay.config import reader

    settings, config = effective(args)
    return run_relay(settings, tuple(config.servers.values()), "serve", "/", lambda: reader.effective(vars(args)))


def run_relay(
    settings: Any, specs: Sequence[Any], command: str, page: str, load: Any = None, site: Any = None, beside: Any = None
) -> int:
    """Binds the port, builds the application and runs it. Returns when a signal stopped the relay. `site`: the app that
    `tabrelay dev` serves on another port. `beside`: adds what `tabrelay demo` serves on another port."""
    from tabrelay.admission.tokens import Tokens
    from tabrelay.http import loopback
    from tabrelay.observe import log_setup
    from tabrelay.server.workers import WorkerEnv
    from tabrelay.system.open_browser import PageOpener

    tokens = Tokens(settings.home, shares_proofs=bool(settings.bus))
    _check(settings, tokens)
    worker = WorkerEnv.read()
    if settings.workers > 1 and worker is None:
        return _supervise(settings, _listen(settings.host, settings.port, command, settings.servers))
    # Imported before the port is bound: browsers that connect in the meantime are refused and retry at different times.
    # With a bound port they would all wait, and connect at the same moment.
    from tabrelay.routing.drain import Drain
    from tabrelay.server.app import create_app
    from tabrelay.server.runner import run

    sock = _listen(settings.host, settings.port, command, settings.servers) if worker is None else worker.socket()
    settings = replace(settings, port=sock.getsockname()[1])
    if worker is not None and worker.number:
        settings = _with_own_logs(settings, worker.number)
    reserved = loopback.reserve(sock) if worker is None else loopback.Reservation(is_taken=worker.is_taken)
    base = running_relay.base_url(settings.host, settings.port)
    log_setup.configure(settings.log_level, is_json=settings.log_format == "json")
    log_setup.add_log_file(settings)
    _print_warnings(settings, base, reserved.is_taken)
    opener = PageOpener(settings.home)
    is_restart = False
    try:
        drain, record = Drain.for_settings(settings), _record(settings, base, worker, site)
        names = loopback.held_names(sock, settings.host, is_taken=reserved.is_taken)
        options = _app_options(settings, base, names, site)
        app = create_app(settings, specs=specs, tokens=tokens, drain=drain, record=record, **options)

        def ready() -> None:
            if worker is None or (worker.number == 0 and worker.is_new):
                _announce(settings, tokens, base, page, opener, site)
            if worker is not None:
                worker.report()
            if settings.config:
                from tabrelay.server.config_reload import ConfigReload

                ConfigReload(settings, load, app.change).start()

        served, more = (beside or _alone)(app, settings, base) if site is None else site.wrap(app, base, drain)
        is_restart = run(served, settings, sock, ready, drain.run, more)
    finally:
        opener.close()
        reserved.close()
    if is_restart:
        return self_restart.execute(settings.port if site is None else site.port)
    if worker is None and not settings.json and sys.stderr.isatty():
        print(f"\nThe relay at {base} has stopped.", file=sys.stderr)
    return OK


def _alone(relay: Any, settings: Any, base: str) -> tuple[Any, Sequence[Any]]:
    return relay, ()


def _with_example(relay: Any, settings: Any, base: str) -> tuple[Any, Sequence[Any]]:
    """The application with the example of another origin, on the next free port; unchanged where other computers can
    connect, since the example is for this one."""
    from tabrelay.assets.files import Assets
    from tabrelay.faces.web.example_site import ExampleSite
    from tabrelay.http.addresses import is_loopback
    from tabrelay.server.runner import BindError, bind

    if settings.public_url or not is_loopback(settings.host):
        return relay, ()
    try:
        sock = bind(settings.host, settings.port + 1 if settings.port < 65535 else 0)
    except BindError:
        sock = bind(settings.host, 0)
    port = int(sock.getsockname()[1])
    address = running_relay.base_url(settings.host, port)
    return ExampleSite(relay, Assets.find(), port=port, address=address, relay_url=base), (sock,)


def _supervise(settings: Any, sock: Any) -> int:
    """Run several processes on one port, until a signal has stopped them."""
    from tabrelay.http import loopback
    from tabrelay.server.workers import WorkerProcesses

    reserved = loopback.reserve(sock)
    processes = WorkerProcesses(sock, sys.argv[1:], settings.workers, is_taken=reserved.is_taken)
    try:
        code = processes.run()
    finally:
        relay_records.remove_of(settings.home, ProcessIdentity.of(os.getpid()))
    return self_restart.execute(sock.getsockname()[1]) if processes.is_restart else code


def _record(settings: Any, base: str, worker: Any, site: Any) -> Any:
    """What the relay writes about itself while it runs. Of several processes on one port, the first one does."""
    if worker is not None and worker.number:
        return None
    import secrets

    from tabrelay import __version__
    from tabrelay.system.relay_records import RelayRecord

    pid = os.getpid() if worker is None else os.getppid()
    return RelayRecord(
        secrets.token_hex(8),
        base,
        settings.host,
        settings.port,
        ProcessIdentity.of(pid),
        __version__,
        tuple(sys.argv[1:]),
        os.getcwd(),
        time.time(),
        self_restart.is_service(pid),
        app_url="" if site is None else site.url,
    )


def _print_warnings(settings: Any, base: str, is_taken: bool) -> None:
    """`is_taken`: another program has the same port on the other loopback address."""
    from tabrelay.http.addresses import is_loopback

    if not is_loopback(settings.host) and not settings.public_url:
        print(f"Warning: {settings.host} can be reached from other computers, without encryption.", file=sys.stderr)
    if is_taken:
        where = f"another program has port {settings.port} on the other loopback address"
        print(f"Warning: {where}. Do not use the name localhost, but {base}", file=sys.stderr)
    for warning in settings.warnings():
        print(f"Warning: {warning}", file=sys.stderr)


def _app_options(settings: Any, base: str, names: Any, site: Any) -> dict[str, Any]:
    """The arguments of `create_app` that depend on the command line. `names`: host names that the socket holds."""
    from tabrelay.admission.policy import Policy
    from tabrelay.cli.announcement import question
    from tabrelay.server.app import shown_command

    command, home = running_relay.command(), running_relay.home_flag(settings)

    def on_ask(asking: Any, others: list[str]) -> None:
        text = question(asking.origin, asking.server, asking.code, others, command=command, flags=home)
        print(text, file=sys.stderr, flush=True)

    policy = Policy.for_address(
        settings.host, settings.port, settings.allow_hosts, settings.allow_origins, settings.public_url, names
    )
    return {
        "policy": policy if site is None else site.allow(policy),
        "url": settings.public_url or base,
        "app_url": "" if site is None else site.url,
        "token_command": f"{shown_command(settings)} token{home}",
        "on_ask": on_ask,
        "sign_in": sign_in.for_relay(settings, command, home),
    }


def _with_own_logs(settings: Any, number: int) -> Any:
    """Separate log files for a worker process: processes share state directory and port, but not rotated files."""
    from tabrelay.observe.log_setup import log_path

    def own(setting: str, stem: str) -> str:
        path = log_path(settings.home, settings.port, setting, stem)
        return setting if path is None else str(path.with_stem(f"{path.stem}-{number + 1}"))

    return replace(settings, log_file=own(settings.log_file, "relay"), call_log=own(settings.call_log, "calls"))


def _check(settings: Any, tokens: Any) -> None:
    """Reports everything that can be known to fail, before anything starts."""
    from tabrelay.admission import policy
    from tabrelay.admission.tokens import StateError
    from tabrelay.assets.files import Assets, AssetsMissing
    from tabrelay.config.settings import ConfigError
    from tabrelay.http.addresses import PolicyError, is_loopback
    from tabserver.wire.errors import ServerNameError
    from tabserver.wire.names import check_server_name

    if settings.no_auth and not is_loopback(settings.host):
        raise ExitWith(f"--dangerously-no-auth works only on a loopback address, not on {settings.host}.")
    if settings.faults and not is_loopback(settings.host):
        raise ExitWith(f"--faults works only on a loopback address, not on {settings.host}.")
    if settings.plain and not is_loopback(settings.host):
        raise ExitWith(f"--plain works only on a loopback address, not on {settings.host}.")
    try:
        settings.check_whole()
        if settings.bus_credentials:
            from pathlib import Path

            from tabrelay.bus.nats_credentials import NatsCredentials

            NatsCredentials(Path(settings.bus_credentials).expanduser())  # reports an unusable file now
        for name in settings.servers:
            check_server_name(name)
        policy.Policy.for_address(
            settings.host, settings.port, settings.allow_hosts, settings.allow_origins, settings.public_url
        )
        Assets.find().check()
        tokens.master()
    except (ConfigError, ServerNameError, PolicyError) as problem:
        raise ExitWith(str(problem), help="TR309") from None
    except AssetsMissing as problem:
        raise ExitWith(str(problem), help="TR318") from None
    except StateError as problem:
        raise ExitWith(str(problem), help="TR315") from None


def _announce(settings: Any, tokens: Any, base: str, page: str, opener: Any, site: Any) -> None:
    """Called once, when the relay accepts requests: prints the URLs, opens the browser."""
    from tabrelay.admission.pairing_codes import OPENER_TTL_S, PERSON_TTL_S
    from tabrelay.cli.announcement import Announcement
    from tabrelay.system.open_browser import has_display

    def address(ttl_s: float) -> str:
        return f"{settings.public_url or base}{page}#pair={tokens.mint(None, ttl_s, time.monotonic())}"

    if site is not None:
        site.announce(settings, tokens.master(), address(PERSON_TTL_S), opener)
        return
    announcement = Announcement(
        base_url=settings.public_url or base,
        page_url=address(PERSON_TTL_S),
        servers=settings.servers,
        token=tokens.master(),
        needs_token=not settings.no_auth,
        command=running_relay.command(),
        flags=running_relay.home_flag(settings),
    )
    text = announcement.text(sys.stdout.isatty(), colours.for_stream(sys.stdout))
    print(announcement.json_line() if settings.json else text, flush=True)
    if settings.open_browser and not self_restart.is_restarted() and not settings.json and has_display():
        opener.open(address(OPENER_TTL_S), OPENER_TTL_S)


def _listen(host: str, port: int, command: str, servers: tuple[str, ...]) -> Any:
    from tabrelay.server.runner import BindError, bind

    try:
        return bind(host, port)
    except BindError as problem:
        names = "".join(f" {name}" for name in servers) if command == "serve" else ""
        hint = (
            f" Try: {running_relay.command()} {command}{names} --port {problem.free_port}" if problem.free_port else ""
        )
        raise ExitWith(f"{problem}{hint}", help="TR306") from None
