"""The command line: help, settings, the port, output, and a clean end. The relay runs as a real process."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tabrelay import __version__
from tabrelay.cli.announcement import Announcement
from tabrelay.cli.main import _parser, main
from tabrelay.config.settings import ConfigError, Settings
from tabrelay.observe import log_setup
from tabrelay.server.runner import BindError, bind
from tabrelay.system.open_browser import PageOpener, has_display
from tests.support.recorder import Wiretap

WAIT_S = 30.0
VERBS = [
    verb for action in _parser()._actions if isinstance(action, argparse._SubParsersAction) for verb in action.choices
]
TOKEN = "tr_" + "k" * 43


def run(argv: Sequence[str]) -> int:
    """Calls the program as a script would: argparse's own exits count as its exit code."""
    try:
        return main(argv)
    except SystemExit as left:
        return int(left.code or 0)


# -- help and version


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example" in text
    assert "tabrelay" in text.partition("Example")[2]


def test_the_help_lists_every_verb_once_by_its_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    listed = [line.split()[0] for line in text.partition("Examples:")[0].splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(VERBS)
    assert "tabrelay call demo add a=2 b=3" in text.partition("Examples:")[2]
    assert run(["help"]) == 0
    assert capsys.readouterr().out == text


def test_help_of_a_command_and_of_an_action_is_the_same_as_with_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["call"], ["pairs", "approve"]):
        assert run([*words, "--help"]) == 0
        expected = capsys.readouterr().out
        assert run(["help", *words]) == 0
        assert capsys.readouterr().out == expected
    assert run(["help", "cal"]) == 2
    assert (
        capsys.readouterr().err == "tabrelay: 'cal' is not a command.\nDid you mean call?\nHelp: tabrelay help TR301\n"
    )


def test_the_version_is_printed_without_loading_the_relay() -> None:
    code = (
        "import sys\nfrom tabrelay.cli.main import main\n"
        "try: main(['--version'])\nexcept SystemExit as left: assert not left.code\n"
        "heavy = {'fastapi', 'starlette', 'uvicorn', 'orjson', 'pydantic', 'asyncio'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"tabrelay {__version__}\n", "")


@pytest.mark.parametrize("argv", [[], ["unknown"], ["demo", "--port", "x"], ["demo", "--nonsense"]])
def test_a_wrong_command_line_is_a_usage_error(argv: list[str]) -> None:
    assert run(argv) == 2


# -- settings


def test_serve_takes_names_and_flags_in_any_order() -> None:
    args = _parser("serve").parse_args(["serve", "tools", "-p", "3003", "ui:/db", "--plain", "ui", "more"])
    assert (args.servers, args.port, args.plain) == (["tools", "ui:/db", "more"], 3003, ["ui"])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["acp", "--hepl"], "unrecognized arguments: --hepl\nDid you mean --help?"),
        (["acp", "--srver", "notes", "--", "gemini", "--acp"], "Did you mean --server?"),
        (["acp", "gemini", "--acp"], "unrecognized arguments: --acp\nThe agent's command comes after --"),
        (["acp"], "tabrelay acp: AGENT is missing.\nExample: tabrelay acp -- "),
        (["call"], "URL|NAME and TOOL are missing."),
        (["completion"], "shell is missing."),
        (["tools", "demo", "-f", "jsn"], "'jsn' is not one of text, json, markdown.\nDid you mean json?"),
        (["demo", "--port", "x"], "-p/--port: 'x' is not a whole number.\nAll flags: tabrelay demo --help"),
        (["call", "demo", "--agrs", "{}"], "Did you mean --args?"),
        (["call", "demo", "add", "--a", "2"], "arguments: --a\nArguments of the tool have no dashes, as in: "),
        (["call", "demo", "add", "--b=2"], "arguments: --b=2\nArguments of the tool have no dashes, as in: "),
        (["--hepl"], "unrecognized arguments: --hepl\nDid you mean --help?"),
        (["serv"], "Did you mean serve?"),
        (["token", "revok", "x"], "Did you mean revoke?"),
        (["token", "--nmae", "x"], "unrecognized arguments: --nmae"),
        (["token", "revoke", "--hom", "x"], "NAME is missing."),
    ],
)
def test_a_misspelt_word_is_named_whatever_is_missing_beside_it(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert len(printed.splitlines()) == 3 and printed.endswith(" help TR301\n")


def test_flags_win_over_the_environment_and_that_over_the_defaults(tmp_path: Path) -> None:
    env = {"TABRELAY_PORT": "5000", "TABRELAY_HOST": "::1", "TABRELAY_HOME": str(tmp_path), "TABRELAY_GRACE_S": "2.5"}
    env |= {"TABRELAY_SERVERS": "a, b", "TABRELAY_OPEN_BROWSER": "off"}
    settings = Settings.from_args({"port": 6000, "host": None}, env)
    assert (settings.port, settings.host, settings.home, settings.grace_s) == (6000, "::1", tmp_path, 2.5)
    assert (settings.servers, settings.open_browser, settings.max_body) == (("a", "b"), False, 4 * 1024 * 1024)


@pytest.mark.parametrize(
    "env",
    [
        {"TABRELAY_PORT": "many"},
        {"TABRELAY_PORT": "70000"},
        {"TABRELAY_PORT": "-1"},
        {"TABRELAY_NO_AUTH": "maybe"},
        {"TABRELAY_GRACE_S": "soon"},
        {"TABRELAY_LOG_LEVEL": "loud"},
    ],
)
def test_a_setting_that_makes_no_sense_is_named(env: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        Settings.from_args({}, env)


def test_every_setting_has_a_description() -> None:
    assert all(item.metadata["help"] for item in fields(Settings))


# -- refusals before the start


def test_a_busy_port_is_answered_with_a_free_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["demo", "--port", str(port), "--home", str(tmp_path), "--no-open"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    free = int(said.err.splitlines()[0].rpartition(" ")[2])
    assert free != port
    expected = f"Port {port} is taken (maybe by another tabrelay). Free: {free}. Try: tabrelay demo --port {free}\n"
    expected += "Help: tabrelay help TR306\n"
    assert said.err == expected
    bind("127.0.0.1", free).close()
    (tmp_path / "my app").mkdir()
    with socket.create_server(("127.0.0.1", port)):
        assert run(["dev", str(tmp_path / "my app"), "--port", str(port), "--no-open"]) == 2
    hint = rf"Try: tabrelay dev '{tmp_path}/my app' --port \d+\n"
    assert re.search(hint, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--host", "0.0.0.0", "--dangerously-no-auth"], "loopback"),
        (["--host", "0.0.0.0", "--plain", "notes"], "loopback"),
        (["--host", "0.0.0.0", "--faults"], "loopback"),
        (["--plain", "a b"], "not allowed"),
        (["--allow-host", "*.example"], "--allow-host"),
        (["--allow-origin", "app.example"], "--allow-origin"),
        (["--log-level", "loud"], "log_level"),
        (["--port", "70000"], "65535"),
        (["--port", "abc"], "-p/--port: 'abc' is not a whole number."),
        (["Müll"], "Server name 'Müll' is not allowed"),
        (["a\u202eb"], r"Server name 'a\u202eb' is not allowed"),
        (["--host", "203.0.113.7"], "not an address of this computer"),
        (["-x"], "unrecognized arguments: -x\nAll flags: tabrelay serve --help"),
        (["notes", "--prot", "80"], "Did you mean --port?"),
        (["favicon.ico"], "reserved"),
        (["a b"], "not allowed"),
    ],
)
def test_impossible_options_are_reported_in_one_line(
    argv: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", *argv, "--home", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


def test_a_name_that_no_computer_has_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BindError, match="not an address or name"):
        bind("no.such.name.invalid", 0)


# -- token and pair


def test_token_prints_the_token_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["token", "--home", str(tmp_path / "state")]) == 0
    assert capsys.readouterr().out == (tmp_path / "state/token").read_text()


def printed(argv: Sequence[str], home: Path, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert run([*argv, "--home", str(home)]) == code
    said = capsys.readouterr()
    return said.err if code else said.out


def test_a_named_token_is_printed_once_listed_without_it_and_revoked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = printed(["token", "new", "laptop", "--server", "notes", "--days", "30"], tmp_path, capsys)
    assert len(token) == len("tr_") + 43 + 1
    other = printed(["token", "new", "page", "--for", "serve", "--for", "call"], tmp_path, capsys)
    table = printed(["token", "list"], tmp_path, capsys)
    rows = [line.split() for line in table.splitlines()]
    assert [row[0] for row in rows] == ["NAME", "default", "laptop", "page"]
    assert rows[2][1:3] + rows[2][-3:] == ["call", "notes", "in", "29", "d"]
    assert rows[3][1:4] == ["call,", "serve", "all"]
    listed = printed(["token", "list", "--json"], tmp_path, capsys)
    assert [row["servers"] for row in json.loads(listed)] == [["notes"], None]
    assert not {secret.strip() for secret in (token, other) if secret.strip() in table + listed}
    assert "laptop" in printed(["token", "revoke", "laptop"], tmp_path, capsys)
    assert "laptop" not in printed(["token", "list"], tmp_path, capsys)
    assert "token list" in printed(["token", "revoke", "laptop"], tmp_path, capsys, code=1)


def test_the_default_token_is_replaced_when_it_is_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = printed(["token"], tmp_path, capsys)
    printed(["token", "revoke", "default"], tmp_path, capsys)
    assert printed(["token"], tmp_path, capsys) != before


def test_the_state_directory_may_come_before_or_after_the_action(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(["token", "new", "a"], tmp_path, capsys)
    assert run(["token", "--home", str(tmp_path), "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "a"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["default"], "Use another one"),
        (["a b"], "A name has"),
        (["x", "--server", "a b"], "not allowed"),
        (["x", "--days", "0"], "more than 0"),
        (["x", "--days", "nan"], "more than 0"),
        (["x", "--for", "admin"], "'admin' is not one of call, serve, metrics"),
    ],
)
def test_an_impossible_token_is_reported_in_one_line(
    argv: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in printed(["token", "new", *argv], tmp_path, capsys, code=2)


def test_pair_without_a_relay_prints_how_to_start_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert run(["pair", "--port", str(port), "--home", str(tmp_path)]) == 3
    assert "tabrelay demo" in capsys.readouterr().err


# -- output when ready


def said(servers: tuple[str, ...] = ("demo",), **more: Any) -> Announcement:
    return Announcement("http://127.0.0.1:4747", "http://127.0.0.1:4747/-/demo/#pair=c0de", servers, TOKEN, **more)


def test_a_terminal_gets_commands_to_copy() -> None:
    text = said().text(is_terminal=True)
    url = "http://127.0.0.1:4747/demo"
    assert f'claude mcp add --transport http demo {url} --header "Authorization: Bearer {TOKEN}"' in text
    entries = [json.loads(line) for line in text.splitlines() if line.strip().startswith("{")]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert entries[0] == {"mcpServers": {"demo": {"url": url, "headers": headers}}}
    assert entries[1] == {"servers": {"demo": {"type": "http", "url": url, "headers": headers}}}
    assert "#pair=c0de" in text
    assert text.endswith("Ctrl+C stops.")


def test_a_pipe_gets_the_command_that_prints_the_token_instead_of_the_token() -> None:
    text = said(flags=" --home /x").text(is_terminal=False)
    assert TOKEN not in text
    assert "\x1b" not in text
    assert 'Bearer $(tabrelay token --home /x)"' in text


def test_without_auth_no_header_is_shown() -> None:
    assert "Authorization" not in said(needs_token=False).text(is_terminal=True)


def test_scripts_get_one_json_line() -> None:
    line = said(("a", "b")).json_line()
    assert "\n" not in line
    found = json.loads(line)
    assert found["url"].endswith("#pair=c0de")
    assert found["mcp_url"] == "http://127.0.0.1:4747/a"
    assert found["token"] == TOKEN
    assert found["servers"] == {"a": "http://127.0.0.1:4747/a", "b": "http://127.0.0.1:4747/b"}
    assert json.loads(said(()).json_line())["mcp_url"] == "http://127.0.0.1:4747/{server}"


# -- opening the page


def test_the_browser_is_given_a_private_file_and_never_the_code(tmp_path: Path) -> None:
    opened: list[str] = []
    opener = PageOpener(tmp_path, opened.append)
    opener.open("http://127.0.0.1:4747/#pair=c0de", keep_s=3600)
    file = tmp_path / "open.html"
    assert "http://127.0.0.1:4747/#pair=c0de" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 or os.name != "posix"
    opener.wait(WAIT_S)
    assert opened == [file.as_uri()]
    opener.close()
    assert not file.exists()


def test_a_browser_opens_only_where_there_is_a_display() -> None:
    assert has_display({"DISPLAY": ":0"}, "linux")
    assert has_display({"WAYLAND_DISPLAY": "wayland-0"}, "linux")
    assert not has_display({}, "linux")
    assert has_display({}, "darwin")
    assert not has_display({"SSH_CONNECTION": "1 2 3 4"}, "darwin")


# -- logs


@pytest.fixture
def stream() -> Any:
    root, target = logging.getLogger(), StringIO()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    names = [logging.getLogger(name) for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi")]
    levels = [logger.level for logger in names]
    log_setup.configure("trace", target)
    yield target
    root.handlers[:] = before
    root.setLevel(level)
    for logger, number in zip(names, levels, strict=True):
        logger.setLevel(number)


def test_no_secret_reaches_a_log_by_any_way(stream: StringIO) -> None:
    secrets = [TOKEN, "bearer.dHJfa2tra2tra2tra2s", "Bearer abcdefghijk", "http://x/#pair=MoDTckS_DNbEnZg9UYY1ug"]
    for logger in (logging.getLogger("uvicorn.error"), logging.getLogger("any.other"), logging.getLogger()):
        for secret in secrets:
            logger.warning("in the message: %s, in bytes: %r", secret, secret.encode())
            try:
                raise ValueError(secret)
            except ValueError:
                logger.exception("in a traceback")
    text = stream.getvalue()
    for hidden in (TOKEN, "dHJfa2tra2tra2tra2s", "abcdefghijk", "MoDTckS_DNbEnZg9UYY1ug"):
        assert hidden not in text
    assert text.count("[redacted]") >= 3 * len(secrets) * 3


# -- the relay as a process


class Process:
    """A running relay, its output, and its end."""

    def __init__(self, process: asyncio.subprocess.Process, home: Path) -> None:
        self._process = process
        self.home = home

    async def line(self) -> str:
        assert self._process.stdout is not None
        return (await asyncio.wait_for(self._process.stdout.readline(), WAIT_S)).decode()

    async def stop(self, number: signal.Signals) -> tuple[int, str, str]:
        self._process.send_signal(number)
        out, err = await asyncio.wait_for(self._process.communicate(), WAIT_S)
        assert self._process.returncode is not None
        return self._process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def relay(home: Path, *argv: str) -> AsyncIterator[Process]:
    tap = Wiretap()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tabrelay", *argv, "--port", "0", "--home", str(home)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **tap.env},
    )
    try:
        yield Process(process, home)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    tap.read()
    tap.finish()


async def fetch(method: str, url: str, *headers: str) -> tuple[int, bytes]:
    """One request on a raw connection, without a client library that would change it."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    lines = [f"{method} {parts.path or '/'} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close", *headers, "", ""]
    writer.write("\r\n".join(lines).encode())
    answer = await asyncio.wait_for(reader.read(), WAIT_S)
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_script_gets_its_line_then_silence_then_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    async with relay(tmp_path / "state", "demo", "--json") as process:
        found = json.loads(await process.line())
        assert (await fetch("GET", found["url"].partition("#")[0]))[0] == 200
        assert (await fetch("POST", found["mcp_url"]))[0] == 401
        allowed = await fetch("POST", found["mcp_url"], f"Authorization: Bearer {found['token']}", "Content-Length: 0")
        assert allowed[0] not in (401, 403, 404, 421)
        assert await process.stop(number) == (0, "", "")
    assert not list((tmp_path / "state/relays").iterdir())


async def test_at_the_loudest_level_no_secret_is_written_anywhere(tmp_path: Path) -> None:
    async with relay(tmp_path / "state", "serve", "notes", "--json", "--log-level", "trace") as process:
        found = json.loads(await process.line())
        await fetch("GET", found["mcp_url"], f"Authorization: Bearer {found['token']}")
        code, out, err = await process.stop(signal.SIGTERM)
    assert (code, out) == (0, "")
    assert "uvicorn" in err
    assert found["token"] not in err
    assert found["url"].partition("#pair=")[2] not in err


async def test_an_open_connection_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with relay(tmp_path / "state", "demo", "--json") as process:
        found = json.loads(await process.line())
        parts = urlsplit(found["mcp_url"])
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        # A request whose body never arrives: only the relay can end it.
        head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {found['token']}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 99\r\n\r\n".encode())
        await writer.drain()
        assert (await fetch("GET", f"{found['base_url']}/-/healthz"))[0] == 200
        code, out, err = await process.stop(signal.SIGTERM)
        writer.close()
        assert (code, out) == (0, "")
        assert "Traceback" not in err


async def test_pair_finds_the_running_relay_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with relay(tmp_path / "state", "demo", "--json") as process:
        found = json.loads(await process.line())
        code = await asyncio.to_thread(run, ["pair", "--json", "--home", str(process.home)])
        answer = json.loads(capsys.readouterr().out)
        assert code == 0
        assert answer["url"].startswith(f"{found['base_url']}/#pair=")
        assert answer["expires_s"] == 600
        await process.stop(signal.SIGTERM)


async def post(url: str, origin: str, body: dict[str, str]) -> Any:
    """As a page of that origin does."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    text = json.dumps(body)
    lines = [f"POST {parts.path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close", f"Origin: {origin}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(text)}", "", text]
    writer.write("\r\n".join(lines).encode())
    answer = await asyncio.wait_for(reader.read(), WAIT_S)
    writer.close()
    await writer.wait_closed()
    return json.loads(answer.partition(b"\r\n\r\n")[2])


async def test_a_page_that_asks_is_shown_in_the_terminal_and_answered_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app, home = "https://app.example", tmp_path / "state"

    async def pairs(*argv: str, code: int = 0) -> str:
        return await asyncio.to_thread(printed, ["pairs", *argv], home, capsys, code)

    async with relay(home, "serve", "--json") as process:
        base = json.loads(await process.line())["base_url"]
        first = await post(f"{base}/-/ask", app, {"server": "notes"})
        assert first["code"] in await pairs()
        assert (await post(f"{base}/-/ask", "http://evil.example", {"server": "notes"}))["code"] in await pairs("list")
        await pairs("approve", "2222-2222", code=1)
        assert f'{app} may offer tools as "notes" now' in await pairs("approve", first["code"])
        got = await post(f"{base}/-/ask/answer", app, {"request": first["request"]})
        assert got["token"].startswith("tr_")
        asking = json.loads(await pairs("--json"))["asking"]
        assert [row["origin"] for row in asking] == ["http://evil.example"]
        assert "Refused: http://evil.example" in await pairs("refuse", asking[0]["code"])
        assert (await fetch("GET", f"{base}/notes", f"Authorization: Bearer {got['token']}"))[0] == 403
        code, _, err = await process.stop(signal.SIGTERM)
    assert code == 0
    assert f'{app} wants to offer tools as "notes" — code {first["code"]}\n' in err
    assert f"pairs approve {first['code']} --home {home}" in err
    assert "http://evil.example (not encrypted) wants" in err
    assert got["token"] not in err and first["request"] not in err
    # The list and the revocation need no running relay.
    table = await pairs()
    assert table.splitlines()[1].split()[1:3] == [app, "notes"]
    assert app in await pairs("revoke", table.splitlines()[1].split()[0])
    assert await pairs("list") == "No page is paired.\n"
    await pairs("revoke", app, code=1)


async def test_a_person_gets_the_addresses_and_how_to_stop(tmp_path: Path) -> None:
    async with relay(tmp_path / "state", "demo", "--no-open") as process:
        assert "ready" in await process.line()
        code, out, err = await process.stop(signal.SIGINT)
    assert (code, err) == (0, "")
    assert "/-/demo/#pair=" in out
    assert "MCP URL  http://127.0.0.1:" in out
    assert "Ctrl+C stops." in out
    assert (tmp_path / "state/token").read_text().strip() not in out


def test_the_installed_command_is_the_same_program() -> None:
    command = str(Path(sys.executable).parent / "tabrelay")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.stdout == f"tabrelay {__version__}\n"
