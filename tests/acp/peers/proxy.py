"""A proxy as a real child process for tests: passes everything on, and puts its name before every prompt."""

import json
import sys
from typing import Any

name = sys.argv[1]
given: dict[Any, Any] = {}  # ids of requests that it has forwarded -> their senders


def write(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for number, line in enumerate(sys.stdin):
    message = json.loads(line)
    method, params = message.get("method"), message.get("params")
    if method is None:  # an answer: it belongs to the side that asked
        write(**{**message, "id": given.pop(message["id"])})
        continue
    id = {}
    if "id" in message:
        given[f"{name}-{number}"] = message["id"]
        id = {"id": f"{name}-{number}"}
    if method == "proxy/successor":
        write(**id, method=params["method"], params=params.get("params"))
        continue
    if method == "session/prompt":
        params["prompt"][0]["text"] = f"{name} {params['prompt'][0]['text']}"
    method = "initialize" if method == "proxy/initialize" else method
    write(**id, method="proxy/successor", params={"method": method, "params": params})
