"""An MCP server in a real child process for tests: stdin and stdout, one era, no SDK.

Its argument is the era. Its tools provoke faults: see `TOOLS`. It uses only the standard library, so that it starts
fast; each call has a thread, so that calls overlap.
"""

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

Message = dict[str, Any]

PREFIX = "io.modelcontextprotocol/"
TOOLS = {
    "echo": "gives its arguments back",
    "pid": "says its process id",
    "env": "says its environment",
    "introduction": "returns what it received about its client",
    "slow": "answers when `release` is called, or when it is cancelled",
    "release": "ends every slow call",
    "progress": "reports progress, then answers",
    "log": "writes a log message, then answers",
    "chatter": "answers, and from then on writes log messages that belong to no call, at `debug` and `warning` in turn",
    "ask": "asks the user for a name, and says it",
    "garbage": "writes what is no message to stdout, then answers",
    "large": "answers with the requested number of bytes, or numbers",
    "unreadable": "answers with something that is hardly JSON",
    "deaf": "reads nothing from stdin any more",
    "hang_up": "closes its stdin, and goes on",
    "die": "ends at once, without an answer",
    "family": "starts a process that ignores signals, and says its id",
    "change": "says that its tools have changed",
    "count": "says how often it was called",
    "job": "becomes a task, for clients with tasks",
    "for_page": "is for the page of an app only",
}

SKILL = {
    "uri": "skill://echoes/SKILL.md",
    "frontmatter": {"name": "echoes", "description": "How to echo."},
    "resources": [{"uri": "skill://echoes/SKILL.md", "digest": f"sha256:{'a' * 64}", "size": 7}],
}

out = threading.Lock()
released = threading.Event()
answers: dict[str, Message] = {}
answered = threading.Condition()
cancelled: set[Any] = set()
listening: set[Any] = set()
counts = {"count": 0, "initialize": 0, "chatter": 0}
introduction: Message = {}
begun: set[str] = set()
ids = iter(range(1, 1000))


def write(message: Message) -> None:
    with out:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def raw(text: str) -> None:
    with out:
        sys.stdout.write(text)
        sys.stdout.flush()


def notify(method: str, params: Message | None = None) -> None:
    write({"jsonrpc": "2.0", "method": method, **({"params": params} if params is not None else {})})


def text(said: object) -> Message:
    return {"content": [{"type": "text", "text": said if isinstance(said, str) else json.dumps(said)}]}


class Server:
    def __init__(self, era: str) -> None:
        self.is_modern = era == "modern"

    # -- the two eras --------------------------------------------------------------------------------------------------

    def handle(self, message: Message) -> None:
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method is None:
            with answered:
                answers[str(id)] = message
                answered.notify_all()
        elif method == "notifications/cancelled":
            cancelled.add(params.get("requestId"))
            listening.discard(params.get("requestId"))
        elif id is not None:
            threading.Thread(target=self.request, args=(id, method, params), daemon=True).start()

    def request(self, id: Any, method: str, params: Message) -> None:
        try:
            result = self.result(id, method, params)
        except LookupError as problem:
            code, words = (-32601, "no such method") if not problem.args else problem.args
            write({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": words}})
            return
        if result is not None and id not in cancelled:
            if self.is_modern:
                info = {PREFIX + "serverInfo": {"name": "child", "version": "1"}}
                cached = {} if "taskId" in result else {"ttlMs": 0, "cacheScope": "private"}
                result = {"resultType": "complete", **cached, "_meta": info, **result}
            write({"jsonrpc": "2.0", "id": id, "result": result})

    def result(self, id: Any, method: str, params: Message) -> Message | None:
        can: Message = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
        can["extensions"] = {PREFIX + "skills": {"directoryRead": True}}
        if self.is_modern:
            can["extensions"][PREFIX + "tasks"] = {}
        else:
            can["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        if self.is_modern and PREFIX + "protocolVersion" not in params.get("_meta", {}):
            raise LookupError(-32602, "no envelope")
        if method == "initialize" and not self.is_modern:
            counts["initialize"] += 1
            introduction.update(params)
            info = {"name": "child", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": info}
        if method == "server/discover" and self.is_modern:
            return {"supportedVersions": ["2026-07-28"], "capabilities": can}
        if method == "subscriptions/listen" and self.is_modern:
            listening.add(id)
            tag = {PREFIX + "subscriptionId": id}
            notify("notifications/subscriptions/acknowledged", {"notifications": params["notifications"], "_meta": tag})
            return None
        if method == "ping" and not self.is_modern:
            return {}
        if method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe") and not self.is_modern:
            return {}
        if method == "tools/list":
            # In an unsorted order.
            listed = sorted(TOOLS.items(), key=lambda item: item[0][::-1])
            tools: list[Message] = [{"name": n, "description": d, "inputSchema": {"type": "object"}} for n, d in listed]
            next(tool for tool in tools if tool["name"] == "for_page")["_meta"] = {"ui": {"visibility": ["app"]}}
            return {"tools": tools}
        if method == "resources/list":
            return {"resources": []}
        if method.startswith("tasks/"):
            return self.task(method, params)
        if method == "skills/list":
            return {"skills": [SKILL]}
        if method == "skills/get" and params.get("uri") == SKILL["uri"]:
            return {"skill": SKILL}
        if method == "skills/get":
            raise LookupError(-32602, "Unknown skill")
        if method == "resources/directory/read":
            return {"resources": [{"uri": SKILL["uri"], "name": "SKILL.md"}]}
        if method == "tools/call":
            return self.call(id, params)
        raise LookupError

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def state(self, id: str) -> Message:
        times = {"createdAt": "2026-01-01T00:00:00.000Z", "lastUpdatedAt": "2026-01-01T00:00:00.000Z"}
        return {"taskId": id, "status": "completed", **times, "ttlMs" if self.is_modern else "ttl": 60_000}

    def task(self, method: str, params: Message) -> Message:
        if method == "tasks/list":
            return {"tasks": [self.state(id) for id in sorted(begun)]}
        if params.get("taskId") not in begun:
            raise LookupError(-32602, "The server knows no such task")
        if method == "tasks/result":
            about = {PREFIX + "related-task": {"taskId": params["taskId"]}}
            return text("done later") | {"_meta": about}
        more = {"result": text("done later") | {"resultType": "complete"}} if self.is_modern else {}
        return self.state(params["taskId"]) | more

    def tool_job(self, id: Any, params: Message) -> Message:
        able = params.get("_meta", {}).get(PREFIX + "clientCapabilities", {}).get("extensions", {})
        if PREFIX + "tasks" not in able and "task" not in params:
            return text("done at once")
        begun.add(task := f"task-{next(ids)}-{os.getpid()}")
        started = self.state(task) | {"status": "working"}
        return started | {"resultType": "task"} if self.is_modern else {"task": started}

    # -- tools ---------------------------------------------------------------------------------------------------------

    def call(self, id: Any, params: Message) -> Message | None:
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict) or name not in TOOLS:
            raise LookupError(-32602, f"Unknown tool: {name}")
        return getattr(self, f"tool_{name}")(id, params, **arguments)  # type: ignore[no-any-return]

    def tool_echo(self, id: Any, params: Message, **arguments: Any) -> Message:
        return text(arguments)

    def tool_for_page(self, id: Any, params: Message) -> Message:
        return text("for_page")

    def tool_pid(self, id: Any, params: Message) -> Message:
        return text(str(os.getpid()))

    def tool_env(self, id: Any, params: Message) -> Message:
        return text(dict(os.environ))

    def tool_introduction(self, id: Any, params: Message) -> Message:
        return text(introduction)

    def tool_count(self, id: Any, params: Message, file: str | None = None) -> Message:
        if file is not None:
            with open(file, "a") as log:
                log.write("x")
        counts["count"] += 1
        return text(counts)

    def tool_slow(self, id: Any, params: Message) -> Message:
        while not released.wait(0.01) and id not in cancelled:
            pass
        return text("released")

    def tool_release(self, id: Any, params: Message) -> Message:
        released.set()
        return text(sorted(map(str, cancelled)))

    def tool_progress(self, id: Any, params: Message, word: str = "") -> Message:
        token = params.get("_meta", {}).get("progressToken")
        for step in (1, 2):
            notify("notifications/progress", {"progressToken": token, "progress": step, "total": 2, "message": word})
        return text(word)

    def tool_log(self, id: Any, params: Message, level: str = "info", word: str = "") -> Message:
        notify("notifications/message", {"level": level, "data": word})
        return text(word)

    def tool_chatter(self, id: Any, params: Message, size: int = 0) -> Message:
        def write_logs() -> None:
            for number in range(1_000):
                time.sleep(0.02)
                counts["chatter"] += 1
                level = ("debug", "warning")[number % 2]
                notify("notifications/message", {"level": level, "data": f"{level} {'x' * size}".strip()})

        threading.Thread(target=write_logs, daemon=True).start()
        return text("chatting")

    def tool_ask(self, id: Any, params: Message) -> Message:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        question = {"message": "What is your name?", "requestedSchema": schema}
        if self.is_modern:
            given = params.get("inputResponses", {}).get("who")
            if given is None:
                asked = {"who": {"method": "elicitation/create", "params": {"mode": "form", **question}}}
                return {"resultType": "input_required", "inputRequests": asked, "requestState": "sealed"}
            assert params.get("requestState") == "sealed"
            return text(given["content"]["name"] if given["action"] == "accept" else given["action"])
        ours = f"q{next(ids)}"
        write({"jsonrpc": "2.0", "id": ours, "method": "elicitation/create", "params": question})
        with answered:
            answered.wait_for(lambda: ours in answers or id in cancelled)
        answer = answers.get(ours, {})
        if "error" in answer:
            return text(f"error: {answer['error']['message']}")
        given = answer.get("result", {})
        return text(given["content"]["name"] if given.get("action") == "accept" else str(given.get("action")))

    def tool_garbage(self, id: Any, params: Message) -> Message:
        raw("DEBUG: hello\n\n{not json}\n[1, 2]\n\x00\xff\n{}\n" + '{"jsonrpc": "2.0", "id": 987654, "result": {}}\n')
        return text("clean")

    def tool_large(self, id: Any, params: Message, size: int = 0, numbers: int = 0) -> Message:
        return {**text("x" * size), "structuredContent": {"numbers": [1] * numbers}} if numbers else text("x" * size)

    def tool_unreadable(self, id: Any, params: Message) -> None:
        raw(f'{{"jsonrpc": "2.0", "id": {json.dumps(id)}, "result": {{"content": [], "half": "\\ud800"}}}}\n')

    def tool_deaf(self, id: Any, params: Message) -> Message:
        return text("what?")

    def tool_hang_up(self, id: Any, params: Message) -> Message:
        os.close(0)
        return text("bye")

    def tool_die(self, id: Any, params: Message, code: int = 3) -> None:
        sys.stderr.write("I have had enough: " + os.environ.get("SECRET", "") + "\n")
        sys.stderr.flush()
        os._exit(code)

    def tool_family(self, id: Any, params: Message) -> Message:
        code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        return text(str(child.pid))

    def tool_change(self, id: Any, params: Message) -> Message:
        if not self.is_modern:
            notify("notifications/tools/list_changed")
        for listener in sorted(listening):
            notify("notifications/tools/list_changed", {"_meta": {PREFIX + "subscriptionId": listener}})
        return text("changed")


def main() -> None:
    server = Server(sys.argv[1])
    while line := sys.stdin.readline():
        server.handle(json.loads(line))
        if any(f'"name":{space}"{name}"' in line for space in ("", " ") for name in ("deaf", "hang_up")):
            time.sleep(600)


if __name__ == "__main__":
    main()
