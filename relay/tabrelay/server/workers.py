"""Worker processes on one port: a supervisor starts several relays that share a bus and a listening socket.

They share the socket, so that no connection is left unanswered in the queue of a process that ends. The first is ready
before the others start, and prints what users need to know. The supervisor serves no requests.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Final

ENVIRONMENT: Final = "TABRELAY_WORKER"
READY: Final = b"+"
PAUSE_S: Final = 1.0
NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
SIGNALS: Final = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))
RESTART: Final = getattr(signal, "SIGUSR1", None)


@dataclass(frozen=True, slots=True)
class WorkerEnv:
    """What a worker process gets from its supervisor, in an environment variable. `is_new`: it is the first with this
    number. `is_taken`: another program has the port on the other loopback address."""

    number: int
    is_new: bool
    is_taken: bool
    listener: int
    ready: int
    watch: int

    @classmethod
    def read(cls) -> WorkerEnv | None:
        """None in a process that is no worker."""
        text = os.environ.pop(ENVIRONMENT, "")
        if not text:
            return None
        number, is_new, is_taken, listener, ready, watch = map(int, text.split(","))
        return cls(number, bool(is_new), bool(is_taken), listener, ready, watch)

    def socket(self) -> socket.socket:
        return socket.socket(fileno=self.listener)

    def report(self) -> None:
        """Report that the worker is ready. From now on it ends when its supervisor ends, for whatever reason."""
        os.write(self.ready, READY)
        os.close(self.ready)
        threading.Thread(target=self._stop_with_parent, daemon=True).start()

    def _stop_with_parent(self) -> None:
        os.read(self.watch, 1)
        os.kill(os.getpid(), signal.SIGTERM)


class WorkerProcesses:
    """Supervisor of the worker processes."""

    def __init__(self, sock: socket.socket, arguments: Sequence[str], count: int, *, is_taken: bool = False) -> None:
        """`arguments`: of the command that each worker runs. `is_taken`: see WorkerEnv."""
        self._is_taken = is_taken
        self._sock = sock
        self._arguments = arguments
        self._count = count
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._stopping = False
        self.is_restart = False
        # Nothing is ever written: the pipe closes when this process ends, which wakes its readers.
        self._watch, self._life = os.pipe()

    def run(self) -> int:
        """Run until all workers have been stopped."""
        before = {number: signal.signal(number, self._forward_signal) for number in SIGNALS}
        try:
            for number in range(self._count):
                if not self._stopping and not self._start(number, is_new=True):
                    return self._end(self._processes[number].wait())
            return self._supervise()
        finally:
            for signalled, handler in before.items():
                signal.signal(signalled, handler)

    def _start(self, number: int, *, is_new: bool) -> bool:
        """Start a worker and wait until it is ready; False if it ended first."""
        read_end, write_end = os.pipe()
        given = (self._sock.fileno(), write_end, self._watch)
        environment = {
            **os.environ,
            ENVIRONMENT: ",".join(map(str, (number, int(is_new), int(self._is_taken), *given))),
        }
        self._processes[number] = subprocess.Popen(
            [sys.executable, "-m", "tabrelay", *self._arguments],
            env=environment,
            pass_fds=given,
            start_new_session=True,  # Ctrl+C in a terminal reaches the supervisor only, which forwards it
        )
        os.close(write_end)
        try:
            return os.read(read_end, 1) == READY
        finally:
            os.close(read_end)

    def _forward_signal(self, number: int, frame: FrameType | None) -> None:
        if number == RESTART:
            self.is_restart = not self._stopping
            number = int(signal.SIGTERM)  # the supervisor starts the workers again
        self._stopping = self._stopping or number != getattr(signal, "SIGHUP", None)
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(number)

    def _supervise(self) -> int:
        while True:
            for number, process in list(self._processes.items()):
                if process.poll() is not None and not self._stopping:
                    print(f"Process {number + 1} ended with {process.returncode}; starting it again.", file=sys.stderr)
                    time.sleep(PAUSE_S)
                    if not self._stopping:
                        self._start(number, is_new=False)
            if self._stopping:
                return self._end(0)
            time.sleep(0.2)

    def _end(self, code: int) -> int:
        """Stop all workers and wait for them."""
        for process in self._processes.values():
            if not self._stopping and process.poll() is None:
                process.terminate()
        codes = [process.wait() for process in self._processes.values()]
        return code or max((abs(one) for one in codes), default=0)
