"""The command line: reads flags, hands over, and turns what goes wrong into one line.

Everything heavy is imported inside the verb that needs it, so ``tabrelay --version`` answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tabrelay import __version__

OK, FAILED, USAGE = 0, 1, 2


class Stop(Exception):
    """Ends the program with one line on stderr and this exit code."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if "run" not in args:
        # No verb: whoever types the bare name wants to know what it can do.
        parser.print_help(sys.stderr)
        return USAGE
    try:
        code: int = args.run(args)
        return code
    except Stop as stop:
        print(stop, file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        return OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tabrelay",
        description="A browser tab is an MCP server: the relay between MCP clients and the pages you have open.",
        epilog="Examples:\n"
        "  tabrelay demo                 start the relay and open the demo page\n"
        "  tabrelay serve notes          start the relay for your own page\n"
        "  tabrelay token                print the token for MCP clients\n"
        "  tabrelay pair                 print a fresh address that pairs a browser\n"
        "  tabrelay demo --help          all flags of a verb\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tabrelay {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")

    demo = _verb(verbs, "demo", "Start the relay and open the demo page.", "tabrelay demo --port 9000 --no-open")
    _relay_flags(demo)
    demo.set_defaults(run=_demo)

    serve = _verb(verbs, "serve", "Start the relay for your own pages.", "tabrelay serve notes --port 9000")
    serve.add_argument("servers", nargs="*", metavar="NAME", help="server names that are known from the start")
    serve.add_argument(
        "--plain",
        action="append",
        metavar="NAME",
        help="a server whose pages bring their own MCP SDK and dial without a token: any page of the relay's own or an "
        "--allow-origin origin may then offer NAME; only on a loopback address (may be repeated)",
    )
    _relay_flags(serve)
    serve.set_defaults(run=_serve)

    token = _verb(
        verbs,
        "token",
        "Print the token that MCP clients send, and nothing else.",
        "claude mcp add --transport http demo http://127.0.0.1:4747/demo \\\n"
        '    --header "Authorization: Bearer $(tabrelay token)"',
    )
    _home_flag(token)
    token.set_defaults(run=_token)

    pair = _verb(
        verbs, "pair", "Ask the running relay for a fresh address that pairs a browser.", "tabrelay pair --port 9000"
    )
    pair.add_argument("--host", help="where the relay listens (default: the relay started last, else 127.0.0.1)")
    pair.add_argument("--port", type=int, help="its port (default: of the relay started last, else 4747)")
    pair.add_argument("--json", action="store_true", default=None, help="print one JSON line")
    _home_flag(pair)
    pair.set_defaults(run=_pair)
    return parser


def _verb(verbs: Any, name: str, about: str, example: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=about,
        description=about,
        epilog=f"Example:\n  {example}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return verb


def _home_flag(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--home", type=Path, metavar="DIR", help="state directory (default: the user's config directory)")


def _relay_flags(verb: argparse.ArgumentParser) -> None:
    """Each flag's name is a setting's name; the default None means "not given", so that the environment counts."""
    verb.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    verb.add_argument("--port", type=int, help="port to listen on (default 4747; 0: any free one)")
    verb.add_argument("--no-open", dest="open_browser", action="store_false", default=None, help="open no browser")
    verb.add_argument(
        "--json",
        action="store_true",
        default=None,
        help="when ready, print one JSON line with url, mcp_url and token, and open no browser",
    )
    verb.add_argument(
        "--allow-host",
        dest="allow_hosts",
        action="append",
        metavar="HOST[:PORT]",
        help="another name under which this relay is reached (may be repeated)",
    )
    verb.add_argument(
        "--allow-origin",
        dest="allow_origins",
        action="append",
        metavar="ORIGIN",
        help="another origin whose pages may use this relay (may be repeated)",
    )
    _home_flag(verb)
    verb.add_argument("--log-level", metavar="LEVEL", help="trace, debug, info, warning (default) or error; to stderr")
    verb.add_argument(
        "--dangerously-no-auth",
        dest="no_auth",
        action="store_true",
        default=None,
        help="ask for no token: every program on this computer may call; only on a loopback address",
    )


def _demo(args: argparse.Namespace) -> int:
    return _relay(_settings(args, servers=("demo",)), "demo", "/-/demo/")


def _serve(args: argparse.Namespace) -> int:
    args.servers = args.servers or None
    return _relay(_settings(args), "serve", "/")


def _settings(args: argparse.Namespace, **fixed: Any) -> Any:
    from tabrelay.config import ConfigError, Settings

    try:
        return Settings.from_args({**vars(args), **fixed})
    except ConfigError as problem:
        raise Stop(str(problem)) from None


def _relay(settings: Any, verb: str, page: str) -> int:
    """Bind, build, run. Returns when a signal stopped the relay."""
    from tabrelay import logs
    from tabrelay.opener import Opener
    from tabrelay.policy import is_loopback
    from tabrelay.tokens import Tokens

    tokens = Tokens(settings.home)
    _check(settings, tokens)
    # Before the port is bound: browsers that dial while these load are refused and try again, each in its own time. A
    # bound port would keep them all waiting, and let them in at the same instant.
    from tabrelay.app import create_app
    from tabrelay.drain import Drain
    from tabrelay.runner import run

    sock = _listen(settings.host, settings.port, verb, settings.servers)
    settings = replace(settings, port=sock.getsockname()[1])
    base = base_url(settings.host, settings.port)
    logs.configure(settings.log_level)
    if not is_loopback(settings.host):
        print(f"Warning: {settings.host} can be reached from other computers, without encryption.", file=sys.stderr)

    opener = Opener(settings.home)
    running = settings.home / "running.json"
    try:
        token_command = f"{command()} token{home_flag(settings)}"
        drain = Drain.for_settings(settings)
        app = create_app(settings, tokens=tokens, url=base, token_command=token_command, drain=drain)
        run(app, settings, sock, lambda: _announce(settings, tokens, base, page, opener, running), drain.run)
    finally:
        opener.close()
        if _running(settings.home) == base:
            running.unlink(missing_ok=True)
    return OK


def _check(settings: Any, tokens: Any) -> None:
    """Everything that can be known to fail, said before anything starts."""
    from tabrelay import policy
    from tabrelay.assets import Assets, AssetsMissing
    from tabrelay.tokens import StateError
    from tabserver.wire.errors import ServerNameError
    from tabserver.wire.names import check_server_name

    if settings.no_auth and not policy.is_loopback(settings.host):
        raise Stop(f"--dangerously-no-auth works only on a loopback address, not on {settings.host}.")
    if settings.plain and not policy.is_loopback(settings.host):
        raise Stop(f"--plain works only on a loopback address, not on {settings.host}.")
    try:
        for name in settings.servers:
            check_server_name(name)
        policy.Policy.for_address(settings.host, settings.port, settings.allow_hosts, settings.allow_origins)
        Assets.find().check()
        tokens.master()
    except (ServerNameError, policy.PolicyError, AssetsMissing, StateError) as problem:
        raise Stop(str(problem)) from None


def _announce(settings: Any, tokens: Any, base: str, page: str, opener: Any, running: Path) -> None:
    """Said once, when the relay answers: to the person or script that started it, and to the verb `pair`."""
    from tabrelay.announcement import Announcement
    from tabrelay.codes import OPENER_TTL_S, PERSON_TTL_S
    from tabrelay.opener import has_display

    def address(ttl_s: float) -> str:
        return f"{base}{page}#pair={tokens.mint(None, ttl_s, time.monotonic())}"

    said = Announcement(
        base_url=base,
        page_url=address(PERSON_TTL_S),
        servers=settings.servers,
        token=tokens.master(),
        needs_token=not settings.no_auth,
        command=command(),
        flags=home_flag(settings),
    )
    running.write_text(json.dumps({"url": base, "pid": os.getpid()}), encoding="utf-8")
    print(said.json_line() if settings.json else said.text(sys.stdout.isatty()), flush=True)
    if settings.open_browser and not settings.json and has_display():
        opener.open(address(OPENER_TTL_S), OPENER_TTL_S)


def _listen(host: str, port: int, verb: str, servers: tuple[str, ...]) -> Any:
    from tabrelay.runner import BindError, bind

    try:
        return bind(host, port)
    except BindError as problem:
        names = "".join(f" {name}" for name in servers) if verb == "serve" else ""
        hint = f" Try: tabrelay {verb}{names} --port {problem.free_port}" if problem.free_port else ""
        raise Stop(f"{problem}{hint}") from None


def command() -> str:
    """What to type to get this program again: its name if that is on the PATH, else the way it was started."""
    import shlex
    import shutil

    if shutil.which("tabrelay"):
        return "tabrelay"
    is_script = Path(sys.argv[0]).name == "tabrelay"
    return shlex.quote(os.path.abspath(sys.argv[0])) if is_script else f"{shlex.quote(sys.executable)} -m tabrelay"


def home_flag(settings: Any) -> str:
    """The flag that leads another verb to the same state, if this relay does not use the usual one."""
    import shlex

    return "" if settings.home == type(settings).from_args({}).home else f" --home {shlex.quote(str(settings.home))}"


def base_url(host: str, port: int) -> str:
    """The address to show: a relay that listens everywhere is reached here under its loopback address."""
    from tabrelay.policy import bracketed, is_wildcard

    name = ("[::1]" if ":" in host else "127.0.0.1") if is_wildcard(host) else bracketed(host)
    return f"http://{name}" if port == 80 else f"http://{name}:{port}"


def _token(args: argparse.Namespace) -> int:
    from tabrelay.tokens import StateError, Tokens

    try:
        print(Tokens(_settings(args).home).master())
    except StateError as problem:
        raise Stop(str(problem)) from None
    return OK


def _pair(args: argparse.Namespace) -> int:
    import urllib.error
    import urllib.request

    from tabrelay.tokens import StateError, Tokens

    settings = _settings(args)
    was_given = args.host is not None or args.port is not None
    base = (None if was_given else _running(settings.home)) or base_url(settings.host, settings.port)
    try:
        token = Tokens(settings.home).master()
    except StateError as problem:
        raise Stop(str(problem)) from None
    request = urllib.request.Request(f"{base}/-/codes", method="POST", headers={"Authorization": f"Bearer {token}"})
    # No proxy: the request is for this computer, and carries the token.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        raise Stop(f"The relay at {base} refused ({error.code}): was it started with another --home?", FAILED) from None
    except (OSError, ValueError):
        raise Stop(f"No relay answers at {base}. Start one: tabrelay demo", FAILED) from None
    if args.json:
        print(json.dumps(answer))
    else:
        print(f"{answer['url']}\nOpen it in the browser within {answer['expires_s'] // 60} minutes; it works once.")
    return OK


def _running(home: Path) -> str | None:
    """The address of the relay of this user that started last, if it said so and is still there."""
    try:
        said = json.loads((home / "running.json").read_text(encoding="utf-8"))
        url, pid = str(said["url"]), int(said["pid"])
        if os.name == "posix":
            os.kill(pid, 0)
        return url
    except (OSError, ValueError, KeyError, TypeError):
        return None


if __name__ == "__main__":
    raise SystemExit(main())
