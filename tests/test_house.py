"""Rules of the source tree that a program can check: imports, names, sizes, packages, versions."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

import tabrelay
from tabrelay import mcp_headers
from tabserver.wire import methods
from tests import order

ROOT = Path(__file__).resolve().parent.parent
RELAY = ROOT / "relay" / "tabrelay"
BROWSER = ROOT / "browser_pkg" / "tabserver"

MUST_BE_THERE = {"pyproject.toml", "relay", "browser_pkg", "web_demo", "tests", "playwright.config.py"}
MAY_BE_THERE = MUST_BE_THERE | {
    ".ci",
    ".git-blame-ignore-revs",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "bench",
    "constraints.txt",
    "docs",
    "package.json",
}

# Put together here so that this file does not name them itself.
REGISTRIES = [f"{name}.org" for name in ("pypi", "pythonhosted", "npmjs", "debian")]
MACHINE_PATHS = re.compile(r"(?<![\w.*~$})])/(?:work|root|home/\w+|Users/\w+)(?:/|\b(?=[\s'\"`]))")


def tracked_files() -> list[str]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listing.split("\0") if name and (ROOT / name).is_file()]


@lru_cache(maxsize=2048)
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file. Several tests walk the whole tree; parsing takes most of their time."""
    return ast.parse(path.read_text())


def imports_of(path: Path) -> Iterator[str]:
    """Absolute imports, anywhere in the file."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def modules(folder: Path, *patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in folder.rglob(pattern) if "__pycache__" not in path.parts)


def test_every_import_follows_the_layers() -> None:
    # In a separate process: the linter sets up logging, and silences loggers that other tests use.
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("path", modules(BROWSER / "wire", "*.py"), ids=lambda path: path.name)
def test_the_wire_is_pure(path: Path) -> None:
    impure = {"asyncio", "datetime", "logging", "random", "secrets", "select", "socket", "threading", "time"}
    roots = {name.split(".")[0] for name in imports_of(path)}
    assert roots <= set(sys.stdlib_module_names) - impure | {"tabserver"}


@pytest.mark.parametrize("folder", [RELAY, BROWSER], ids=lambda folder: folder.name)
def test_only_the_browser_package_imports_js_and_pyodide(folder: Path) -> None:
    knowing = {
        path.relative_to(folder).parent.as_posix()
        for path in modules(folder, "*.py")
        if {"js", "pyodide", "pyscript"} & {name.split(".")[0] for name in imports_of(path)}
    }
    # The second is not a package: pages of MicroPython load its file.
    assert knowing <= {"browser", "micropython"}


def test_the_browser_package_needs_nothing_but_the_standard_library() -> None:
    allowed = set(sys.stdlib_module_names) | {"tabserver", "js", "pyodide", "jsffi"}
    assert {name.split(".")[0] for path in modules(BROWSER, "*.py") for name in imports_of(path)} <= allowed


# Public, and the field's term in both places: a link to a resource, and the protocol between worker and relay.
SHARED_CLASS_NAMES = {"Link"}


def test_class_names_are_unique_in_both_packages() -> None:
    found = Counter(
        node.name
        for folder in (RELAY, BROWSER)
        for path in modules(folder, "*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and "micropython" not in path.parts
    )
    assert {name for name, count in found.items() if count > 1} == SHARED_CLASS_NAMES


def test_method_and_header_names_are_defined_once() -> None:
    """`initialize` is also a method of ACP and a key of a state file, and `ping` a message between tab and worker."""
    names = {str(value) for value in vars(methods).values() if isinstance(value, str) and "/" in value}
    names |= {str(value) for name, value in vars(mcp_headers).items() if name.isupper() and not name.startswith("RAW_")}
    repeated = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value!r}"
        for folder in (RELAY, BROWSER)
        for path in modules(folder, "*.py")
        if path not in (RELAY / "mcp_headers.py", BROWSER / "wire" / "methods.py") and "micropython" not in path.parts
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant)
        and (node.value.decode() if isinstance(node.value, bytes) and node.value.isascii() else node.value) in names
    ]
    assert repeated == []


# Each of these is loaded without the others; an app's page contains app_view.js as text.
JS_TREES = (
    "relay/tabrelay/assets/page/",
    "browser_pkg/tabserver/js/app_view.js",
    "browser_pkg/tabserver/js/client/",
    "browser_pkg/tabserver/js/worker/",
)


@pytest.mark.parametrize("tree", JS_TREES)
def test_method_names_are_written_once_in_each_tree_of_javascript(tree: str) -> None:
    names = {str(value) for value in vars(methods).values() if isinstance(value, str) and "/" in value}
    files = [name for name in tracked_files() if name.startswith(tree) and name.endswith(".js")]
    written = Counter(
        literal
        for name in files
        for line in (ROOT / name).read_text().splitlines()
        if not line.lstrip().startswith(("*", "/*", "//"))
        for literal in re.findall(r'"([^"]+)"', line)
        if literal in names
    )
    assert written
    assert {literal for literal, count in written.items() if count > 1} == set()


def test_method_names_of_the_pages_are_those_of_the_wire() -> None:
    text = (RELAY / "assets" / "page" / "mcp_methods.js").read_text()
    constants = re.findall(r'^export const (\w+) = "([^"]+)";$', text, re.MULTILINE)
    assert len(constants) > 5
    assert [name for name, value in constants if getattr(methods, name, None) != value] == []


# Attributes of the platform: events of the DOM and of IndexedDB, Pyodide's hook for fatal errors, the compiler.
JS_LISTENERS = {"onmessage", "onopen", "onclose", "onerror", "onconnect", "onsuccess", "onupgradeneeded", "oncomplete"}
JS_PLATFORM = JS_LISTENERS | {"on_fatal", "instantiateStreaming"}
JS_ASSIGNED = re.compile(
    r"^\s*(?!const |let |this\.\w+ =|this\.#\w+ =)[\w.#?]+\.(\w+) \??\??= (?:async )?(?:\(.*=>|\w+ =>|function\b)"
)


def test_no_object_of_javascript_gets_behaviour_after_its_construction() -> None:
    found = [
        (name, match[1])
        for name in tracked_files()
        if name.startswith("browser_pkg/tabserver/js/") and name.endswith(".js")
        for line in (ROOT / name).read_text().splitlines()
        if (match := JS_ASSIGNED.match(line)) is not None
    ]
    assert len(found) > 5, "the pattern finds listeners of the platform"
    assert [each for each in found if each[1] not in JS_PLATFORM] == []


MOST_LINES, MOST_LINES_OF_TESTS, MOST_LINES_OF_A_FUNCTION = 400, 600, 60


def test_files_are_short_enough_to_read() -> None:
    """Files of the product have at most 400 lines, those of tests 600. Type declarations and CSS are exempt."""
    long = []
    for name in tracked_files():
        if name.endswith((".py", ".js", ".mjs")) and not name.endswith(".d.ts"):
            most = MOST_LINES_OF_TESTS if name.startswith("tests/") else MOST_LINES
            lines = len((ROOT / name).read_text().splitlines())
            long += [f"{name}: {lines} lines"] if lines > most else []
    assert long == []


def test_functions_are_short_enough_to_read() -> None:
    assert [
        f"{name}:{node.lineno}: {node.name}"
        for name in tracked_files()
        if name.endswith(".py")
        for node in ast.walk(parsed(ROOT / name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION
    ] == []


# A line that begins a function: its indentation equals that of its last line in all of these files.
JS_FUNCTION = re.compile(
    r"^( *)(?!if\b|for\b|while\b|switch\b|catch\b)"
    r"(?:.*\bfunction\b.*\{|.*=> \{|(?:async |static |get |set |\*)*#?\w+\(.*\) \{)$"
)


def test_functions_of_javascript_are_short_enough_to_read() -> None:
    """The wrapper of a classic script, `(() => {`, is its scope and does not count as a function."""
    long, count = [], 0
    for name in tracked_files():
        if not name.endswith(".js") or name.startswith(("tests/", "bench/")):
            continue
        lines = (ROOT / name).read_text().splitlines()
        for number, line in enumerate(lines):
            begins = JS_FUNCTION.match(line)
            if begins is None or line.startswith("("):
                continue
            ends = next(at for at in range(number + 1, len(lines)) if lines[at].startswith(f"{begins[1]}}}"))
            count += 1
            long += (
                [f"{name}:{number + 1}: {ends - number + 1} lines"] if ends - number >= MOST_LINES_OF_A_FUNCTION else []
            )
    assert count > 500
    assert long == []


def test_every_package_states_its_purpose() -> None:
    folders = {path.parent for folder in (RELAY, BROWSER) for path in modules(folder, "*.py")}
    silent = [
        folder.relative_to(ROOT).as_posix()
        for folder in folders
        if folder.name != "micropython" and not ast.get_docstring(parsed(folder / "__init__.py"))
    ]
    assert silent == []


MOST_ROOT_MODULES = {RELAY: 4, BROWSER: 5}
MOST_LAYERS = {"tabrelay": 8, "tabserver": 6}


@pytest.mark.parametrize("folder", MOST_ROOT_MODULES, ids=lambda folder: folder.name)
def test_modules_are_in_packages(folder: Path) -> None:
    assert len(list(folder.glob("*.py"))) <= MOST_ROOT_MODULES[folder]


@pytest.mark.parametrize("package", MOST_LAYERS)
def test_layers_are_few_and_name_every_package(package: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [contract for contract in contracts if contract.get("containers") == [package]]
    assert len(layers["layers"]) <= MOST_LAYERS[package] and layers["exhaustive"]


def test_a_test_file_has_the_name_of_its_module() -> None:
    """tests/<package>/test_<module>.py; several files of one module have a word more each. Behaviour of several modules
    is in tests/behaviour."""
    names: dict[Path, set[str]] = {}
    for folder in (RELAY, BROWSER):
        for path in modules(folder, "*.py"):
            names.setdefault(path.relative_to(folder).parent, set()).add(path.stem)
    strays = [
        path.relative_to(ROOT).as_posix()
        for package, stems in names.items()
        if package != Path()
        for path in (ROOT / "tests" / package).glob("test_*.py")
        if not any(f"{path.stem}_".startswith(f"test_{stem}_") for stem in stems)
    ]
    assert strays == []


def test_a_micropython_page_gets_one_small_file() -> None:
    assert len((BROWSER / "micropython" / "tabserver.py").read_text().splitlines()) <= 150


def test_every_relay_of_a_test_is_recorded() -> None:
    """Every message of a relay in a test is checked against the official models (tests/support/recorder.py). A test
    that builds a relay, or starts the command, in another way is listed here with the reason."""
    starts = re.compile(
        r"\bcreate_app\(|\"-m\", \"tabrelay\"(?!, \"(?:stdio|logs|login|doctor|mcp|acp|init)\")|\bRelay\("
    )
    tests = ROOT / "tests"
    found = {path.relative_to(tests).as_posix() for path in modules(tests, "*.py") if starts.search(path.read_text())}
    assert found == {
        "server/test_workers.py",  # commands that refuse to start
        "cli/test_call.py",  # only other commands
        "behaviour/test_route_access.py",  # only the gate; the routes behind it do not answer
        "behaviour/test_exit_codes.py",  # only other commands
        "cli/test_main.py",  # with a Wiretap
        "support/demo.py",  # Demo, with a Wiretap
        "support/measured_relay.py",  # CPU time is measured; the recorder would take most of it
        "support/hook/sitecustomize.py",  # the tap itself
        "support/child_process.py",  # the commands stdio and acp, which are not relays
        "support/running_relay.py",  # RunningRelay, with a Recorder
        "server/test_config_reload.py",  # with a Wiretap
    }


def test_what_goes_first_is_there() -> None:
    names = [line.split()[1] for line in order.DURATIONS.read_text().splitlines()]
    assert names and [name for name in (*names, *order.SLOW_FOLDERS) if not (ROOT / "tests" / name).exists()] == []


def test_the_changelog_begins_with_this_version() -> None:
    released = re.findall(r"^## \[?v?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[:1] == [tabrelay.__version__]


def test_the_top_level_is_the_agreed_one() -> None:
    names = {name.split("/")[0] for name in tracked_files()}
    assert names >= MUST_BE_THERE
    assert names <= MAY_BE_THERE


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    found = []
    for name in tracked_files():
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {host}" for host in REGISTRIES if host in text]
        if not name.startswith("tests/"):
            found += [f"{name}: {match[0]}" for match in MACHINE_PATHS.finditer(text)]
    assert found == []


def test_versions_are_exact_wherever_they_are_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    package = json.loads((ROOT / "package.json").read_text())
    pins = {**package["dependencies"], **package["optionalDependencies"], **package["devDependencies"]}
    assert [
        f"{name} {pin}"
        for name, pin in pins.items()
        if not re.fullmatch(r"(npm:[\w@/-]+@)?\d+\.\d+\.\d+(-[a-z]+\.\d+|-\d+)?", pin)
    ] == []


def test_the_notices_name_the_versions_that_ship() -> None:
    notice = (ROOT / "browser_pkg" / "runtime" / "notices" / "NOTICE.md").read_text()
    for name, version in json.loads((ROOT / "package.json").read_text())["dependencies"].items():
        assert f"| {version} |" in notice, name
