"""Stdio transport to a child process: JSON-RPC messages as lines on its stdin and stdout.

The SDK's stdio transport reads lines of any length into memory and hides the process. This one has the same streams, a
limit for lines, the reason why a process ended, and leaves no process behind. It uses no MCP method.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from tabrelay.config.specs import StdioSpec
from tabrelay.peers.upstreams.dispatcher import Report, Streams
from tabrelay.peers.upstreams.faults import ConnectionFault, Redactor, UpstreamFault
from tabrelay.peers.upstreams.large_messages import LARGE, MessageLimits, TooManyValues, encode, parse, to_message
from tabrelay.system import process_group
from tabrelay.system.pipe_lines import LineSplitter, LineTooLong, too_long
from tabrelay.system.tasks import cancel
from tabserver.wire import jsonrpc

log = logging.getLogger(__name__)

CHUNK: Final = 64 * 1024
LINES_AT_ONCE: Final = 64  # in one callback of the event loop
STDERR_LINES: Final = 5
MAX_STDERR_LINE: Final = 2000


class UpstreamProcess:
    """The transport of one spec. Each `open` starts another process."""

    has_call_context = False

    def __init__(self, spec: StdioSpec, *, limits: MessageLimits, redact: Redactor) -> None:
        self._spec = spec
        self._limits = limits
        self._redact = redact

    def adapt(self, fault: UpstreamFault) -> bool:
        return False

    @contextlib.asynccontextmanager
    async def open(self, report: Report) -> AsyncIterator[Streams]:
        pipes = StdioTransport(await self._spawn(), self._spec.name, self._limits, self._redact, report)
        try:
            async with pipes as streams:
                yield streams
        finally:
            await pipes.end()

    async def _spawn(self) -> asyncio.subprocess.Process:
        spec = self._spec
        try:
            process = await process_group.start(
                spec.command,
                *spec.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # The relay's environment has secrets that the server must not get.
                env=get_default_environment() | dict(spec.env),
                cwd=spec.cwd,
            )
        except FileNotFoundError:
            raise ConnectionFault(
                UpstreamFault(f'there is no program "{spec.command}"', "no", ends_connection=True)
            ) from None
        except (OSError, ValueError) as error:
            text = f'"{spec.command}" could not be started: {getattr(error, "strerror", None) or error}'
            raise ConnectionFault(UpstreamFault(text, "no", ends_connection=True)) from None
        log.debug("%s: started as process %d", spec.name, process.pid)
        return process


class StdioTransport:
    """One process and its three pipes."""

    def __init__(
        self, process: asyncio.subprocess.Process, name: str, limits: MessageLimits, redact: Redactor, report: Report
    ) -> None:
        self._process = process
        self._name = name
        self._limits = limits
        self._redact = redact
        self._report = report
        self._stderr_lines: deque[str] = deque(maxlen=STDERR_LINES)
        # Requests that were written completely, and have no response yet.
        self._sent: set[jsonrpc.RequestId] = set()
        self._incoming, self._read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self._write, self._outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def __aenter__(self) -> Streams:
        self._stderr_task = asyncio.create_task(self._read_stderr())
        self._stdout_task = asyncio.create_task(self._read_stdout())
        self._stdin_task = asyncio.create_task(self._write_stdin())
        return self._read, self._write

    async def __aexit__(self, *exc: object) -> None:
        # Queued messages still go to a process that reads. One that does not must not delay the end.
        self._write.close()
        self._read.close()
        await asyncio.wait({self._stdin_task}, timeout=process_group.EXIT_S)

    async def end(self) -> None:
        await process_group.stop(self._process)
        await cancel(self._stdout_task, self._stdin_task, self._stderr_task)
        self._incoming.close()
        self._outgoing.close()
        process_group.release(self._process)

    async def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        lines = LineSplitter(self._limits.size)
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while data := await self._process.stdout.read(CHUNK):
                for number, line in enumerate(lines.feed(data), 1):
                    message = await self._message(line)
                    if message is not None:
                        await self._incoming.send(message)
                    elif number % LINES_AT_ONCE == 0:
                        await asyncio.sleep(0)
        # Wait a moment for the exit status, which is part of the fault. A process may also close its pipe and go on.
        await asyncio.wait({self._stderr_task}, timeout=process_group.KILL_S)
        await process_group.wait_until(lambda: self._process.returncode is not None, process_group.KILL_S)
        self._report(None, UpstreamFault(self._end_text(), ends_connection=True), self._sent)
        self._incoming.close()

    async def _message(self, line: bytes | LineTooLong) -> SessionMessage | None:
        """The message of a line; None if it is not a message, which is logged."""
        if isinstance(line, LineTooLong):
            text = f"its answer has {line.size:,} bytes; at most {self._limits.size:,} are accepted"
            self._skip(line, text)
            return None
        try:
            # defence: values of a process's message
            if len(line) > LARGE:
                message = to_message(await parse(line, self._limits.values))
            else:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except TooManyValues:
            text = f"its answer has more than {self._limits.values:,} values, where keys and lists count twice"
            self._skip(too_long(line), text)
            return None
        except ValueError:
            shown = self._redact(line[:80].decode("utf-8", "replace"), 80)
            log.info("%s: skipped a line that is not a message: %r", self._name, shown)
            id = _answer_id(line)
            if id is not None:
                self._report(
                    id, UpstreamFault("its answer is not a JSON-RPC response that can be passed on", answer="bad")
                )
            return None
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._sent.discard(message.id)
        return SessionMessage(message)

    def _skip(self, line: LineTooLong, text: str) -> None:
        log.warning("%s: skipped a line of %d bytes", self._name, line.size)
        if line.id is not None and line.is_answer:  # the id of a question is the server's
            self._report(json.loads(line.id), UpstreamFault(text, answer="too_large"))

    async def _write_stdin(self) -> None:
        async with self._outgoing:
            if await self._write_all():
                return
            # The stream must stay open until the end is reported with the requests that were not sent: a request that
            # is being written now would pass for delivered.
            await asyncio.wait({self._stdout_task}, timeout=4 * process_group.KILL_S)
            if not self._stdout_task.done():
                self._report(None, UpstreamFault("it no longer reads", ends_connection=True), self._sent)

    async def _write_all(self) -> bool:
        """Write all messages. False if the process no longer reads: then the last line was not written completely."""
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(anyio.ClosedResourceError):
            async for item in self._outgoing:
                try:
                    stdin.write(encode(item.message) + b"\n")
                    await stdin.drain()
                except OSError:
                    return False
                if stdin.is_closing():  # asyncio accepts writes to a broken pipe without an error
                    return False
                if isinstance(item.message, JSONRPCRequest):
                    self._sent.add(item.message.id)
        return True

    async def _read_stderr(self) -> None:
        """Log stderr, and keep its last lines for the text of a failure."""
        assert self._process.stderr is not None
        lines = LineSplitter(MAX_STDERR_LINE)
        while data := await self._process.stderr.read(CHUNK):
            for number, line in enumerate(lines.feed(data), 1):
                if number % LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                text = (
                    "…"
                    if isinstance(line, LineTooLong)
                    else self._redact(line.decode("utf-8", "replace"), MAX_STDERR_LINE)
                )
                self._stderr_lines.append(text)
                log.info("%s: %s", self._name, text)

    def _end_text(self) -> str:
        how = process_group.describe_exit(self._process.returncode)
        output = " / ".join(word for word in self._stderr_lines if word)
        return f"{how}; its last output: {output}" if output else how


def _answer_id(line: bytes) -> Any:
    """The id of a response that only a lenient parser accepts. That parser is slow for a large one: there, the id is
    searched at the beginning and the end."""
    if len(line) > LARGE:
        found = too_long(line)
        return json.loads(found.id) if found.id is not None and found.is_answer else None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or "method" in message:
        return None
    return message["id"] if jsonrpc.is_request_id(message.get("id")) else None
