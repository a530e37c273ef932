"""`tabrelay stdio` as clients start it: a child process with three pipes; its imports, output, signals and end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bridge_harness import BridgeProcess, request
from tests.support.child_process import quiet
from tests.support.child_specs import is_alive, until
from tests.support.fake_upstream import Reply, Upstream, hang, result, status
from tests.support.waiting import BOUND_S

SECRET = "canary-" + "q" * 24


async def test_a_conversation_and_its_end() -> None:
    on = {"tools/call": result({"content": []}), "DELETE": status(200)}
    async with Upstream(on) as server, BridgeProcess(server.url) as child:
        assert (await child.initialize())["result"]["serverInfo"]["name"] == "upstream"
        assert (await child.ask("tools/call", id="ä"))["id"] == "ä"
        child.close()
        assert await child.ended() == 0
        assert await child.log() == ""
        await server.until_seen("DELETE")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_it_with_0_and_without_a_word(number: signal.Signals) -> None:
    async with Upstream({"x": hang}) as server, BridgeProcess(server.url) as child:
        await child.initialize()
        await child.send(request("x"))
        await server.until_seen("x")
        child.process.send_signal(number)
        assert await child.ended() == 0
        assert await child.log() == ""


async def test_at_the_end_of_input_a_call_that_hangs_does_not_keep_it() -> None:
    async with Upstream({"x": hang, "GET": hang}) as server, BridgeProcess(server.url) as child:
        await child.initialize()
        await child.send(request("x"))
        await server.until_seen("x")
        child.close()
        assert await child.ended() == 0
        assert await child.log() == ""


async def test_while_initialize_hangs_the_end_of_input_is_noticed() -> None:
    async with Upstream({"initialize": hang}) as server, BridgeProcess(server.url) as child:
        await child.send(request("initialize", {}))
        await server.until_seen("initialize")
        child.close()
        assert await child.ended() == 0


async def test_a_closed_stdout_is_no_error_and_ends_it() -> None:
    async with Upstream() as server, BridgeProcess(server.url) as child:
        await child.initialize()
        child.close_output()
        await child.send(request("ping"))
        assert await child.ended() == 0
        assert await child.log() == ""


async def test_a_client_that_is_killed_leaves_no_bridge_behind(tmp_path: Path) -> None:
    """The client starts the bridge and is killed with SIGKILL: the bridge only sees the end of its pipe."""
    note = tmp_path / "pid"
    client = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'tabrelay', 'stdio', sys.argv[1]],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        'child.stdin.write(b\'{"jsonrpc":"2.0","id":1,"method":"x"}\\n\'); child.stdin.flush()\n'
        "open(sys.argv[2], 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    async with Upstream({"x": hang}) as server:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", client, server.url, str(note))
        await server.until_seen("x")
        pid = int(note.read_text())
        process.kill()
        await process.wait()
        await until(lambda: not is_alive(pid))  # its parent has ended


async def test_a_program_that_is_asked_for_a_token_ends_with_the_bridge(tmp_path: Path) -> None:
    """In every way: the client closes its pipes, or a signal arrives."""
    note = tmp_path / "pid"
    code = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    for is_signal in (False, True):
        note.unlink(missing_ok=True)
        async with (
            Upstream() as server,
            BridgeProcess(server.url, "--token-command", f'{sys.executable} -c "{code}"') as child,
        ):
            await until(lambda: note.exists() and note.read_text())
            if is_signal:
                child.process.terminate()
            else:
                child.close()
            assert await child.ended() == 0
            await until(lambda: not is_alive(int(note.read_text())))
            assert server.seen == []


async def test_a_bridge_that_is_killed_lets_go_of_the_server() -> None:
    gone = asyncio.Event()

    async def slow(reply: Reply) -> None:
        await reply.stream()
        await reply.is_gone.wait()
        gone.set()

    async with Upstream({"x": slow}) as server, BridgeProcess(server.url) as child:
        await child.send(request("x"))
        await server.until_seen("x")
        child.process.kill()
        assert await child.ended() == -signal.SIGKILL
        async with asyncio.timeout(BOUND_S):
            await gone.wait()


async def test_characters_split_between_reads_arrive_whole() -> None:
    async with Upstream({"x": result({})}) as server, BridgeProcess(server.url) as child:
        line = json.dumps(request("x", {"text": "ä€𝄞"}), ensure_ascii=False).encode() + b"\r\n"
        for byte in line:
            await child.write(bytes([byte]))
        assert (await child.next())["result"] == {}
        assert server.seen[0].message["params"] == {"text": "ä€𝄞"}


async def test_a_server_that_does_not_read_does_not_hold_up_the_rest() -> None:
    """It accepts the connection and reads nothing: the large message waits, the small ones pass it."""
    accepted, over = asyncio.Event(), asyncio.Event()

    async def never_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split()[0])
        if size > 1_000_000:
            accepted.set()
            await over.wait()
        else:
            body = json.loads(await reader.readexactly(size))
            answer = json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": {}}).encode()
            lines = ["HTTP/1.1 200 OK", "Content-Type: application/json", f"Content-Length: {len(answer)}", "", ""]
            writer.write("\r\n".join(lines).encode() + answer)
        writer.close()

    server = await asyncio.start_server(never_read, "127.0.0.1", 0, limit=1 << 16)
    port = server.sockets[0].getsockname()[1]
    async with BridgeProcess(f"http://127.0.0.1:{port}/mcp", "--grant", "none") as child:
        writing = asyncio.create_task(child.send(request("x", {"big": "y" * 20_000_000}, 1)))
        await accepted.wait()
        await writing
        assert (await child.ask("ping", id=2))["id"] == 2
        child.close()
        assert await child.ended() == 0
    over.set()
    server.close()


async def test_lines_of_fifty_megabytes_cross_both_ways() -> None:
    async def echo(reply: Reply) -> None:
        body = b'{"jsonrpc":"2.0","id":1,"result":"' + reply.seen.body[-50_000_002:-2]
        await reply.body(body + b'"}', type="application/json")

    async with Upstream({"x": echo}) as server, BridgeProcess(server.url) as child:
        payload = b"z" * 50_000_000
        writing = asyncio.create_task(
            child.write(b'{"jsonrpc":"2.0","id":1,"method":"x","params":"' + payload + b'"}\n')
        )
        line = await child.line()
        await writing
        assert line == b'{"jsonrpc":"2.0","id":1,"result":"' + payload + b'"}'
        assert (await child.ask("ping", id=2))["result"] == {}


async def test_a_line_that_is_too_long_is_answered_and_the_next_one_read() -> None:
    async with Upstream() as server, BridgeProcess(server.url) as child:
        writing = asyncio.create_task(child.write(b'{"jsonrpc":"2.0","id":7,"params":"' + b"z" * (65 << 20) + b'"}\n'))
        answer = await child.next()
        await writing
        assert (answer["id"], answer["error"]["code"]) == (7, -32600)
        assert (await child.ask("ping", id=2))["result"] == {}
        assert server.methods == ["ping"]


async def test_a_client_that_does_not_read_slows_the_server_down() -> None:
    """Nothing is lost and the memory is bounded: unread data stays in the sender."""
    sent = 0

    async def flood(reply: Reply) -> None:
        nonlocal sent
        await reply.stream()
        event = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "y" * 1_000_000}}
        for _ in range(60):
            await reply.event(event)
            sent += 1
        await reply.answer("done")
        await reply.end()

    async with Upstream({"x": flood}) as server, BridgeProcess(server.url) as child:
        child.pause()
        await child.send(request("x"))
        await quiet(child.process.pid)
        assert sent < 60
        child.resume()
        lines = [json.loads(await child.line()) for _ in range(61)]
        assert lines[-1]["result"] == "done" and all("method" in line for line in lines[:-1])


# -- secrets -----------------------------------------------------------------------------------------------------------


async def test_no_secret_is_logged_even_at_trace() -> None:
    async def tell(reply: Reply) -> None:
        await reply.body(str(reply.seen.headers).encode(), 403)

    flags = ("--log-level", "trace", "--header", "X-Key:${KEY}", "--header", "Authorization: Bearer ${TOKEN}")
    env = {"KEY": "key-" + SECRET, "TOKEN": "token-" + SECRET}
    async with Upstream({"x": tell}) as server, BridgeProcess(server.url, *flags, env=env) as child:
        await child.send(request("x"))
        line = await child.line()
        child.close()
        await child.ended()
        log = await child.log()
    assert server.seen[0].headers["x-key"] == env["KEY"]
    assert server.seen[0].headers["authorization"] == f"Bearer {env['TOKEN']}"
    assert "POST" in log and SECRET not in log
    assert b"upstream returned 403" in line and SECRET.encode() not in line


# -- flags -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["http://example.com/mcp"], "--allow-insecure-http"),
        (["http://192.168.0.7/mcp"], "--allow-insecure-http"),
        (["ftp://127.0.0.1/"], "https://"),
        (["http://"], "https://"),
        (["http://127.0.0.1:99999/"], "not a URL"),
        (["no/name"], "neither a URL nor a server name"),
        (["notes", "--header", "Authorization:"], "no value"),
        (["notes", "--header", "X:${NOT_SET_ANYWHERE}"], "NOT_SET_ANYWHERE"),
        (["notes", "--token-env", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE"),
        (["notes", "--token-env", "A", "--token-command", "b"], "not allowed with"),
        (["notes", "--header", "Authorization: x", "--token-env", "HOME"], "Two tokens"),
        (["notes", "--token-command", "no-such-program-here"], "can't be started"),
        (["notes", "--token-file", "/no/such/file"], "token file"),
        (["notes", "--timeout", "0"], "--timeout"),
        (["notes", "--max-buffer", "much"], "8MiB"),
        (["notes", "--log-level", "loud"], "log_level"),
    ],
)
def test_impossible_options_are_reported_at_the_start_with_code_2(arguments: list[str], words: str) -> None:
    command = [sys.executable, "-m", "tabrelay", "stdio", *arguments]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


HEAVY = ("fastapi", "httpx2", "mcp", "pydantic", "starlette", "uvicorn", "websockets", "anyio", "importlib.metadata")


def test_before_the_first_byte_nothing_heavy_is_loaded() -> None:
    """A client waits for this program to start. HTTP is loaded with the first message, OAuth when it is needed."""
    code = (
        "import sys, tabrelay.bridge.stdio as pipes\n"
        "pipes.Stdin._read = lambda self, loop: loop.call_soon_threadsafe(self._chunks.put_nowait, b'')\n"
        "from tabrelay.cli.main import main\n"
        "main(['stdio', 'http://127.0.0.1:9/x', '--token-env', 'TOKEN'])\n"
        "print(*sorted(sys.modules))"
    )
    env = {**os.environ, "TOKEN": SECRET}
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=env, check=True
    )
    loaded = set(ended.stdout.split())
    assert "tabrelay.bridge.bridge" in loaded
    assert [name for name in HEAVY if name in loaded] == []
    ours = {name for name in loaded if name.startswith(("tabrelay.", "tabserver."))}
    packages = {name for name in ours if any(other.startswith(f"{name}.") for other in ours)}
    assert {name for name in ours - packages if not name.startswith(("tabrelay.bridge.", "tabrelay.cli."))} == {
        "tabrelay.calls.proof",
        "tabrelay.config.settings",
        "tabrelay.errors",
        "tabrelay.http.addresses",
        "tabrelay.http.param_headers",
        "tabrelay.http.sse_parser",
        "tabrelay.mcp_headers",
        "tabrelay.observe.log_setup",
        "tabrelay.payloads.json_spans",
        "tabrelay.payloads.printable_text",
        "tabrelay.system.pipe_lines",
        "tabrelay.system.private_files",  # this and the next three: to find the local relay with this address
        "tabrelay.system.process_identity",
        "tabrelay.system.program",
        "tabrelay.system.relay_records",
        "tabrelay.system.tasks",
        "tabserver.wire.eras",
        "tabserver.wire.help_codes",
        "tabserver.wire.jsonrpc",
        "tabserver.wire.limits",
        "tabserver.wire.methods",
    }
