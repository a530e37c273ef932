"""The environment in .venv, and the Python packages in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from steps.console import SetupError, run, say
from steps.stamps import digest, is_stamped
from steps.tree import BIN, CONSTRAINTS, ROOT, VENV


def pip(*arguments: str | Path) -> None:
    run(BIN / "python", "-m", "pip", *arguments, "--disable-pip-version-check", "--constraint", CONSTRAINTS)


def make_venv() -> None:
    if (BIN / "python").exists():
        works = subprocess.run([BIN / "python", "-c", "import pip"], capture_output=True).returncode == 0
        if works:
            return
    say(f"== creating the environment in .venv (Python {sys.version.split()[0]})")
    try:
        run(sys.executable, "-m", "venv", "--clear", VENV)
    except SetupError as error:
        raise SetupError(
            f"{error}\nPython's venv module is incomplete here; on Debian: apt-get install python3-venv"
        ) from None


def metadata() -> dict[str, Any]:
    """The part of pyproject.toml that an installation depends on; the rest is settings of tools."""
    import tomllib

    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {"build-system": whole["build-system"], "project": whole["project"], "hatch": whole["tool"]["hatch"]}


def python_packages(extra: str = "") -> None:
    """Install the project in editable form, with this `extra` and what builds the documentation. The development set
    contains the runtime set."""
    value = digest(str(ROOT), json.dumps(metadata(), sort_keys=True), CONSTRAINTS)
    stamps = {"": VENV / ".tabrelay-runtime", "dev": VENV / ".tabrelay-dev"}
    if any(is_stamped(stamps[name], value) for name in {extra, "dev"}):
        return
    make_venv()
    say(f"== installing Python packages ({extra or 'runtime'}), pinned in constraints.txt")
    # The build backend goes into the environment, where the constraints apply; pip's isolated builds ignore them.
    pip("install", "hatchling", "editables")
    pip("install", "--no-build-isolation", "--editable", f".[{extra or 'docs'}]")
    stamps[extra].write_text(value)


def fuzzer() -> None:
    """Packages for `make fuzz`, beside the development set."""
    if subprocess.run([BIN / "python", "-c", "import atheris"], capture_output=True).returncode:
        say("== installing the fuzzer (atheris)")
        pip("install", "atheris")


NEWEST = ("uvicorn", "httptools", "websockets", "starlette", "fastapi", "mcp")


def newest() -> None:
    """An environment in build/newest with the newest versions of the relay's libraries, whatever constraints.txt and
    pyproject.toml say. Everything else comes from .venv."""
    home = ROOT / "build" / "newest"
    python = home / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", "--clear", home)
    say(f"== installing the newest {', '.join(NEWEST)} in build/newest")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", *NEWEST)
    # Its own packages are found first.
    [own] = home.glob("lib/python*/site-packages")
    [other] = VENV.glob("lib/python*/site-packages")
    (own / "tabrelay-environment.pth").write_text(f"import site; site.addsitedir({str(other)!r})\n")
    # Messages name the command by which users start the program, if it is on the PATH.
    command = home / "bin" / "tabrelay"
    command.write_text(f"#!{python}\nimport sys\n\nfrom tabrelay.cli.main import main\n\nsys.exit(main())\n")
    command.chmod(0o755)
    shown = "import importlib.metadata as m, sys; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"
    run(python, "-c", shown, *NEWEST)
