"""`tabrelay packages`: Python packages for worker Python, in a folder that the relay serves.

`add` takes pure-Python wheels as pip downloads them, and compiled ones from a Pyodide distribution. The relay need not
run. Where wheels come from is in `package_sources`, how they are kept in `assets.package_index`.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from tabrelay.cli import flags, running_relay
from tabrelay.cli.output import FAILED, OK, ExitWith, table

_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._, -]+\])?\s*([<>=!~]=?.*)?")


def add(commands: Any) -> None:
    about = "Add, list and remove Python packages for tools in the worker."
    example = "tabrelay packages add jinja2\n  tabrelay packages add numpy --pyodide ~/pyodide-314.0.7"
    parser = flags.add_command(commands, "packages", about, example)
    flags.home_flag(parser)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    more = flags.add_command(actions, "add", "Download packages and their dependencies.", example)
    more.add_argument("names", nargs="+", metavar="NAME", help="a name, also with a version: jinja2==3.1.6")
    more.add_argument(
        "--pyodide",
        metavar="FOLDER|URL",
        help="a Pyodide distribution (the folder or address with its pyodide-lock.json), for compiled packages",
    )
    flags.home_flag(more, argparse.SUPPRESS)
    more.set_defaults(run=_add)

    shown = flags.add_command(actions, "list", "List the packages.", "tabrelay packages list")
    shown.add_argument("--json", action="store_true", help="as JSON")
    flags.home_flag(shown, argparse.SUPPRESS)
    shown.set_defaults(run=_list)

    less = flags.add_command(actions, "remove", "Remove packages.", "tabrelay packages remove jinja2")
    less.add_argument("names", nargs="+", metavar="NAME", help="the name of a package")
    flags.home_flag(less, argparse.SUPPRESS)
    less.set_defaults(run=_remove)


def _index(args: argparse.Namespace) -> Any:
    from tabrelay.assets.package_index import PackageIndex
    from tabrelay.config.settings import default_home

    return PackageIndex(flags.settings(args).home if args.home else default_home())


def _add(args: argparse.Namespace) -> int:
    from tabrelay.assets.files import Assets
    from tabrelay.assets.package_index import PackageError, canonical
    from tabrelay.cli.package_sources import LOCK, Distribution, PythonTarget, describe_pure, download_pure

    for name in args.names:
        if not _REQUIREMENT.fullmatch(name):
            raise ExitWith(f"{name!a} is not the name of a package.", help="TR311")
    index = _index(args)
    try:
        lock = json.loads((Assets.find().pyodide / LOCK).read_bytes())
        target = PythonTarget.of(lock)
        with tempfile.TemporaryDirectory() as folder:
            wheels = Path(folder)
            packages, pure = {}, list(args.names)
            if args.pyodide:
                distribution = Distribution(args.pyodide, target)
                compiled = [name for name in args.names if name in distribution]
                pure = [name for name in args.names if name not in compiled]
                for name in distribution.closure(compiled):
                    _say(f"{name} from {args.pyodide}")
                    packages[name] = distribution.fetch(name, wheels)
            if pure:
                _refuse_compiled(pure, lock)
                also = [wheels, index.folder] if index.folder.is_dir() else [wheels]
                download_pure(pure, wheels, target, also, _say)
            for path in sorted(wheels.glob("*.whl")):
                if path.name not in {package.file for package in packages.values()}:
                    package = describe_pure(path, target, "pip")
                    packages[package.name] = package
            index.add(packages.values(), wheels)
            missing = _missing(index.read())
    except PackageError as problem:
        raise ExitWith(_with_advice(str(problem), args.names), FAILED, help="TR311") from None
    except OSError as problem:
        raise ExitWith(f"The packages can't be stored: {problem}", FAILED, help="TR311") from None
    for package in packages.values():
        print(f"  added  {package.name} {package.version} ({package.size / 1e6:.1f} MB)")
    if missing:
        print(f"Not here: {', '.join(missing)}. What needs them may fail to import.")
    names = ", ".join(f'"{canonical(name)}"' for name in args.names if name.replace("-", "").replace("_", "").isalnum())
    print(f"In Python files of `modules`, import them. For all: connect({{ packages: [{names}] }})")
    return OK


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _refuse_compiled(names: list[str], lock: Any) -> None:
    """Packages that Pyodide builds and that have no pure wheel: pip's own message would not name a way."""
    from tabrelay.assets.package_index import PackageError, canonical

    for name in names:
        row = lock["packages"].get(canonical(re.split(r"[\[<>=!~ ]", name)[0]))
        if row is not None and not str(row["file_name"]).endswith("-none-any.whl"):
            raise PackageError(f"{name} is compiled, and part of Pyodide's distribution.")


def _with_advice(problem: str, names: list[str]) -> str:
    if "compiled" not in problem and "No matching distribution" not in problem:
        return problem
    wanted = shlex.join(names)
    return (
        f"{problem}\nCompiled packages come from a Pyodide distribution of the relay's version: "
        f"{running_relay.command()} packages add {wanted} --pyodide FOLDER_OR_URL"
    )


def _missing(packages: dict[str, Any]) -> list[str]:
    return sorted({name for package in packages.values() for name in package.depends if name not in packages})


def _list(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from tabrelay.assets.package_index import PackageError

    try:
        packages = _index(args).read()
    except PackageError as problem:
        raise ExitWith(str(problem), FAILED, help="TR311") from None
    if args.json:
        print(json.dumps([asdict(package) for package in packages.values()], indent=2))
    elif not packages:
        print(f"There are no packages. To add one: {running_relay.command()} packages add NAME")
    else:
        rows = [
            [each.name, each.version, f"{each.size / 1e6:.1f} MB", "pure" if each.is_pure else "compiled"]
            for each in packages.values()
        ]
        print(table(["package", "version", "size", "kind"], rows))
    return OK


def _remove(args: argparse.Namespace) -> int:
    from tabrelay.assets.package_index import PackageError, canonical

    index = _index(args)
    try:
        known = index.read()
        names = [canonical(name) for name in args.names]
        if unknown := [name for name in names if name not in known]:
            raise ExitWith(
                f"There is no package {', '.join(unknown)}. To see them: tabrelay packages list", FAILED, help="TR311"
            )
        needing = index.remove(names)
    except PackageError as problem:
        raise ExitWith(str(problem), FAILED, help="TR311") from None
    print(f"Removed {', '.join(names)}.")
    if needing:
        print(f"Still needed by: {', '.join(needing)}")
    return OK
