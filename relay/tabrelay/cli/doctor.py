"""`tabrelay doctor`: diagnoses the installation, the relays and their clients, with advice for each problem.

Each check is independent: one that fails does not prevent the others. At the end it states whether a call would succeed
now, or what is missing for one, in order (`readiness`). It changes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from tabrelay import __version__
from tabrelay.cli import colours, flags, readiness, relay_choice, running_relay
from tabrelay.cli.output import FAILED, OK, ExitWith
from tabrelay.cli.readiness import Finding

OLDEST: Final = (3, 11)
TIMEOUT_S: Final = 5.0
REFUSALS_S: Final = 3600.0  # an older refusal of a page says little about now
# By the kind of a refusal. Other refusals have several reasons, which their message states.
REFUSAL_HELP: Final = {"origin": "TR202", "token": "TR201"}


@dataclass(frozen=True, slots=True)
class DiagnosedRelay:
    """The input of the checks. `is_registered`: the relay has a record, so its process exists. `health`: the answer of
    `/-/healthz`, or None. `names`: the servers of all relays; None if none answers."""

    settings: Any
    base: str
    is_registered: bool
    health: Any
    names: frozenset[str] | None = None

    @property
    def is_running(self) -> bool:
        return isinstance(self.health, dict) and "build" in self.health

    def request(self, path: str) -> Any:
        return running_relay.request_at(self.base, self.settings.home, path)


Findings = Iterator[Finding]


def add(commands: Any) -> None:
    about = "Check port, token, browser, assets, origins, servers and clients, and give advice."
    parser = flags.add_command(commands, "doctor", about, "tabrelay doctor")
    flags.address_flags(parser)
    parser.add_argument("--json", action="store_true", default=None, help="print JSON")
    parser.set_defaults(run=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    found = list(diagnose(args))
    if args.json:
        print(json.dumps([asdict(finding) for finding in found], indent=1))
    else:
        print(readiness.text(found, colours.for_stream(sys.stdout), running_relay.command()))
    return FAILED if any(finding.state in ("bad", "missing") for finding in found) else OK


def diagnose(args: argparse.Namespace) -> Findings:
    settings = flags.settings(args)
    bases = [record.url for record in relay_choice.candidates(args, settings)]
    fixed = running_relay.base_url(settings.host, settings.port)
    relays = [DiagnosedRelay(settings, base, base in bases, _get(f"{base}/-/healthz")) for base in bases or [fixed]]
    for check in LOCAL_CHECKS:
        yield from _checked(check, relays[0])
    for relay in relays:
        for check in RELAY_CHECKS:
            yield from _checked(check, relay)
    names = [found for relay in relays if (found := _names(relay)) is not None]
    yield from _checked(_clients, replace(relays[0], names=frozenset().union(*names) if names else None))
    statuses = [status for relay in relays if (status := _status(relay)) is not None]
    yield from readiness.findings(statuses, running_relay.command())


def _checked(check: Callable[[DiagnosedRelay], Findings], relay: DiagnosedRelay) -> Findings:
    try:
        yield from check(relay)
    except Exception as problem:  # a check that fails is reported, and the others run
        help = (problem.help or "") if isinstance(problem, ExitWith) else ""
        yield Finding(check.__name__.strip("_"), "bad", f"could not be checked: {problem!r}", help=help)


# -- this computer -----------------------------------------------------------------------------------------------------


def _program(relay: DiagnosedRelay) -> Findings:
    version = ".".join(map(str, sys.version_info[:3]))
    state: Literal["ok", "bad"] = "ok" if sys.version_info >= OLDEST else "bad"
    yield Finding("program", state, f"tabrelay {__version__} on Python {version}", "" if state == "ok" else "Use 3.11.")


def _state(relay: DiagnosedRelay) -> Findings:
    """The state directory exists, is writable, and is closed to other users."""
    home = relay.settings.home
    if home.exists() and not home.is_dir():
        advice = "Name another one: --home DIRECTORY, or TABRELAY_HOME"
        yield Finding("state", "bad", f"{home} is a file, not a directory.", advice, "TR315")
        return
    if not home.is_dir():
        yield Finding("state", "note", f"{home} is not there yet: the first start makes it.")
        return
    if os.name == "posix" and home.stat().st_mode & 0o077:
        text = f"Others on this computer can look into {home}."
        yield Finding("state", "bad", text, f"chmod 700 {home}", "TR315")
    elif not os.access(home, os.W_OK):
        yield Finding("state", "bad", f"{home} can't be written.", f"chown -R $USER {home}", "TR315")
    else:
        yield Finding("state", "ok", str(home))


def _token(relay: DiagnosedRelay) -> Findings:
    path = relay.settings.home / "token"
    try:
        mode = path.stat().st_mode
        token = path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        yield Finding("token", "note", "There is none yet: the first start makes it.")
        return
    except (OSError, UnicodeDecodeError) as problem:
        advice = "Delete it: the next start makes another."
        yield Finding("token", "bad", f"{path} can't be read: {problem}", advice, "TR315")
        return
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        yield Finding("token", "bad", f"Others on this computer can read {path}.", f"chmod 600 {path}", "TR315")
    elif not token:
        yield Finding("token", "bad", f"{path} is empty.", "Delete it: the next start makes another.", "TR315")
    elif not relay.is_running:
        yield Finding("token", "ok", f"in {path}; no relay to try it with")
    else:
        try:
            relay.request("/-/status")
            yield Finding("token", "ok", "The relay takes it.")
        except running_relay.OtherProgram as problem:
            port = urlsplit(relay.base).port or 80
            advice = f"Start the relay with the same --home. To see which program has the port: lsof -i :{port}"
            yield Finding("token", "bad", str(problem), advice, problem.help or "")
        except ExitWith as problem:
            yield Finding("token", "bad", str(problem), "Start the relay with the same --home.", problem.help or "")


def _assets(relay: DiagnosedRelay) -> Findings:
    from tabrelay.assets.files import Assets, AssetsMissing

    try:
        Assets.find().check()
        yield Finding("assets", "ok", "Pyodide, PyScript and the browser package are here.")
    except AssetsMissing as problem:
        yield Finding("assets", "bad", str(problem), help="TR318")


def _browser(relay: DiagnosedRelay) -> Findings:
    import webbrowser

    from tabrelay.system.open_browser import has_display

    # First the display: without one, no browser is found here whatever is installed.
    if not has_display():
        port = urlsplit(relay.base).port
        page = f"Open the page that this prints: {running_relay.command()} pair"
        advice = f"{page}. From another computer, through: ssh -L {port}:127.0.0.1:{port}"
        yield Finding("browser", "note", "No browser can be opened from here (no display).", advice)
        return
    try:
        name = getattr(webbrowser.get(), "name", "") or "one"
        yield Finding("browser", "ok", f"{name} can be opened.")
    except webbrowser.Error:
        advice = f"Open in any browser the page that this prints: {running_relay.command()} pair"
        yield Finding("browser", "note", "No browser is found on this computer.", advice)


# -- the relay ---------------------------------------------------------------------------------------------------------


def _port(relay: DiagnosedRelay) -> Findings:
    if relay.is_running:
        version = relay.health.get("version", __version__)
        if version != __version__:
            text = f"The relay at {relay.base} is version {version}, this program {__version__}."
            yield Finding("relay", "note", text, "Start it again.")
        else:
            yield Finding("relay", "ok", f"runs at {relay.base}")
        return
    parts = urlsplit(relay.base)
    port = parts.port or 80
    program = running_relay.command()
    if relay.is_registered:
        text = f"The relay at {relay.base} is there and does not answer."
        advice = f"Look at: {program} logs. To end it: {program} stop --port {port} --force"
        yield Finding("relay", "bad", text, advice, "TR302")
    elif _is_taken(parts.hostname or "127.0.0.1", port):
        text = f"Port {port} is taken by another program."
        yield Finding("port", "bad", text, f"{program} serve --port {port + 1}", "TR306")
    else:
        yield Finding("relay", "note", f"None runs; port {port} is free.", f"{program} serve NAME, or: {program} demo")


def _origins(relay: DiagnosedRelay) -> Findings:
    from tabrelay.http.addresses import PolicyError, parse_origin

    for value in relay.settings.allow_origins:
        try:
            parse_origin(value)
        except PolicyError as problem:
            yield Finding("origins", "bad", f"TABRELAY_ALLOW_ORIGINS: {problem}", help="TR309")
    from tabrelay.admission.tokens import Tokens

    paired = sorted({grant.origin for grant in Tokens(relay.settings.home).issued() if grant.origin})
    if paired:
        yield Finding("origins", "ok", f"paired: {', '.join(paired)}")
    asking = relay.request("/-/pairs")["asking"] if relay.is_running else []
    for each in asking:
        text = f"{each['origin']} asks to offer tools as {each['server']!r}."
        advice = f"{running_relay.command()} pairs approve {each['code']}, if its page shows that code"
        yield Finding("origins", "note", text, advice)


def _refused(pages: Iterable[dict[str, Any]]) -> Findings:
    """Pages that the relay refused in the last hour. A browser does not tell them why."""
    for page in pages:
        if page["last_s"] <= REFUSALS_S:
            state: Literal["bad", "note"] = "note" if page["kind"] == "name" else "bad"
            text = f"A page of {page['origin']} that wants to use {page['server']!r} was refused: {page['message']}"
            advice = f"To admit it: {page['command']}" if page["command"] else ""
            yield Finding("page", state, text, advice, REFUSAL_HELP.get(page["kind"], ""))


def _servers(relay: DiagnosedRelay) -> Findings:
    if not relay.is_running:
        return
    status = relay.request("/-/status")
    yield from _refused(status.get("refused", ()))
    rows = status["servers"]
    program = running_relay.command()
    if not rows:
        yield Finding("servers", "note", "There are none yet.", f"Open a page that connects, or: {program} serve NAME")
    for row in rows:
        name, count = row["name"], len(row.get("tools", ()))
        tools = f"{count} tool{'' if count == 1 else 's'}"
        if row.get("state") == "online":
            yield Finding("server", "ok", f"{name}: online, {tools}")
        elif row.get("state") == "idle":
            text = f"{name}: its browser is connected and no page is open; {tools} of its worker answer"
            yield Finding("server", "note", text, f"Open the page that offers {name}")
        elif row.get("connection") in ("failed", "suspended", "waiting"):
            # An upstream: the relay itself has to connect to it, and can't.
            why = row.get("error") or "it can't be reached"
            advice = f"Fix its configuration or start it. Then: {program} reconnect {name}"
            text = f"{name}: {row['connection']}: {why}"
            yield Finding("server", "bad", text, "" if " login " in why else advice, "TR110")
        else:
            advice = row.get("problem") or f"Open the page that offers {name}, or look at: {program} status"
            yield Finding("server", "note", f"{name}: {row.get('state', 'offline')}, {tools} when last seen", advice)


# -- its clients -------------------------------------------------------------------------------------------------------


def _clients(relay: DiagnosedRelay) -> Findings:
    from tabrelay.cli.client_files.file import ConfigFile, FileError
    from tabrelay.cli.client_files.known import CLIENTS, UserFolders, starts_bridge

    known = relay.names
    is_any = False
    for client in CLIENTS:
        path = client.path(UserFolders.here())
        if not path.is_file():
            continue
        try:
            servers = ConfigFile(client, path).servers()
        except FileError as problem:
            advice = "Fix the file; the client can't read it either."
            yield Finding("client", "bad", f"{client.title}: {problem}", advice, "TR321")
            continue
        for name, entry in servers.items():
            if starts_bridge(entry):
                is_any = True
                yield _entry(client, name, entry, known)
    if not is_any:
        yield Finding(
            "clients",
            "note",
            "No client's configuration has a server of ours.",
            f"{running_relay.command()} install CLIENT NAME",
        )


def _entry(client: Any, name: str, entry: dict[str, Any], known: frozenset[str] | None) -> Finding:
    command, args = entry["command"], entry.get("args", [])
    words = [str(word) for word in (command if isinstance(command, list) else [command, *args])]
    if shutil.which(words[0]) is None:
        text = f"{client.title}: {name} starts {words[0]}, which is not there."
        return Finding(
            "client", "bad", text, f"{running_relay.command()} install {client.name} {name} --force", "TR321"
        )
    at = words.index("stdio") + 1
    target = words[at] if at < len(words) else ""
    if known is not None and "://" not in target and target not in known:
        text = f"{client.title}: {name} is for the server {target!r}, which the relay does not know."
        return Finding("client", "note", text, f"{running_relay.command()} serve {target}, or open its page")
    return Finding("client", "ok", f"{client.title}: {name}")


def _names(relay: DiagnosedRelay) -> set[str] | None:
    """The relay's server names; None if it does not answer."""
    status = _status(relay)
    return None if status is None else {row["name"] for row in status["servers"]}


def _status(relay: DiagnosedRelay) -> dict[str, Any] | None:
    if not relay.is_running:
        return None
    try:
        status = relay.request("/-/status")
        return {**status, "asking": relay.request("/-/pairs")["asking"]}
    except ExitWith:
        return None


def _get(url: str) -> Any:
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_S) as response:
            return json.load(response)
    except (OSError, ValueError):
        return None


def _is_taken(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


Checks = tuple[Callable[[DiagnosedRelay], Findings], ...]
LOCAL_CHECKS: Final[Checks] = (_program, _state, _assets, _browser)
RELAY_CHECKS: Final[Checks] = (_port, _token, _origins, _servers)
