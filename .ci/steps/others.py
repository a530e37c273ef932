"""Other projects' programs for tests and benchmarks: each in a separate environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from steps.console import SetupError, run, say
from steps.node import NPM_FLAGS, node_tools, search_path
from steps.python import pip
from steps.stamps import digest, is_stamped
from steps.tree import BIN, CONSTRAINTS, ROOT

AGENT = ROOT / "build" / "fast-agent"
AGENT_OLDEST = (3, 12)
AGENT_WAIT_S = 300


def rival_programs() -> None:
    """The programs that `bench.rivals` measures, in a separate environment: they need other versions of libraries."""
    pins = ROOT / "bench" / "rivals"
    place = ROOT / "build" / "rivals"
    value = digest(*sorted(pins.glob("*.txt")), pins / "package.json")
    stamp = place / ".tabrelay"
    if is_stamped(stamp, value):
        return
    say("== installing the programs that the relay is measured against into build/rivals")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    shutil.copy(pins / "package.json", place)
    node, npm = node_tools()
    path = os.pathsep.join([str(Path(node).parent), search_path()])
    run(npm, "install", "--prefix", place, *NPM_FLAGS, env={"PATH": path})
    for pin in sorted(pins.glob("*.txt")):
        run(sys.executable, "-m", "venv", place / pin.stem)
        python = place / pin.stem / BIN.name / "python"
        try:
            run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", pin)
        except SetupError as error:
            say(f"   without {pin.stem}: {error}")
    stamp.write_text(value)


def newer_pythons() -> Iterator[str]:
    """Candidates for a Python that is newer than the required one. A version manager's stand-ins are found by name too,
    and don't run: each has to be tried."""
    if sys.version_info >= AGENT_OLDEST:
        yield sys.executable
    for minor in (12, 13, 14):
        if found := shutil.which(f"python3.{minor}"):
            yield found
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from (str(found) for minor in (12, 13, 14) for found in sorted(kept.glob(f"3.{minor}.*/bin/python3")))


def is_complete(python: str) -> bool:
    code = f"import ensurepip, sys, venv; sys.exit(sys.version_info < {AGENT_OLDEST})"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def fast_agent() -> None:
    """An agent for the tests of ACP, in a separate environment: it needs a newer Python. Without one, or without the
    package in the index, the tests that need it report why they are skipped."""
    pins = ROOT / "tests" / "acp" / "peers" / "fast-agent.txt"
    value = digest(str(ROOT), pins)
    stamp = AGENT / ".tabrelay"
    if is_stamped(stamp, value):
        return
    shutil.rmtree(AGENT, ignore_errors=True)
    AGENT.mkdir(parents=True)
    python = next(filter(is_complete, newer_pythons()), None)
    why: str | None
    if python is None:
        why = f"no Python {'.'.join(map(str, AGENT_OLDEST))} or newer is here, and fast-agent wants one"
    else:
        say("== installing fast-agent for the tests of ACP into build/fast-agent, beside all else")
        why = install_agent(python, pins)
    if why is None:
        stamp.write_text(value)
    else:
        say(f"   without fast-agent: {why}")
        (AGENT / "why.txt").write_text(why)


def install_agent(python: str, pins: Path) -> str | None:
    """The reason why it could not be installed."""
    quiet = ["-q", "--disable-pip-version-check"]
    flags = [*quiet, "--no-deps", "--no-compile", "--only-binary", ":all:", "-r", str(pins)]
    inside = str(AGENT / BIN.name / "python")
    try:
        for step in ([python, "-m", "venv", str(AGENT)], [inside, "-m", "pip", "install", *flags]):
            subprocess.run(step, check=True, capture_output=True, text=True, timeout=AGENT_WAIT_S)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines() or [f"code {error.returncode}"]
        return f"it could not be installed: {lines[-1]}"
    except subprocess.TimeoutExpired:
        return f"it was not installed within {AGENT_WAIT_S} s"
    return None


def sdk_examples() -> None:
    """The example agent of ACP's Python SDK, for the tests: only its source archive contains it."""
    place = ROOT / "build" / "acp-examples"
    pin = next(line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("agent-client-protocol=="))
    stamp = place / ".tabrelay"
    if is_stamped(stamp, pin):
        return
    say("== fetching the examples of ACP's Python SDK into build/acp-examples")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        pip("download", "--no-deps", "--no-binary", ":all:", "--dest", place, pin)
        with tarfile.open(packed := next(place.glob("*.tar.gz"))) as archive:
            for member in archive.getmembers():
                path = PurePosixPath(member.name)
                if path.parts[1:2] == ("examples",) and path.suffix == ".py" and (file := archive.extractfile(member)):
                    (place / path.name).write_bytes(file.read())
        packed.unlink()
    except (SetupError, OSError, tarfile.TarError) as error:
        say(f"   without them: {error}")
        return
    stamp.write_text(pin)
