"""The program that the conformance suite starts as a client: passes its task to the test (`client_tasks.py`), and ends
when the task is done."""

import json
import os
import socket
import sys

TASK = ("MCP_CONFORMANCE_SCENARIO", "MCP_CONFORMANCE_PROTOCOL_VERSION", "MCP_CONFORMANCE_CONTEXT")

with socket.socket(socket.AF_UNIX) as test:
    test.connect(os.environ["CONFORMANCE_SOCKET"])
    task = {"url": sys.argv[1], **{name: os.environ.get(name) for name in TASK}}
    test.sendall(json.dumps(task).encode() + b"\n")
    answer = json.loads(test.makefile().readline())
print(answer["said"], file=sys.stderr)
sys.exit(0 if answer["done"] else 1)
