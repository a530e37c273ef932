"""An agent for tests, as a real child process: ACP over stdin and stdout, written by hand, with the standard library.

It starts the MCP servers that a session declares, and calls a tool for a prompt `call SERVER TOOL {…}`. Run with
`early`, it greets its servers before it answers `session/new`, as some agents do. Run with `http`, it advertises
servers over HTTP and ignores those that are programs.
"""

import json
import subprocess
import sys
import threading
from typing import Any

Message = dict[str, Any]
EARLY = "early" in sys.argv
INFO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}
HTTP_ONLY = "http" in sys.argv
servers: dict[str, subprocess.Popen[str]] = {}
addresses: dict[str, Message] = {}


def write(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask(server: str, method: str, params: Message, id: int) -> Message:
    """One request to an MCP server, and its answer."""
    pipe = servers[server]
    assert pipe.stdin and pipe.stdout
    pipe.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\n")
    pipe.stdin.flush()
    for line in pipe.stdout:
        message: Message = json.loads(line)
        if message.get("id") == id and "method" not in message:
            return message
    return {"error": {"message": "the MCP server is gone"}}


def post(server: str, tool: str, arguments: Message) -> Message:
    """One call to an MCP server over HTTP, in a new session."""
    import urllib.request

    if server not in addresses:
        return {"error": {"message": f"no such server: {server}"}}
    entry = addresses[server]
    headers = {one["name"]: one["value"] for one in entry["headers"]}
    headers |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def send(message: Message) -> Message:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        with urllib.request.urlopen(urllib.request.Request(entry["url"], body, headers), timeout=60) as response:
            headers["Mcp-Session-Id"] = response.headers.get("Mcp-Session-Id") or headers["Mcp-Session-Id"]
            text: str = response.read().decode()
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("data: ", "{"))]
        return json.loads(lines[-1]) if lines else {}

    send({"id": 0, "method": "initialize", "params": INFO})
    send({"method": "notifications/initialized"})
    return send({"id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})


def start(declared: list[Message]) -> None:
    import os

    if HTTP_ONLY:
        addresses.update({entry["name"]: entry for entry in declared if entry.get("type") == "http"})
        return
    for entry in declared:
        env = {**os.environ, **{one["name"]: one["value"] for one in entry["env"]}}
        command = [entry["command"], *entry["args"]]
        servers[entry["name"]] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        note(servers[entry["name"]].pid)
        greet(entry["name"])


def note(pid: int) -> None:
    """Lets a test check that every child process has ended."""
    for word in sys.argv:
        if word.startswith("note="):
            with open(word.removeprefix("note="), "a") as file:
                file.write(f"{pid}\n")


def greet(server: str) -> None:
    ask(server, "initialize", INFO, 0)
    pipe = servers[server].stdin
    assert pipe
    pipe.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    pipe.flush()


def prompt(params: Message) -> str:
    words = params["prompt"][0]["text"].split(" ", 3)
    if words[0] == "die":
        sys.exit(int(words[1]))
    if words[0] == "flood":
        flood(int(words[1]), int(words[2]))
    if words[0] == "pids":
        return json.dumps([one.pid for one in servers.values()])
    if words[0] == "call":
        arguments = json.loads(words[3])
        if HTTP_ONLY:
            answer = post(words[1], words[2], arguments)
        else:
            answer = ask(words[1], "tools/call", {"name": words[2], "arguments": arguments}, 1)
        return json.dumps(answer.get("result", answer.get("error")))
    return " ".join(words)


def flood(lines: int, size: int) -> None:
    """That many updates, each with its number."""
    for number in range(lines):
        write(method="session/update", params={"number": number, "text": "x" * size})


def handle(message: Message) -> None:
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        can = {"mcpCapabilities": {"http": True, "sse": True}} if HTTP_ONLY else {}
        write(id=id, result={"protocolVersion": 1, "agentCapabilities": can})
    elif method == "session/new":
        if EARLY:
            start(params["mcpServers"])
            write(id=id, result={"sessionId": "s1"})
        else:
            write(id=id, result={"sessionId": "s1"})
            start(params["mcpServers"])
    elif method == "session/prompt":
        said = prompt(params)
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": said}}
        write(method="session/update", params={"sessionId": "s1", "update": update})
        write(id=id, result={"stopReason": "end_turn"})
    elif method == "hang":
        pass  # never answered
    elif id is not None and method is not None:
        write(id=id, error={"code": -32601, "message": f"no such method: {method}"})


if "stubborn" in sys.argv:
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    handle(json.loads(line))
if "stubborn" in sys.argv:
    threading.Event().wait()
