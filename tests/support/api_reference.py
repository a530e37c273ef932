"""Makes docs/reference/api.md: Python names from their docstrings, JavaScript names from comments of .d.ts files."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import tabserver

ROOT = Path(__file__).parents[2]
_JS = ROOT / "browser_pkg" / "tabserver" / "js"
TYPES = {"client.js": _JS / "client.d.ts", "status.js": _JS / "status.d.ts"}

HEAD = """# API reference

Made from the docstrings, from `client.d.ts` and from `status.d.ts`. How to begin is in the [guide](../guides/pages.md).
`TABRELAY_WRITE_DOCS=1 make test ARGS=tests/test_api_docs.py` writes this page anew.

- [Python: `tabserver`](#python-tabserver), the same in the worker and in a PyScript page
- [JavaScript: `client.js`](#javascript-clientjs)
- [JavaScript: `status.js`](#javascript-statusjs), the element `<tabrelay-status>`
"""
_DECLARATION = re.compile(
    r"^(?P<doc>/\*\*(?:(?!\*/).)*?\*/\n)?"
    r"(?P<code>export (?:declare )?(?:function|class|interface|type) (?P<name>\w+).*?)"
    r"(?=^/\*\*|^export |^declare |^// --|\Z)",
    re.DOTALL | re.MULTILINE,
)
# In the order that people meet them; the rest follows by name.
_FIRST = [
    "tool",
    "resource",
    "prompt",
    "app",
    "skill",
    "resource_updated",
    "Context",
    "Bounds",
    "ToolResult",
    "Elicited",
    "Sampled",
]


def reference() -> str:
    return "\n".join([HEAD, *_python(), *_javascript()])


def _python() -> list[str]:
    lines = ["## Python: `tabserver`", ""]
    rest = sorted(set(tabserver.__all__) - set(_FIRST), key=str.lower)
    for name in [*_FIRST, *rest]:
        lines += _entry(name, getattr(tabserver, name))
    return lines


def _entry(name: str, value: Any) -> list[str]:
    if not callable(value):
        return [f"### `{name}`", "", f"The {type(value).__name__} that the decorators use when none is named.", ""]
    lines = [f"### `{name}`", "", "```python", _wrapped(_signature(name, value)), "```", "", _doc(value), ""]
    if not inspect.isclass(value):
        return lines
    for member, found in vars(value).items():
        if member.startswith("_") or not (inspect.isfunction(found) or isinstance(found, property)):
            continue
        about = _doc(found)
        if about:
            shown = f"`{member}`" if isinstance(found, property) else f"`{_signature(member, found)}`"
            lines.append(f"- {shown}: {' '.join(about.split())}")
    return [*lines, ""] if lines[-1].startswith("-") else lines


class _Raw(str):
    """An annotation as it was written, without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _signature(name: str, value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    shown = [
        one.replace(annotation=_Raw(one.annotation)) if isinstance(one.annotation, str) else one
        for one in signature.parameters.values()
        if one.name != "self"
    ]
    returns = signature.return_annotation
    returns = (
        inspect.Signature.empty if inspect.isclass(value) else _Raw(returns) if isinstance(returns, str) else returns
    )
    prefix = "async " if inspect.iscoroutinefunction(value) else ""
    return f"{prefix}{name}{signature.replace(parameters=shown, return_annotation=returns)}"


def _wrapped(text: str) -> str:
    """A long signature with one parameter on each line."""
    if len(text) <= 100:
        return text
    start, depth, parts, last = text.index("(") + 1, 0, [], text.index("(") + 1
    for index in range(start, len(text)):
        depth += text[index] in "([{"
        depth -= text[index] in ")]}"
        if depth < 0 or (depth == 0 and text[index] == ","):
            parts.append(text[last:index].strip())
            last = index + 1
        if depth < 0:
            return text[:start] + "".join(f"\n    {part}," for part in parts) + "\n" + text[index:]
    return text


def _doc(value: Any) -> str:
    text = value.fget.__doc__ if isinstance(value, property) else value.__doc__
    return inspect.cleandoc(text) if text else ""


def _javascript() -> list[str]:
    lines: list[str] = []
    for module, types in TYPES.items():
        lines += [f"## JavaScript: `{module}`", "", *_declarations(types)]
    return lines


def _declarations(types: Path) -> list[str]:
    lines: list[str] = []
    for found in _DECLARATION.finditer(types.read_text(encoding="utf-8")):
        lines += [f"### `{found['name']}`", ""]
        if found["doc"]:
            lines += [_comment(found["doc"]), ""]
        lines += ["```ts", found["code"].rstrip(), "```", ""]
    return lines


def _comment(text: str) -> str:
    inner = text.strip().removeprefix("/**").removesuffix("*/")
    return inspect.cleandoc("\n".join(re.sub(r"^\s*\* ?", "", line) for line in inner.splitlines())).strip()
