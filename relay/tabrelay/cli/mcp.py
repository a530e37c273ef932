"""`tabrelay mcp`: the program that agents start for each MCP server of `tabrelay acp`.

It checks its arguments and runs `acp.stdio_shim`. It imports nothing slow: agents wait for it.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from tabrelay.cli import flags
from tabrelay.cli.output import ExitWith


def add(commands: Any) -> None:
    about = "Connect an agent's MCP client to `tabrelay acp`. Agents start this command; it is not for use by hand."
    parser = flags.add_command(commands, "mcp", about, "tabrelay mcp 54321")
    parser.add_argument("shim_port", metavar="PORT", type=int, help="where `tabrelay acp` listens for it")
    parser.set_defaults(run=_mcp)


def _mcp(args: argparse.Namespace) -> int:
    from tabrelay.acp import stdio_shim

    nonce = os.environ.get(stdio_shim.NONCE, "")
    if not nonce:
        raise ExitWith(f"{stdio_shim.NONCE} is not set. Agents start this program, as `tabrelay acp` configures them.")
    if not 0 < args.shim_port < 65536:
        raise ExitWith(f"{args.shim_port} is not a port.")
    return stdio_shim.run(args.shim_port, nonce)
