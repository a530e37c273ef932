"""Checks of server metadata: lists of tools, resources and prompts, and the server's description of itself.

A server may be an untrusted page, and its texts are shown in terminals, pages and models. Items that are too many, too
large, too deep or deceptive (hidden or reordered text) are left out and reported. Pure. Does not check what tools do.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson

from tabrelay.payloads.confusables import skeleton
from tabrelay.payloads.hidden_text import has_hidden_in_json, searching_json
from tabrelay.payloads.json_limits import is_deeper_than
from tabrelay.payloads.printable_text import printable
from tabserver.wire import jsonrpc, methods
from tabserver.wire.limits import MAX_ITEM_NAME, MAX_TITLE

MAX_URI: Final = 2048
MAX_ITEMS: Final = 1024  # of a list without a setting
MAX_INSTRUCTIONS: Final = 64 * 1024
MAX_CAPABILITIES: Final = 64 * 1024  # bytes of JSON
MAX_MEMBERS: Final = 256 * 1024  # bytes of JSON of all members beside a list, or in `initialize`
MAX_DEPTH: Final = 64  # of everything else; orjson writes at most 254 levels
# The members of an `initialize` result that the relay itself reads.
DESCRIPTION_MEMBERS: Final = ("protocolVersion", "capabilities", "serverInfo", "instructions")
MAX_FLAWS: Final = 1000  # items that are left out; the rest of the list is not checked
MAX_ARGUMENTS: Final = 256  # of a prompt

# method -> the list's key in the result
KEYS: Final = {
    methods.TOOLS_LIST: "tools",
    methods.RESOURCES_LIST: "resources",
    methods.RESOURCES_TEMPLATES_LIST: "resourceTemplates",
    methods.PROMPTS_LIST: "prompts",
    methods.SKILLS_LIST: "skills",
}
# Methods whose results are checked before clients get them: lists, and a server's description of itself.
# defence: hidden text: discovery
CHECKED_METHODS: Final = frozenset({*KEYS, methods.SERVER_DISCOVER})
# Characters that reorder others or are invisible: direction marks and overrides, the "tag" block that hides text.
_DECEPTIVE: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f"
# In prose: control characters (ESC starts a terminal command) except tabs and line breaks, and deceptive characters.
_IN_PROSE: Final = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_DECEPTIVE}]")
_IN_TITLE: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029{_DECEPTIVE}]")
# In a name, no invisible character: control, format, surrogate, private use and separator characters.
_IN_NAME: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ListBounds:
    """Each is a setting of the relay. Sizes are in characters, except `list_bytes`."""

    tools: int = 256
    list_bytes: int = 256 * 1024
    description: int = 8 * 1024
    schema_depth: int = 32


# For a catalogue that was checked before, perhaps with other settings: only its shape is checked.
ANY_SIZE: Final = ListBounds(tools=MAX_ITEMS, list_bytes=1 << 40, description=1 << 40, schema_depth=MAX_DEPTH)


@dataclass(frozen=True, slots=True)
class Rejection:
    """What is wrong with an item of a list. `name` is safe to show. `is_left_out`: clients do not get the item."""

    name: str
    why: str
    is_left_out: bool = True


def read_server_description(result: object) -> dict[str, Any]:
    """An `initialize` or `server/discover` result whose DESCRIPTION_MEMBERS have the types that MCP defines.

    A member of another type, or with hidden text, is left out, as if the server had not sent it. Other members are kept
    up to MAX_MEMBERS, unless they nest so deep that the result could not be encoded as JSON again.
    """
    given = result if isinstance(result, dict) else {}
    about: dict[str, Any] = {}
    version, instructions = given.get("protocolVersion"), given.get("instructions")
    if isinstance(version, str) and len(version) <= MAX_ITEM_NAME:
        about["protocolVersion"] = version
    if isinstance(given.get("capabilities"), dict):
        about["capabilities"] = _capabilities(given["capabilities"])
    info = _server_info(given.get("serverInfo"))
    if info is not None:
        about["serverInfo"] = info
    if isinstance(instructions, str) and len(instructions) <= MAX_INSTRUCTIONS:
        about["instructions"] = instructions
    # After DESCRIPTION_MEMBERS: the size of other members must not decide whether those are kept.
    about |= {
        name: value
        for name, value in given.items()
        if name not in DESCRIPTION_MEMBERS and not is_deeper_than(value, MAX_DEPTH)
    }
    if isinstance(about.get("_meta"), dict):
        about["_meta"] = _without_hidden(about["_meta"])
    # defence: hidden text: in what a server says of itself
    return _without_hidden(about)


def _without_hidden(members: dict[str, Any]) -> dict[str, Any]:
    """The members without hidden text that fit into MAX_MEMBERS together; one that does not fit is left out."""
    kept: dict[str, Any] = {}
    size = 0
    for name, value in members.items():
        text = orjson.dumps({name: value})
        # defence: the size of members beside a server's description of itself
        # defence: members of a server's description of itself that follow a large one
        if size + len(text) <= MAX_MEMBERS and not has_hidden_in_json(text.decode()):
            size += len(text)
            kept[name] = value
    return kept


def _capabilities(capabilities: dict[str, Any]) -> dict[str, Any]:
    """Each capability is an object. `true` counts as an empty one; other types, and too many bytes, are left out."""
    kept: dict[str, Any] = {}
    size = 0
    for name, value in capabilities.items():
        value = {} if value is True else value
        if not isinstance(value, dict) or is_deeper_than(value, MAX_DEPTH):
            continue
        size += len(name) + len(orjson.dumps(value))
        if size > MAX_CAPABILITIES:
            break
        kept[name] = value
    return kept


def _server_info(info: object) -> dict[str, Any] | None:
    """MCP requires a name and a version. A server that sends only its name has version "0"."""
    if not isinstance(info, dict) or not isinstance(info.get("name"), str) or is_deeper_than(info, MAX_DEPTH):
        return None
    texts = ("name", "version", "title", "description", "websiteUrl")
    if len(orjson.dumps(info)) > MAX_CAPABILITIES:
        return None
    wrong = {name for name in texts if name in info and not isinstance(info[name], str)}
    seen = _without_hidden({name: value for name, value in info.items() if name not in wrong})
    return {"version": "0"} | seen if "name" in seen else None


def describe(flaws: Sequence[Rejection], most: int = 3) -> str:
    """The first `most` of them, and the number of the others, on one line."""
    named = ", ".join(f'"{flaw.name}" {flaw.why}' for flaw in flaws[:most])
    return named + (f"; and {len(flaws) - most:,} more" if len(flaws) > most else "")


def inspect(key: str, items: Any, bounds: ListBounds) -> tuple[list[dict[str, Any]], list[Rejection]]:
    """The accepted items of a list, and the rejections. `key`: the list's name in the result."""
    return run_to_end(inspecting(key, items, bounds))


def run_to_end(steps: Generator[None, None, Found]) -> Found:
    """Run all steps of a generator without a pause; returns its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def inspecting(
    key: str, items: Any, bounds: ListBounds
) -> Generator[None, None, tuple[list[dict[str, Any]], list[Rejection]]]:
    """The same, with a `yield` after each item, so that the caller can yield to the event loop."""
    if not isinstance(items, list):
        return [], [Rejection(key, "is not a list")]
    most = bounds.tools if key == "tools" else MAX_ITEMS
    kept: list[dict[str, Any]] = []
    flaws: list[Rejection] = []
    names: set[str] = set()
    alike: dict[str, str] = {}  # skeleton -> the first name that has it
    size = 0
    for index, item in enumerate(items):
        why = _flaw(key, item, bounds)
        yield
        name = _name(key, item)
        if why is None and name in names:
            why = "has the same name as another one"
        # defence: tools of one server
        if why is None and len(kept) >= most:
            why = f"is one of more than {most}"
        if why is None:
            text = orjson.dumps(item)
            if size + len(text) > bounds.list_bytes:
                why = f"does not fit: the list is larger than {bounds.list_bytes:,} bytes"
            # defence: hidden text: in a list
            elif (yield from searching_json(text.decode())):
                why = "has invisible characters"
            else:
                size += len(text)
        if why is None:
            kept.append(item)
            names.add(name)
            other = alike.setdefault(skeleton(name), name)
            # defence: hidden text: names that look alike
            if other != name:
                flaws.append(Rejection(printable(name), f'looks like "{printable(other)}"', is_left_out=False))
        else:
            flaws.append(Rejection(printable(name), why))
            # defence: items of a list that are left out
            if len(flaws) >= MAX_FLAWS:
                if (rest := len(items) - index - 1) > 0:
                    flaws.append(Rejection(key, f"has {rest:,} more items, which were not checked"))
                break
        yield
    return kept, flaws


def _name(key: str, item: Any) -> str:
    field = {"resources": "uri", "resourceTemplates": "uriTemplate", "skills": "uri"}.get(key, "name")
    value = item.get(field) if isinstance(item, dict) else None
    return value if isinstance(value, str) else "?"


def _flaw(key: str, item: Any, bounds: ListBounds) -> str | None:
    """The flaw of one item of a list, or None."""
    if not isinstance(item, dict):
        return "is not an object"
    if key in ("resources", "resourceTemplates", "skills"):
        uri = item.get("uriTemplate" if key == "resourceTemplates" else "uri")
        if not isinstance(uri, str) or not uri or len(uri) > MAX_URI:
            return f"has no URI of 1 to {MAX_URI:,} characters"
        if not is_plain(uri):
            return "has invisible characters in its URI"
    if key == "skills":
        return _flaw_in_skill(item, bounds)
    why = _flaw_in_name(item.get("name"), is_needed=key in ("tools", "prompts"))
    # defence: the shape of a listed tool
    return why or _flaw_in_texts(item, bounds) or _flaw_in_schemas(item, bounds) or _flaw_in_shape(item, bounds)


def _flaw_in_skill(item: dict[str, Any], bounds: ListBounds) -> str | None:
    front = item.get("frontmatter")
    if not isinstance(front, dict):
        return "has no frontmatter"
    if is_deeper_than(item, MAX_DEPTH):
        return f"nests deeper than {MAX_DEPTH} levels"
    return _flaw_in_name(front.get("name"), is_needed=True) or _flaw_in_texts(front, bounds)


def _flaw_in_name(name: Any, *, is_needed: bool) -> str | None:
    if name is None and not is_needed:
        return None
    # A resource's name is used as a title.
    most = MAX_ITEM_NAME if is_needed else MAX_TITLE
    if not isinstance(name, str) or not name or len(name) > most:
        return f"has no name of 1 to {most} characters"
    if not (is_plain(name) if is_needed else not _IN_TITLE.search(name)):
        return "has invisible characters in its name"
    return None


def _flaw_in_texts(item: dict[str, Any], bounds: ListBounds) -> str | None:
    annotations = item.get("annotations")
    titles = [item.get("title"), annotations.get("title") if isinstance(annotations, dict) else None]
    for title in titles:
        if title is not None and not is_title(title):
            return f"has a title that is not one line of at most {MAX_TITLE} visible characters"
    texts: list[Any] = [item.get("description")]
    arguments = item.get("arguments")
    if isinstance(arguments, list):  # a prompt's
        if len(arguments) > MAX_ARGUMENTS:
            return f"has more than {MAX_ARGUMENTS} arguments"
        texts += [each.get("description") for each in arguments if isinstance(each, dict)]
        for each in arguments:
            if why := _flaw_in_name(each.get("name") if isinstance(each, dict) else None, is_needed=True):
                return f"has an argument that {why}"
    for text in texts:
        if text is None:
            continue
        if not isinstance(text, str) or len(text) > bounds.description:
            return f"has a description of more than {bounds.description:,} characters"
        if _IN_PROSE.search(text):
            return "has invisible characters in its description"
    return None


def _flaw_in_schemas(item: dict[str, Any], bounds: ListBounds) -> str | None:
    for field in ("inputSchema", "outputSchema"):
        if is_deeper_than(item.get(field), bounds.schema_depth):
            return f"has a schema that nests deeper than {bounds.schema_depth} levels"
    return None


def _flaw_in_shape(item: dict[str, Any], bounds: ListBounds) -> str | None:
    for field in ("inputSchema", "outputSchema", "annotations", "_meta"):
        if field in item and not isinstance(item[field], dict):
            return f"has {field} that is not an object"
    if "arguments" in item and not isinstance(item["arguments"], list):
        return "has arguments that are not a list"
    if is_deeper_than(item, bounds.schema_depth + 1):  # a schema is one level inside its tool
        return f"nests deeper than {bounds.schema_depth} levels"
    return None


def is_title(text: Any) -> bool:
    """Is it a single line without deceptive characters?"""
    return isinstance(text, str) and len(text) <= MAX_TITLE and not _IN_TITLE.search(text)


def is_plain(text: str) -> bool:
    """Are all of its characters visible?"""
    if text.isascii():
        return text.isprintable()
    # defence: ANSI and bidi in names
    return not any(unicodedata.category(character) in _IN_NAME for character in text)


def checking_reply(
    method: str, message: Any, bounds: ListBounds
) -> Generator[None, None, tuple[dict[str, Any] | None, Sequence[Rejection]]]:
    """The reply to one of CHECKED_METHODS without rejected items; None if it is forwarded unchanged. Yields as
    `inspecting`.

    A list is always encoded again: of a duplicate key, clients get the value that was checked.
    """
    result = message.get("result") if isinstance(message, dict) else None
    if not isinstance(result, dict):
        return None, ()
    key = KEYS.get(method)
    if key is None:
        return jsonrpc.result_message(message.get("id"), read_server_description(result)), ()
    if key not in result:
        return None, ()
    kept, flaws = yield from inspecting(key, result[key], bounds)
    others = {name: value for name, value in result.items() if name != key and not is_deeper_than(value, MAX_DEPTH)}
    return jsonrpc.result_message(message.get("id"), _without_hidden(others) | {key: kept}), flaws
