"""No message between the relay and an upstream server takes more than 50 ms of the event loop in one callback."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tabrelay.config.settings import MIB
from tests.behaviour.test_loop_messages import Attack, measured, session
from tests.behaviour.test_loop_time import ANSWER, BODY, VALUES, warm_up, with_arguments
from tests.support.fake_upstream import Reply, Upstream, result
from tests.support.json_shapes import largest
from tests.support.measured_relay import MeasuredRelay, Slow, measured_relay
from tests.support.running_relay import modern

# As large as the limit of values permits; and as large as the limit of bytes permits, which is refused.
TEXTS = [("objects with long keys", VALUES), ("towers of objects", VALUES), ("numbers", None)]
FLOOD = 160 * 1024
TOOL = {"name": "echo", "description": "a tool", "inputSchema": {"type": "object"}}
LIST = json.dumps({"tools": [TOOL]})

# A server that answers calls with the text of one file, and lists with the text of another.
CHILD = r"""
import json, pathlib, sys
home = pathlib.Path(sys.argv[1])
about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "n", "version": "1"}}
def say(text):
    sys.stdout.write(text + "\n"); sys.stdout.flush()
def answer(id, result):
    say('{"jsonrpc":"2.0","id":' + json.dumps(id) + ',"result":' + result + '}')
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        answer(id, json.dumps(about))
    elif method == "tools/list":
        answer(id, (home / "list").read_text())
    elif method == "tools/call":
        before = (home / "before").read_text()
        if before:
            say(before)
        answer(id, (home / "result").read_text())
    elif id is not None and method:
        say(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}))
"""


def noticed(text: str) -> str:
    return f'{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"error","data":{text}}}}}'


def ask(relay: MeasuredRelay, request: dict[str, Any]) -> Attack:
    async def attack() -> None:
        await relay.http.post("/notes", **request)

    return attack


CALL = modern("tools/call", {"name": "echo", "arguments": {}})


async def test_messages_of_a_stdio_server(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}
    home = tmp_path / "child"
    home.mkdir()
    (home / "child.py").write_text(CHILD)

    def says(result: str = '{"content":[]}', tools: str = LIST, before: str = "") -> None:
        for name, text in (("result", result), ("list", tools), ("before", before)):
            (home / name).write_text(text)

    says()
    spec = {"name": "notes", "command": sys.executable, "args": ["-I", "-S", str(home / "child.py"), str(home)]}
    async with measured_relay(tmp_path / "relay", specs=[spec], rate_s=0) as relay:
        await warm_up(relay)
        headers = await session(relay)
        in_session = {"json": {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo"}}}
        for shape, values in TEXTS:
            text = largest(shape, ANSWER, values)
            says(result=f'{{"content":[],"structuredContent":{{"a":{text}}}}}')
            attacks = {"answer": ask(relay, CALL), "answer in a session": ask(relay, in_session | {"headers": headers})}
            slow |= {f"{what} of {shape}, {values}": each for what, each in (await measured(relay, attacks)).items()}
            says(tools=f'{{"tools":{largest(shape, 4 * MIB - 4_096, values)}}}')
            slow |= await measured(relay, {f"list of {shape}, {values}": ask(relay, modern("tools/list"))})
            says(before=noticed(largest(shape, ANSWER, values)))
            slow |= await measured(relay, {f"notification of {shape}, {values}": ask(relay, CALL)})
            says()
            request = with_arguments(largest(shape, BODY, values))
            slow |= await measured(relay, {f"request of {shape}, {values}": ask(relay, request)})
        for what, lines in (("blank lines", "\n"), ("short lines", "1\n"), ("small messages", noticed("1") + "\n")):
            says(before=lines * (FLOOD // len(lines)))
            slow |= await measured(relay, {what: ask(relay, CALL)})
    assert slow == {}


async def test_messages_of_an_http_server(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}
    texts = {"result": '{"content":[]}', "before": "", "list": ""}
    is_stream = False

    async def say(reply: Reply, result: str) -> None:
        body = f'{{"jsonrpc":"2.0","id":{reply.seen.message["id"]},"result":{result}}}'
        if not is_stream:
            await reply.body(body.encode(), 200, "application/json")
            return
        await reply.stream()
        if texts["before"]:
            await reply.chunk(texts["before"].encode())
        await reply.chunk(f"data: {body}\n\n".encode())
        await reply.end()

    async def call(reply: Reply) -> None:
        await say(reply, texts["result"])

    async def tools(reply: Reply) -> None:
        await say(reply, texts["list"] or LIST)

    on = {"tools/list": tools, "tools/call": call}
    capabilities: dict[str, Any] = {"tools": {}}
    info = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "u", "version": "1"}}
    async with (
        Upstream({"initialize": result(info), **on}, session=None) as server,
        measured_relay(tmp_path, specs=[{"name": "notes", "url": server.url}], rate_s=0) as relay,
    ):
        await warm_up(relay)
        for is_stream in (False, True):
            way = "stream" if is_stream else "JSON"
            for shape, values in TEXTS:
                name = f"of {shape}, {values}, {way}"
                texts["result"] = f'{{"content":[],"structuredContent":{{"a":{largest(shape, ANSWER, values)}}}}}'
                slow |= await measured(relay, {f"answer {name}": ask(relay, CALL)})
                texts["result"] = '{"content":[]}'
                texts["list"] = f'{{"tools":{largest(shape, 4 * MIB - 4_096, values)}}}'
                slow |= await measured(relay, {f"list {name}": ask(relay, modern("tools/list"))})
                texts["list"] = ""
                if is_stream:
                    texts["before"] = f"data: {noticed(largest(shape, ANSWER, values))}\n\n"
                    slow |= await measured(relay, {f"notification {name}": ask(relay, CALL)})
                    texts["before"] = ""
                else:
                    request = with_arguments(largest(shape, BODY, values))
                    slow |= await measured(relay, {f"request {name}": ask(relay, request)})
        for what in (":\n", "\n", "data:\n\n", "event: a\ndata: 1\n\n", "id: 1\n", f"data: {noticed('1')}\n\n"):
            texts["before"] = what * (FLOOD // len(what)) + "\n\n"
            slow |= await measured(relay, {f"stream of {what[:20]!r}": ask(relay, CALL)})
    assert slow == {}
