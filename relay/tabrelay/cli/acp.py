"""`tabrelay acp`: runs the conductor between an editor and its agent.

It parses the flags, starts the conductor on stdin and stdout, and handles signals: the first one stops in order, the
second one immediately. The conductor itself is in `tabrelay.acp`.
"""

from __future__ import annotations

import argparse
import shlex
import signal
from typing import TYPE_CHECKING, Any

from tabrelay.cli import flags, running_relay
from tabrelay.cli.connect import stop_signals
from tabrelay.cli.output import ExitWith

if TYPE_CHECKING:
    from tabrelay.acp.conductor import Conductor
    from tabrelay.acp.relay_client import RelayClient

PROFILES = ("g1", "g2", "g3", "g4")


def add(commands: Any) -> None:
    about = "Run between an editor and its agent (Agent Client Protocol), and give the agent the browser's tools."
    parser = flags.add_command(
        commands, "acp", about, "tabrelay acp -- claude-agent-acp\n  tabrelay acp --server notes -- copilot --acp"
    )
    parser.advice = "The agent's command comes after --, as in: tabrelay acp -- gemini --acp"
    parser.add_argument("agent", nargs="+", metavar="AGENT", help="the agent's command, after --")
    parser.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="NAME",
        help="offer this browser server, connected or not, and no others (may be repeated; default: all connected)",
    )
    parser.add_argument(
        "--bridge",
        choices=("auto", "stdio", "http"),
        default="auto",
        help="how agents connect to browser servers: over HTTP to the relay, or by a program for each "
        "(default: HTTP if the agent advertises it)",
    )
    parser.add_argument(
        "--profile", choices=PROFILES, help="the dialect of MCP over ACP, if it is not to be detected: g1 is the oldest"
    )
    parser.add_argument(
        "--proxy",
        action="append",
        default=[],
        metavar="CMD",
        help="an ACP proxy between editor and agent, as one argument (may be repeated, in order from the editor)",
    )
    parser.add_argument("--log-level", metavar="LEVEL", help="log level on stderr (default warning)")
    flags.address_flags(parser)
    parser.set_defaults(run=_acp)


def _acp(args: argparse.Namespace) -> int:
    import asyncio

    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    import asyncio
    import sys

    from tabrelay.acp.child import ChildProcess
    from tabrelay.acp.conductor import Conductor
    from tabrelay.acp.dialects import DIALECTS as SHAPES
    from tabrelay.acp.session_servers import ConductorOptions
    from tabrelay.bridge import stdio
    from tabrelay.observe import log_setup

    settings = flags.settings(args)
    log_setup.configure(settings.log_level)
    options = ConductorOptions(
        running_relay.program(),
        bridge=args.bridge,
        dialect=SHAPES.get(args.profile),
    )
    proxies = [ChildProcess(_command(text)) for text in args.proxy]
    if sys.stdin.isatty():
        print("Waiting for an editor on stdin: this command belongs into the editor's settings.", file=sys.stderr)
    stdio.use_bytes()
    output = stdio.Stdout()
    conductor = Conductor(output, ChildProcess(args.agent), _relay_client(args, settings), options, proxies)
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, _stop, conductor, number)
    stdin = stdio.Stdin()
    try:
        return await conductor.run(stdin.chunks(), stdin.ended)
    finally:
        await output.close()


def _stop(conductor: Conductor, number: signal.Signals) -> None:
    """The first signal lets all processes finish. The second one waits neither for that nor for the event loop."""
    if conductor.is_stopping:
        _end_at_once(number)
    conductor.stop()
    for one in stop_signals():
        signal.signal(one, lambda number, _: _end_at_once(number))


def _end_at_once(number: int) -> None:
    from tabrelay.system import process_group

    process_group.kill_all()  # no other code of this process runs after this
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _relay_client(args: argparse.Namespace, settings: Any) -> RelayClient:
    from tabrelay.acp.relay_client import RelayClient
    from tabrelay.cli.relay_choice import RelayFinder, is_selected, print_used
    from tabserver.wire.errors import ServerNameError
    from tabserver.wire.names import check_server_name

    try:
        names = tuple(check_server_name(name) for name in args.server)
    except ServerNameError as problem:
        raise ExitWith(str(problem)) from None
    fixed = running_relay.base_url(settings.host, settings.port)
    what = f'have "{names[0]}"' if names else "run"
    found = RelayFinder(
        settings.home,
        names[0] if names else None,
        fixed,
        on_several=lambda several: print_used(several, what),
        is_allowed=lambda record: is_selected(record, args, settings),
    )
    return RelayClient(settings.home, found, names)


def _command(text: str) -> tuple[str, ...]:
    try:
        parts = tuple(shlex.split(text))
    except ValueError as problem:
        raise ExitWith(f"--proxy {text!r} can't be read as a command: {problem}.") from None
    if not parts:
        raise ExitWith("--proxy needs a command.")
    return parts
