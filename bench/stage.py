"""The processes of one measurement: started, pinned to cores, waited for, watched through /proc, and ended.

Each reports on its first line of output, as JSON, that it is ready. Linux only, as is the rest of the bench.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SERVER = "bench"

# Environment variable for a child's token: other users of the machine can read a command line.
TOKEN = "TABRELAY_BENCH_TOKEN"
# One token makes every call here, so the bounds for one caller are raised.
ROOMY = {"TABRELAY_IN_FLIGHT_SERVER": "256", "TABRELAY_IN_FLIGHT_CALLER": "256", "TABRELAY_RATE_S": "0"}


def announce(**facts: Any) -> None:
    """A child prints it when it is ready."""
    print(json.dumps(facts), flush=True)


def cores(pin: bool) -> tuple[set[int], set[int]]:
    """The cores of the server under test, and those of all other processes."""
    available = sorted(os.sched_getaffinity(0))
    if not pin or len(available) < 2:
        return set(available), set(available)
    return {available[0]}, set(available[1:])


class Child:
    """One process, ready when the constructor returns."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        on: set[int] | None = None,
        env: Mapping[str, str] | None = None,
        tree: Path = ROOT,
        program: Sequence[str] = (),
    ) -> None:
        """`program`: the program that runs the module, if not Python."""
        # Another source tree has an environment with its own packages.
        python = sys.executable if tree == ROOT else str(tree / ".venv" / "bin" / "python")
        self._process = subprocess.Popen(
            [*(program or (python, "-m")), module, *arguments],
            cwd=tree,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if on:
            os.sched_setaffinity(self._process.pid, on)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{module} ended before it was ready, with code {self._process.wait()}")
        self.said: dict[str, Any] = json.loads(line)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: str = "") -> dict[str, Any]:
        """One more line, of a child that answers (`bench.soak_workers`)."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def next(self) -> dict[str, Any]:
        """The next line that a child prints by itself (`bench.crowd`)."""
        assert self._process.stdout is not None
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        return said

    def cpu_s(self) -> float:
        """Processor time used so far; unlike wall time, it hardly depends on other load of the machine."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def rss(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def kill(self) -> None:
        self._process.kill()
        self.stop()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


def family_cpu_s(ancestor: int, others: Collection[int]) -> float:
    """Processor time so far of all living descendants of a process except `others`: a browser is many processes."""
    parents, times = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            times[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def is_descendant(pid: int) -> bool:
        while pid in parents and pid != ancestor:
            pid = parents[pid]
        return pid == ancestor

    others = {ancestor, *others}
    return sum(time for pid, time in times.items() if pid not in others and is_descendant(pid))


@dataclass(frozen=True, slots=True)
class Pair:
    """A server under test and its peer."""

    server: Child
    peer: Child

    @property
    def url(self) -> str:
        return f"{self.server.said['base_url']}/{SERVER}"

    @property
    def token(self) -> str:
        return str(self.server.said["token"])


@contextlib.contextmanager
def forwarder(pin: bool = True) -> Iterator[Pair]:
    here, other_cores = cores(pin)
    with contextlib.ExitStack() as stack:
        server = Child("bench.forwarder", on=here)
        stack.callback(server.stop)
        peer = Child("bench.peer", "bare", server.said["base_url"], on=other_cores)
        stack.callback(peer.stop)
        yield Pair(server, peer)


@contextlib.contextmanager
def lone_relay(
    *,
    on: set[int] | None = None,
    env: Mapping[str, str] | None = None,
    program: str = "tabrelay",
    flags: Sequence[str] = (),
    servers: Sequence[str] = (SERVER,),
    tree: Path = ROOT,
    prepare: Callable[[Path], None] = lambda home: None,
) -> Iterator[Child]:
    """The product as users start it, with its own state directory and no browser yet. `prepare` may put files into that
    directory first."""
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="tabrelay-bench-"))
        prepare(Path(home))
        command = ("serve", *servers, "--port", "0", "--json", "--home", home, *flags)
        server = Child(program, *command, on=on, env={**ROOMY, **(env or {})}, tree=tree)
        stack.callback(server.stop)
        yield server


@contextlib.contextmanager
def relay(pin: bool = True, env: Mapping[str, str] | None = None) -> Iterator[Pair]:
    here, other_cores = cores(pin)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(lone_relay(on=here, env=env))
        secret = {TOKEN: str(server.said["token"])}
        peer = Child("bench.peer", "link", server.said["base_url"], on=other_cores, env=secret)
        stack.callback(peer.stop)
        yield Pair(server, peer)
