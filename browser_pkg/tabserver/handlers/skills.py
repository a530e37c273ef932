"""Skills (SEP-2640): a SKILL.md with instructions for an agent, and the files beside it, as resources `skill://NAME/…`.

    @skill(files={"references/FORMS.md": FORMS})
    def pdf_tools() -> str:
        "Extract, fill and assemble PDF files."
        return "# PDF tools …"

A skill is the resource of its SKILL.md, which has the skill's entry in its `_meta`, and a template for the other files.
The entry has the frontmatter and the digests of all files, so the content is read once, when the skill is offered.
Lists of skills are made from the entries: see `wire.extensions`.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, overload
from urllib.parse import quote

from ..schema.shapes import SchemaError
from ..wire.extensions import META_SKILL
from .frontmatter import FrontmatterError, parse_frontmatter, split_frontmatter, write_frontmatter
from .resources import ResourceNotFound, declare_resource
from .toolbox import Toolbox, default_toolbox

F = TypeVar("F", bound=Callable[[], "str | Mapping[str, str | bytes]"])

MANIFEST: Final = "SKILL.md"
MARKDOWN: Final = "text/markdown"
# What every client accepts. The limits of js/client/skills.js.
MAX_FILES: Final = 512
MAX_SIZE: Final = 16 * 1024 * 1024
MAX_DESCRIPTION: Final = 1024
_NAME: Final = re.compile(r"(?!.*--)[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
_PATH: Final = re.compile(r"(?!.*(^|/)\.{1,2}(/|$))[^/\\\x00-\x1f]+(/[^/\\\x00-\x1f]+)*")
_TYPES: Final = {
    "md": MARKDOWN,
    "txt": "text/plain",
    "py": "text/x-python",
    "js": "text/javascript",
    "json": "application/json",
    "html": "text/html",
    "css": "text/css",
    "csv": "text/csv",
    "svg": "image/svg+xml",
    "xml": "text/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "toml": "application/toml",
    "sh": "text/x-sh",
    "png": "image/png",
    "jpg": "image/jpeg",
    "gif": "image/gif",
    "pdf": "application/pdf",
}


@overload
def skill(function: F, /) -> F: ...
@overload
def skill(
    *,
    name: str | None = None,
    description: str | None = None,
    files: Mapping[str, str | bytes] | None = None,
    metadata: Mapping[str, Any] | None = None,
    toolbox: Toolbox | None = None,
) -> Callable[[F], F]: ...
def skill(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    files: Mapping[str, str | bytes] | None = None,
    metadata: Mapping[str, Any] | None = None,
    toolbox: Toolbox | None = None,
) -> F | Callable[[F], F]:
    """Offer a skill: instructions for agents. The function returns the text of SKILL.md, or all files by path.

    It is called once, now. Name and description are those of the function, unless the SKILL.md has a frontmatter or
    they are given. `files`: more files. `metadata`: further fields of the frontmatter, such as `license`.
    """

    def register(function: F) -> F:
        returned = function()
        every: dict[str, str | bytes] = {MANIFEST: returned} if isinstance(returned, str) else dict(returned)
        every |= files or {}
        own = name or getattr(function, "__name__", "").strip("_").replace("_", "-")
        about = {"name": own, "description": description or inspect.getdoc(function) or ""}
        box = default_toolbox if toolbox is None else toolbox
        _offer(box, about | dict(metadata or {}), every, is_named=name is not None)
        return function

    return register if function is None else register(function)


def _offer(box: Toolbox, about: dict[str, Any], files: Mapping[str, str | bytes], *, is_named: bool) -> None:
    text = files.get(MANIFEST)
    if not isinstance(text, str):
        raise SchemaError(f"skill {about['name']}: it needs a {MANIFEST}, as text")
    lines, _ = split_frontmatter(text)
    if lines is None:
        text = write_frontmatter(about) + text
    elif not is_named:
        about = {"name": str(_parsed(lines, about["name"]).get("name"))}
    contents = {path: _bytes(about["name"], path, body) for path, body in files.items()}
    contents[MANIFEST] = text.encode()
    root = f"skill://{about['name']}"
    for path in contents:
        if not _PATH.fullmatch(path):
            raise SchemaError(f"skill {about['name']}: {path!r} is no path of a file, such as references/FORMS.md")
    resources: list[dict[str, Any]] = [
        {"uri": _uri(root, path), "digest": f"sha256:{hashlib.sha256(body).hexdigest()}", "size": len(body)}
        for path, body in contents.items()
    ]
    entry: dict[str, Any] = {"text": split_frontmatter(text)[0], "resources": resources}
    try:
        entry = read_entry(f"{root}/{MANIFEST}", entry)
    except ValueError as error:
        raise SchemaError(f"skill {about['name']}: {error}") from None
    front = entry["frontmatter"]
    meta = {META_SKILL: entry}
    manifest = declare_resource(
        f"{root}/{MANIFEST}",
        lambda: text,
        name=front["name"],
        description=front["description"],
        mime_type=MARKDOWN,
        size=len(contents[MANIFEST]),
        meta=meta,
    )
    box.add(manifest)
    if len(contents) > 1:
        box.add(declare_resource(f"{root}/{{path*}}", _reader(root, contents), name=f"Files of {front['name']}"))


def _bytes(name: str, path: str, body: object) -> bytes:
    try:
        if isinstance(body, str | bytes | bytearray):
            return body.encode() if isinstance(body, str) else bytes(body)
        raise SchemaError(f"skill {name}: {path!r} must be a text or bytes, not {type(body).__name__}")
    except UnicodeEncodeError:
        raise SchemaError(f"skill {name}: {path!r} has half of a surrogate pair, which no file can contain") from None


def _reader(root: str, contents: Mapping[str, bytes]) -> Callable[[str], dict[str, Any]]:
    def read(path: str) -> dict[str, Any]:
        uri, body = _uri(root, path), contents.get(path)
        if body is None:
            raise ResourceNotFound(uri)
        return {"contents": [{"uri": uri, **_content(path, body)}]}

    return read


def _content(path: str, body: bytes) -> dict[str, Any]:
    """As text where it is UTF-8 that is read again as the same bytes."""
    kind = _TYPES.get(path.rpartition(".")[2].lower())
    try:
        text = body.decode()
    except UnicodeDecodeError:
        blob = base64.b64encode(body).decode()
        return {"mimeType": kind or "application/octet-stream", "blob": blob}
    return {"mimeType": kind or "text/plain", "text": text}


def _uri(root: str, path: str) -> str:
    return f"{root}/{quote(path, safe='/!*()')}"


def _parsed(lines: str, name: str) -> dict[str, Any]:
    try:
        return parse_frontmatter(lines)
    except FrontmatterError as error:
        raise SchemaError(f"skill {name}: {error}") from None


def read_entry(uri: str, given: Any) -> dict[str, Any]:
    """The entry of a skill, from the text of its frontmatter and its files. Raises ValueError if clients refuse it."""
    if not isinstance(given, dict) or not isinstance(given.get("text"), str):
        raise ValueError("A skill has the text of a frontmatter, and its files.")
    front, resources = parse_frontmatter(given["text"]), given.get("resources")
    name, description = front.get("name"), front.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"The name of a skill has 1 to 64 characters: a-z, digits and single hyphens, not {name!r}.")
    if uri != f"skill://{name}/{MANIFEST}":
        raise ValueError(f"The frontmatter has the name {name!r}, and the skill's address is {uri}.")
    if not isinstance(description, str) or not 0 < len(description) <= MAX_DESCRIPTION:
        raise ValueError(f"The description of a skill has 1 to {MAX_DESCRIPTION:,} characters.")
    if not isinstance(resources, list) or not all(map(_is_file, resources)):
        raise ValueError("The files of a skill have a uri, a digest and a size.")
    uris = [file["uri"] for file in resources]
    root = uri.removesuffix(MANIFEST)
    if uri not in uris or len(set(uris)) < len(uris) or not all(one.startswith(root) for one in uris):
        raise ValueError("Each file of a skill is listed once, with the SKILL.md.")
    if len(resources) > MAX_FILES or sum(file["size"] for file in resources) > MAX_SIZE:
        raise ValueError(f"A skill has at most {MAX_FILES} files, and 16 MiB.")
    files = [{"uri": file["uri"], "digest": file["digest"], "size": file["size"]} for file in resources]
    return {"frontmatter": front, "resources": files}


def _is_file(file: Any) -> bool:
    return (
        isinstance(file, dict)
        and isinstance(file.get("uri"), str)
        and isinstance(file.get("digest"), str)
        and re.fullmatch(r"sha256:[0-9a-f]{64}", file["digest"]) is not None
        and type(file.get("size")) is int
        and file["size"] >= 0
    )
