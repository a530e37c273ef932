"""Rule that no object gets behaviour after its construction: what it calls is an argument of its constructor.

An assignment `other.attribute = value` is found if the value is a lambda, a partial, a function of the same file, or
a method. So are a collaborator that a constructor sets in one of its arguments, one that a function of a module sets
in an object that it has made, and an attribute of a collaborator that is set for the time of one call. An object may
assign to `self`, except to replace one of its methods. An object that exists before its listeners has a list of
them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

RELAY, BROWSER = ROOT / "relay" / "tabrelay", ROOT / "browser_pkg" / "tabserver"
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def trees(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(folder).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def is_property(function: FUNCTIONS) -> bool:
    return any(
        "property" in ast.unparse(each) or ast.unparse(each).endswith(".setter") for each in function.decorator_list
    )


def methods_of(folder: Path) -> set[str]:
    """The names of all methods that are not properties, without names that are also attributes of data."""
    found: set[str] = set()
    data: set[str] = set()
    for _, tree in trees(folder):
        for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for member in owner.body:
                if isinstance(member, FUNCTIONS):
                    (data if is_property(member) else found).add(member.name)
                elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    data.add(member.target.id)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            ):
                data.add(node.attr)
    return found - data


def targets(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Pairs of target and value."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=True)
            else:
                yield target, node.value


def is_behaviour(value: ast.expr, functions: set[str], methods: set[str]) -> bool:
    match value:
        case ast.Lambda():
            return True
        case ast.Call(func=ast.Name(id="partial")) | ast.Call(func=ast.Attribute(attr="partial")):
            return True
        case ast.Name(id=name):
            return name in functions
        case ast.Attribute(attr=name):
            return name in methods
        case ast.IfExp(body=first, orelse=second):
            return is_behaviour(first, functions, methods) or is_behaviour(second, functions, methods)
    return False


def assigned(folder: Path) -> set[str]:
    found: set[str] = set()
    methods = methods_of(folder)
    for name, tree in trees(folder):
        owners = [node for node in ast.walk(tree) if not isinstance(node, ast.ClassDef)]
        functions = {each.name for node in owners for each in ast.iter_child_nodes(node) if isinstance(each, FUNCTIONS)}
        for node in ast.walk(tree):
            for target, value in targets(node):
                if not isinstance(target, ast.Attribute) or not is_behaviour(value, functions, methods):
                    continue
                is_own = isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")
                if not is_own or target.attr in methods:
                    found.add(f"{name}: {ast.unparse(target)}")
    return found


def root_of(target: ast.expr) -> str:
    while isinstance(target, ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def classes_made(value: ast.expr, classes: set[str]) -> bool:
    """Whether it is a call of one of these classes."""
    if isinstance(value, ast.IfExp):
        return classes_made(value.body, classes) or classes_made(value.orelse, classes)
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in classes


def of_function(function: FUNCTIONS, classes: set[str], *, is_of_module: bool) -> Iterator[ast.Attribute]:
    """Attributes of other objects that a function sets, where a constructor should get the value."""
    pairs = [pair for node in ast.walk(function) for pair in targets(node)]
    made = {target.id for target, value in pairs if isinstance(target, ast.Name) and classes_made(value, classes)}
    arguments = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)} - {"self", "cls"}
    before: set[str] = set()
    for target, value in pairs:
        if not isinstance(target, ast.Attribute):
            continue
        text, root = ast.unparse(target), root_of(target)
        is_reset = text in before and text.count(".") > 1 and root == "self" and ast.unparse(value) == "None"
        is_wired = function.name == "__init__" and root in arguments
        if is_reset or is_wired or (is_of_module and root in made and classes_made(value, classes)):
            yield target
        before.add(text)


def wired(folder: Path) -> set[str]:
    classes = {node.name for _, tree in trees(folder) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return {
        f"{name}: {ast.unparse(target)}"
        for name, tree in trees(folder)
        for function in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))
        for target in of_function(function, classes, is_of_module=function in tree.body)
    }


@pytest.mark.parametrize("folder", [RELAY, BROWSER], ids=lambda folder: folder.name)
def test_no_object_gets_behaviour_after_its_construction(folder: Path) -> None:
    assert assigned(folder) == set()


@pytest.mark.parametrize("folder", [RELAY, BROWSER], ids=lambda folder: folder.name)
def test_no_object_gets_a_collaborator_after_its_construction(folder: Path) -> None:
    assert wired(folder) == set()


def test_such_collaborators_are_found(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(
        """
class Lookup: ...


class Cluster:
    def __init__(self, switch, *, registry):
        self.ids = Lookup()
        switch.lookup = self.ids
        registry.names.on_use = print

    def send(self, id):
        self.ids.next_id = id
        self.ids.next_id = None

    def end(self):
        self.state = None


def create():
    app = Cluster(None)
    app.fast_path = Lookup()
    app.count = 1
    return app
"""
    )
    names = {row.partition(": ")[2] for row in wired(tmp_path)}
    assert names == {"switch.lookup", "registry.names.on_use", "self.ids.next_id", "app.fast_path"}


def test_such_assignments_are_found(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(
        """
class Timer:
    def __init__(self, on_due):
        self.on_due = on_due
        self.step = 1

    def fire(self): ...


def ring(): ...


def connect(timer, other):
    timer.on_due = other.fire
    timer.on_end = lambda: None
    timer.on_ring = ring
    timer.later = partial(other.fire, 1)
    timer.count, timer.on_pair = 1, other.fire
    timer.step = other.step
    timer.fire = None
"""
    )
    names = {row.partition(": ")[2] for row in assigned(tmp_path)}
    assert names == {"timer.on_due", "timer.on_end", "timer.on_ring", "timer.later", "timer.on_pair"}
