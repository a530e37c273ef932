"""The client that the conformance suite starts for an upstream: hands its task to the test, which has everything
loaded already, and ends when that is done."""

import json
import os
import socket
import sys

TASK = ("MCP_CONFORMANCE_SCENARIO", "MCP_CONFORMANCE_PROTOCOL_VERSION", "MCP_CONFORMANCE_CONTEXT")

with socket.socket(socket.AF_UNIX) as test:
    test.connect(os.environ["CONFORMANCE_SOCKET"])
    task = {"url": sys.argv[1], **{name: os.environ.get(name) for name in TASK}}
    test.sendall(json.dumps(task).encode() + b"\n")
    said = test.makefile().readline()
print(said, file=sys.stderr)
sys.exit(0 if said == "done\n" else 1)
