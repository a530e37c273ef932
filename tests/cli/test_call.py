"""`tabrelay tools`, `tabrelay call` and `tabrelay stdio --check`, as users and scripts start them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tabrelay.bridge.client import McpClient, RequestFailed
from tabrelay.bridge.credentials import Fixed
from tabrelay.bridge.http import HttpEndpoint as Http
from tabrelay.bridge.outbound import Outbound, OutboundLimits
from tabrelay.bridge.target import UrlTarget
from tabrelay.cli import wait_notice
from tabserver import Context, Elicit, Image, ToolError
from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.cpython_worker import CPythonWorker
from tests.support.fake_upstream import Reply, Upstream, hang, result, status
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S

WAIT_S = BOUND_S


class Tools(Toolbox):
    def __init__(self) -> None:
        super().__init__()
        self.cancelled = asyncio.Event()

        @tool(toolbox=self)
        def add(a: int, b: int = 1) -> int:
            """Add two numbers."""
            return a + b

        @tool(toolbox=self)
        def fail() -> str:
            """Fail."""
            raise ToolError("it \x1b[31mburns")

        @tool(toolbox=self)
        def picture() -> Image:
            """A picture."""
            return Image(b"\x89PNG picture", "image/png")

        @tool(toolbox=self)
        async def steps(context: Context) -> str:
            """Take three steps."""
            for step in (1, 2, 3):
                context.progress(step, 3, f"step {step}")
                await asyncio.sleep(0)
            return "done"

        @tool(toolbox=self)
        async def greet(context: Context) -> str:
            """Ask who it is."""
            schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
            answer: Any = await context.ask(Elicit("Who are you?", schema))
            return f"Hello {answer.content['name']}"

        @tool(toolbox=self)
        async def hang(context: Context) -> str:
            """Run until cancelled."""
            context.progress(1, 2)
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
            return "never"


@dataclass(frozen=True, slots=True)
class Stage:
    home: Path
    url: str
    tools: Tools


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    home, tools = tmp_path / "home", Tools()
    async with (
        RunningRelay(home, is_registered=True) as relay,
        CPythonWorker(relay.url, relay.token, "notes", tools),
    ):
        yield Stage(home, relay.url, tools)


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


async def tabrelay(*arguments: Any, cwd: Path | None = None, stdin: bytes = b"") -> Ended:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tabrelay", *map(str, arguments), stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd
    )
    try:
        async with asyncio.timeout(WAIT_S):
            out, err = await process.communicate(stdin)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert b"Traceback" not in err, err
    return Ended(process.returncode or 0, out.decode(), err.decode())


async def test_tools_are_listed_and_called_by_name(stage: Stage, tmp_path: Path) -> None:
    here = ("notes", "--home", stage.home)
    listed = await tabrelay("tools", *here)
    assert listed.code == 0 and listed.out.startswith("add\n    Add two numbers.\n      a: integer\n")
    one = await tabrelay("tools", *here, "--tool", "add", "-f", "json")
    assert [row["name"] for row in json.loads(one.out)] == ["add"]
    none = await tabrelay("tools", *here, "--tool", "multiply")
    assert (none.code, none.out) == (4, "") and "no tool 'multiply'" in none.err

    called = await tabrelay("call", *here, "add", "--args", '{"a": 2, "b": 3}')
    assert (called.code, called.out, called.err) == (0, "5\n", "")
    pairs = await tabrelay("call", *here, "add", "--args", '{"a": 2}', "-a", "b=40", "-f", "json")
    assert json.loads(pairs.out)["structuredContent"] == {"result": 42}
    (tmp_path / "args.json").write_text('{"a": 7}')
    assert (await tabrelay("call", *here, "add", "--args", f"@{tmp_path}/args.json")).out == "8\n"
    assert (await tabrelay("call", *here, "add", "--args", "-", stdin=b'{"a": 8}')).out == "9\n"

    failed = await tabrelay("call", *here, "fail")
    assert (failed.code, failed.out) == (1, "it \x1b[31mburns\n"), "in a pipe, bytes are bytes"
    wrong = await tabrelay("call", *here, "add", "-a", "a=x")
    assert (wrong.code, wrong.err) == (2, "a: 'x' is not an integer.\nHelp: tabrelay help TR320\n")
    words = await tabrelay("call", "notes", "add", "a=2", "--home", stage.home, "b=3", "--json")
    assert json.loads(words.out)["structuredContent"] == {"result": 5}


async def test_output_and_pictures_go_into_files(stage: Stage, tmp_path: Path) -> None:
    here = ("notes", "--home", stage.home)
    shown = await tabrelay("call", *here, "picture", cwd=tmp_path)
    assert shown.out == "[image, image/png: picture-1.png]\n"
    assert (tmp_path / "picture-1.png").read_bytes() == b"\x89PNG picture"
    (tmp_path / "out").mkdir()
    written = await tabrelay("call", *here, "picture", "-f", "markdown", "-o", "out/page.md", cwd=tmp_path)
    text = (tmp_path / "out" / "page.md").read_bytes()
    files = {"page.md": len(text), "picture-1.png": 12}
    lines = [f"Written: {tmp_path / 'out' / name} ({size} bytes)" for name, size in files.items()]
    assert (written.err.splitlines(), written.out) == (lines, "")
    assert text == b"![image](picture-1.png)\n"
    assert (tmp_path / "out" / "picture-1.png").read_bytes() == b"\x89PNG picture"
    whole = await tabrelay("call", *here, "picture", "-f", "json", "-o", tmp_path / "whole.json")
    assert whole.code == 0
    [block] = json.loads((tmp_path / "whole.json").read_text())["content"]
    assert base64.b64decode(block["data"]) == b"\x89PNG picture"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["call", "notes", ""], "empty"),
        (["call", "notes", "add", "--args", "{"], "not JSON"),
        (["call", "notes", "add", "--args", "[1]"], "JSON object"),
        (["call", "notes", "add", "--args", '{"a": NaN}'], "NaN is not a finite number"),
        (["call", "notes", "add", "--args", '{"a": -1e400}'], "-1e400 is not a finite number"),
        (["call", "notes", "add", "--args", "[" * 100_000], "not JSON"),
        (["call", "notes", "add", "--args", "@nowhere"], "can't be read"),
        (["call", "notes", "add", "-a", "a"], "NAME=VALUE"),
        (["call", "notes", "add", "-o", "../x"], ".."),
        (["call", "notes", "add", "-o", "nowhere/x"], "no directory"),
        (["call", "notes", "add", "-f", "xml"], "is not one of text, json, markdown"),
        (["call", "http://example.com/", "add"], "--allow-insecure-http"),
        (["tools"], "URL|NAME"),
    ],
)
async def test_typing_errors_are_reported_before_any_call(arguments: list[str], words: str) -> None:
    ended = await tabrelay(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err


async def test_exit_codes_distinguish_the_causes_of_failure(tmp_path: Path) -> None:
    for name, verb in (("notes", "serve notes"), ("demo", "demo")):
        alone = await tabrelay("call", name, "x", "--home", tmp_path, "--port", "9")
        expected = f"No relay answers at http://127.0.0.1:9. Start one: tabrelay {verb}\n"
        assert (alone.code, alone.out, alone.err) == (3, "", f"{expected}Help: tabrelay help TR302\n")
    flags = ("--home", tmp_path, "--grant", "none")
    assert (await tabrelay("call", "http://127.0.0.1:9/", "x", *flags)).code == 3
    async with Upstream({"server/discover": status(401)}) as server:
        refused = await tabrelay("call", server.url, "x", *flags)
        assert refused.code == 3 and "--token-env" in refused.err
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "No such tool"}}
    async with Upstream({"tools/call": status(200, json.dumps(error).encode())}) as server:
        unknown = await tabrelay("call", server.url, "x", *flags)
        assert (unknown.code, unknown.err) == (4, "No such tool\nHelp: tabrelay help TR308\n")


async def test_a_call_that_waits_for_a_page_prints_until_when_and_succeeds_with_the_page(tmp_path: Path) -> None:
    pipe, home = asyncio.subprocess.PIPE, tmp_path / "home"
    async with RunningRelay(home, servers=("notes",), is_registered=True, away_wait_s=BOUND_S) as relay:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tabrelay", "call", "notes", "add", "a=2", "--json", "--home", str(home)),
            stdout=pipe,
            stderr=pipe,
        )
        assert process.stderr is not None
        async with asyncio.timeout(WAIT_S):
            waits = await process.stderr.readline()
            async with CPythonWorker(relay.url, relay.token, "notes", Tools()):
                out, more = await process.communicate()
    assert re.fullmatch(r'Waiting until \d\d:\d\d:\d\d for a page that offers "notes". Open it.\n', waits.decode())
    assert (process.returncode, json.loads(out)["structuredContent"], more) == (0, {"result": 3}, b"")


def test_the_wait_for_a_page_ends_at_the_time_that_is_shown() -> None:
    row = {"name": "notes", "state": "offline", "kind": "browser"}
    status = {"away_wait_s": 10.0, "servers": [row]}
    assert wait_notice.waits_until(status, "notes", 5.0) == wait_notice.waits_until(status, "notes~1", 5.0) == 15.0
    assert wait_notice.waits_until(status, "other", 5.0) is None
    for change in ({"state": "online"}, {"state": "idle"}, {"kind": "http"}):
        assert wait_notice.waits_until({**status, "servers": [row | change]}, "notes", 5.0) is None


async def test_without_a_page_the_error_is_that_it_is_away_also_for_a_name_that_is_given_twice(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes",), is_registered=True, away_wait_s=0.1):
        away = await tabrelay("call", "notes", "add", "list=a", "list=b", "--home", tmp_path)
    assert (away.code, away.err.splitlines()) == (
        4,
        ['Server "notes" is not connected. Open its page (it was never seen here).', "Help: tabrelay help TR101"],
    )


async def test_a_question_of_the_server_is_asked_at_the_terminal_and_the_bar_is_drawn(stage: Stage) -> None:
    """A real terminal: only there the user is asked and a progress bar is drawn."""
    for name, typed, expected in (("greet", b"y\nAda\n", "Hello Ada"), ("steps", b"", "done")):
        master, slave = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tabrelay", "call", "notes", name, "--home", str(stage.home)),
            stdin=slave,
            stdout=asyncio.subprocess.PIPE,
            stderr=slave,
        )
        os.close(slave)
        os.write(master, typed)
        seen = b""

        def read(master: int = master) -> bytes:
            try:
                return os.read(master, 65536)
            except OSError:
                return b""

        async with asyncio.timeout(WAIT_S):
            while chunk := await asyncio.to_thread(read):
                seen += chunk
            out, _ = await process.communicate()
        os.close(master)
        assert (process.returncode, out.decode().strip()) == (0, expected), seen
        assert (b"Who are you?" if typed else "[████████················]  33%  step 1".encode()) in seen


async def test_without_a_terminal_the_user_is_not_asked(stage: Stage) -> None:
    ended = await tabrelay("call", "notes", "greet", "--home", stage.home)
    assert ended.code in (1, 4) and "Hello" not in ended.out


async def test_ctrl_c_cancels_the_call(stage: Stage) -> None:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "tabrelay", "call", "notes", "hang", "--home", str(stage.home))
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(WAIT_S):
        while not stage.tools.cancelled.is_set() and process.returncode is None:
            if await _is_running(stage):
                process.send_signal(signal.SIGINT)
                break
        _, err = await process.communicate()
        await stage.tools.cancelled.wait()
    assert (process.returncode, err) == (130, b"Cancelled.\n")


async def _is_running(stage: Stage) -> bool:
    import httpx2

    token = (stage.home / "token").read_text().strip()
    async with httpx2.AsyncClient(trust_env=False) as http:
        status = (await http.get(f"{stage.url}/-/status", headers={"Authorization": f"Bearer {token}"})).json()
    return any(server.get("running") or server.get("calls") for server in status["servers"])


# -- --check -----------------------------------------------------------------------------------------------------------


async def test_a_check_that_succeeds_prints_one_screen(stage: Stage) -> None:
    ended = await tabrelay("stdio", "notes", "--home", stage.home, "--check")
    assert ended.code == 0 and len(ended.out.splitlines()) < 20
    assert "protocol   2026-07-28" in ended.out
    assert "tools      6: add, fail, picture, steps, greet, hang" in ended.out
    entry = json.loads(ended.out.splitlines()[-1])
    assert Path(entry["command"]).is_absolute() and entry["args"][-2:] == ["stdio", "notes"]


async def test_a_check_that_fails_prints_the_problem_and_the_remedy(tmp_path: Path) -> None:
    down = await tabrelay("stdio", "notes", "--home", tmp_path, "--port", 9, "--check")
    expected = "  failed     No relay answers at http://127.0.0.1:9. Start one: tabrelay serve notes\n"
    assert down.code == 1 and expected in down.out and down.out.endswith("\nHelp: tabrelay help TR302\n")
    async with Upstream({"server/discover": status(401)}) as server:
        refused = await tabrelay("stdio", server.url, "--grant", "none", "--home", tmp_path, "--check")
        assert refused.code == 1 and "upstream returned 401" in refused.out
        assert refused.out.rstrip().endswith(" help TR504")


async def test_a_check_prints_json_for_programs(stage: Stage, tmp_path: Path) -> None:
    ended = await tabrelay("stdio", "notes", "--home", stage.home, "--check", "--json")
    found = json.loads(ended.out)
    assert (ended.code, found["ok"], found["protocol"], found["handshake"]) == (0, True, "2026-07-28", False)
    assert found["tools"] == ["add", "fail", "picture", "steps", "greet", "hang"]
    assert found["entry"]["args"][-2:] == ["stdio", "notes"]
    down = await tabrelay("stdio", "notes", "--home", tmp_path, "--port", 9, "--check", "--json")
    failed = json.loads(down.out)
    assert (down.code, failed["ok"], failed["help"]) == (1, False, "TR302")
    assert failed["error"].startswith("No relay answers at http://127.0.0.1:9. Start one: ")
    assert (await tabrelay("stdio", "notes", "--json")).code == 2


async def test_a_check_of_an_older_server_shakes_hands(tmp_path: Path) -> None:
    async with Upstream({"tools/list": result({"tools": []})}, version="2025-06-18") as server:
        ended = await tabrelay("stdio", server.url, "--home", tmp_path, "--check")
        assert ended.code == 0 and "protocol   2025-06-18, with a handshake" in ended.out


# -- the client --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def client(server: Upstream) -> AsyncIterator[McpClient]:
    outbound = Outbound(Http(UrlTarget(server.url)), Fixed(None, "No."), {}, OutboundLimits(timeout_ms=10_000))
    async with McpClient(outbound) as talk:
        yield talk
    await outbound.close()


async def test_pages_of_a_list_are_put_together() -> None:
    async def pages(reply: Reply) -> None:
        cursor = reply.seen.message["params"].get("cursor", 0)
        await reply.result({"tools": [{"name": str(cursor)}], **({"nextCursor": cursor + 1} if cursor < 3 else {})})

    async with Upstream({"tools/list": pages}) as server, client(server) as talk:
        await talk.negotiate()
        assert [row["name"] for row in await talk.all("tools/list", "tools")] == ["0", "1", "2", "3"]


async def test_a_server_that_asks_without_end_is_disconnected() -> None:
    more = {"resultType": "input_required", "inputRequests": {}, "requestState": "s"}
    async with Upstream({"tools/call": result(more)}) as server, client(server) as talk:
        await talk.negotiate()
        with pytest.raises(RequestFailed, match="10 times"):
            await talk.call("x", {})
        assert len(server.all("tools/call")) == 10


async def test_questions_that_the_client_can_not_answer_are_refused() -> None:
    asked = {"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}}
    replies: asyncio.Queue[Any] = asyncio.Queue()

    async def call(reply: Reply) -> None:
        await reply.stream()
        await reply.event(asked)
        await reply.event({**asked, "id": "p", "method": "ping"})
        answers = [await replies.get(), await replies.get()]
        await reply.answer({"content": [], "answers": answers})
        await reply.end()

    async def take(reply: Reply) -> None:
        await reply.accepted()
        replies.put_nowait(reply.seen.message)

    async with Upstream({"tools/call": call, "answer": take}) as server, client(server) as talk:
        await talk.negotiate()
        answers = {row["id"]: row for row in (await talk.call("x", {}))["answers"]}
        assert answers["q"]["error"]["code"] == -32601 and answers["p"]["result"] == {}


async def test_a_value_without_a_json_form_fails_at_once() -> None:
    async with Upstream({"tools/call": result({})}) as server, client(server) as talk:
        await talk.negotiate()
        with pytest.raises(RequestFailed, match="no JSON form"):
            await talk.call("x", {"a": float("nan")})
        assert not server.all("tools/call")


async def test_a_call_that_is_given_up_is_cancelled_at_the_server() -> None:
    async with Upstream({"tools/call": hang}) as server, client(server) as talk:
        await talk.negotiate()
        calling = asyncio.create_task(talk.call("x", {}))
        [seen] = await server.until_seen("tools/call")
        calling.cancel()
        [cancelled] = await server.until_seen("notifications/cancelled")
        assert cancelled.message["params"] == {"requestId": seen.message["id"]}
