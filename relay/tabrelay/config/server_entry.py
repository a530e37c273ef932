"""Validation of one configured server: checks its keys, expands variables, and creates its spec.

Reports all mistakes of a server, not only the first. Does not know file formats: `formats` has converted each of them
to the keys of our own TOML, which are listed here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tabrelay import mcp_headers
from tabrelay.config.mistakes import KeyPath
from tabrelay.config.specs import (
    BROWSER_OPTIONS,
    CLIENT_AUTHS,
    ERA_CHOICES,
    GRANTS,
    ID_FORMATS,
    OAUTH_FILES,
    BrowserSpec,
    HttpSpec,
    OAuthSpec,
    Spec,
    StdioSpec,
)
from tabrelay.config.variables import Variables
from tabserver.wire.errors import ServerNameError
from tabserver.wire.names import check_server_name

# Names of the kinds in the formats of all programs.
KINDS: Final = {
    "browser": "browser",
    "plain": "browser",
    "websocket": "browser",
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "remote": "auto",
    "sse": "sse",
}
BROWSER_KEYS: Final = frozenset({"path", *BROWSER_OPTIONS})
STDIO_KEYS: Final = frozenset({"command", "args", "env", "env_vars", "env_file", "cwd"})
HTTP_KEYS: Final = frozenset({"url", "headers", "oauth"})
OAUTH_KEYS: Final = frozenset(item.name for item in fields(OAuthSpec))
UPSTREAM_KEYS: Final = frozenset({"timeout_s", "era", "request_ids", "shared"})
KEYS: Final = frozenset({"type", "enabled"}) | BROWSER_KEYS | STDIO_KEYS | HTTP_KEYS | UPSTREAM_KEYS

# Headers that the relay generates, and that no configuration may change.
GENERATED: Final = frozenset(
    {
        "accept",
        "connection",
        "content-length",
        "content-type",
        "host",
        mcp_headers.LAST_EVENT_ID,
        mcp_headers.METHOD,
        mcp_headers.NAME,
        mcp_headers.PROTOCOL_VERSION,
        mcp_headers.SESSION_ID,
        "transfer-encoding",
    }
)
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_~][A-Za-z0-9._~-]*)+")
MAX_PATH: Final = 256


@dataclass(frozen=True, slots=True)
class ConfiguredServer:
    """One server of a file: `raw` as in the file, and its spec, unless it is disabled."""

    name: str
    raw: Mapping[str, Any]
    spec: Spec | None


def read_entry(
    name: str, raw: Mapping[str, Any], place: KeyPath, variables: Variables, base: Path
) -> ConfiguredServer | None:
    """A server; None if it has mistakes, which are added to `place`. `base`: directory of relative paths."""
    before = len(list(place))
    _check_name(name, place)
    enabled = _typed(raw, "enabled", place, bool, "true or false")
    if enabled is False:
        return ConfiguredServer(name, raw, None) if len(list(place)) == before else None
    kind = _kind(raw, place)
    reader = ServerReader(raw, place, variables, base)
    spec: Spec | None = None
    if kind == "browser":
        spec = reader.browser(name)
    elif kind == "stdio":
        spec = reader.child(name)
    elif kind is not None:
        spec = reader.remote(name, kind)
    return ConfiguredServer(name, raw, spec) if len(list(place)) == before else None


def check_keys(raw: Mapping[str, Any], known: frozenset[str], place: KeyPath, what: str = "a server") -> None:
    """For our own format, where an unknown key is a typing error."""
    for key in raw:
        if key not in known:
            import difflib  # only for a mistake

            near = difflib.get_close_matches(key, known, n=1)
            expected = f'"{near[0]}"' if near else f"one of {', '.join(sorted(known))}"
            place.at(key).wrong(f"is not a key of {what}", expected)


def _check_name(name: str, place: KeyPath) -> None:
    try:
        check_server_name(name)
    except ServerNameError as error:
        place.wrong(str(error).rstrip("."), "a name such as notes or file-server")


def _kind(raw: Mapping[str, Any], place: KeyPath) -> str | None:
    type_name = raw.get("type")
    if type_name is not None:
        kind = KINDS.get(type_name.lower()) if isinstance(type_name, str) else None
        if kind is None:
            place.at("type").wrong(f"unknown type {type_name!r}", "browser, plain, stdio, http or sse")
        return kind
    if "command" in raw and "url" in raw:
        place.wrong("has both a command and a url", "one of them, or a type")
        return None
    return "stdio" if "command" in raw else "auto" if "url" in raw else "browser"


def _typed(raw: Mapping[str, Any], key: str, place: KeyPath, kind: type, expected: str) -> Any:
    """The value, if it has the type. A value of another type is added to the mistakes and counts as absent."""
    value = raw.get(key)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        place.at(key).wrong(f"is {_describe_value(value)}", expected)
        return None
    return value


class ServerReader:
    """Reads the keys of one server."""

    def __init__(self, raw: Mapping[str, Any], place: KeyPath, variables: Variables, base: Path) -> None:
        self._raw = raw
        self._place = place
        self._variables = variables
        self._base = base

    def browser(self, name: str) -> Spec | None:
        self._refuse(STDIO_KEYS | HTTP_KEYS | UPSTREAM_KEYS, "a server of a browser")
        options = {key for key in BROWSER_OPTIONS if _typed(self._raw, key, self._place, bool, "true or false")}
        if self._raw.get("type") in ("plain", "websocket"):
            options.add("plain")
        path = _typed(self._raw, "path", self._place, str, 'a path such as "/db"')
        return BrowserSpec(name, check_path(path, self._place.at("path")) if path else None, frozenset(options))

    def child(self, name: str) -> Spec | None:
        self._refuse(BROWSER_KEYS | HTTP_KEYS, "a child process")
        command = self._text("command", 'the program to run, such as "npx"', needed=True)
        args = self._texts("args")
        env = dict(self._env_file()) | self._named() | self._table("env")
        return StdioSpec(name, command, args, tuple(sorted(env.items())), self._cwd(), **self._common())

    def remote(self, name: str, kind: str) -> Spec | None:
        self._refuse(BROWSER_KEYS | STDIO_KEYS, "a server at a URL")
        url = self._text("url", "an address that begins with http:// or https://", needed=True)
        if url:
            _check_url(url, self._place.at("url"))
        headers = self._table("headers")
        for key, value in headers.items():
            if not _TOKEN.fullmatch(key) or any(ord(c) < 32 or ord(c) == 127 for c in value) or not value.isascii():
                self._place.at("headers").at(key).wrong("is not a header", "a token as name, and one line of ASCII")
        kept = {key: value for key, value in headers.items() if not is_generated(key)}
        transport: Any = kind
        return HttpSpec(name, url, tuple(sorted(kept.items())), transport, **self._common(), oauth=self._oauth())

    def _oauth(self) -> OAuthSpec | None:
        raw, place = self._raw.get("oauth", True), self._place.at("oauth")
        if isinstance(raw, bool):
            return OAuthSpec() if raw else None
        if not isinstance(raw, dict):
            place.wrong(f"is {_describe_value(raw)}", "false, or a table such as { client_id = ..., scope = ... }")
            return None
        check_keys(raw, OAUTH_KEYS, place, "oauth")
        reader = ServerReader(raw, place, self._variables, self._base)
        texts = {key: reader._text(key, "a text") or None for key in OAUTH_KEYS - {"grant", "client_auth"}}
        grant, client_auth = reader._choice("grant", GRANTS), reader._choice("client_auth", CLIENT_AUTHS)
        for key in OAUTH_FILES:
            if file_name := texts[key]:
                texts[key] = str(self._base / Path(file_name).expanduser())
        spec = OAuthSpec(grant=grant, client_auth=client_auth, **texts)
        if fault := spec.fault():
            place.wrong(*fault)
        return spec

    def _refuse(self, foreign: frozenset[str], what: str) -> None:
        for key in self._raw:
            if key in foreign:
                self._place.at(key).wrong(f"does not go with {what}", "it in a server of its kind, or another type")

    def _common(self) -> dict[str, Any]:
        timeout = _typed(self._raw, "timeout_s", self._place, int | float, "seconds; 0 for no limit of its own")  # type: ignore[arg-type]
        if timeout is not None and timeout < 0:
            self._place.at("timeout_s").wrong("is negative", "seconds; 0 for no limit of its own")
        return {
            "timeout_s": timeout,
            "era": self._choice("era", ERA_CHOICES),
            "ids": self._choice("request_ids", ID_FORMATS),
            "is_shared": bool(_typed(self._raw, "shared", self._place, bool, "true or false")),
        }

    def _choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self._raw.get(key, choices[0])
        if value not in choices:
            self._place.at(key).wrong(f"is {_describe_value(value)}", " or ".join(choices))
        return str(value)

    def _text(self, key: str, expected: str, *, needed: bool = False) -> str:
        place = self._place.at(key)
        value = self._raw.get(key)
        if value is None:
            if needed:
                place.wrong("is missing", expected)
            return ""
        if not isinstance(value, str) or not value.strip():
            place.wrong(f"is {_describe_value(value)}", expected)
            return ""
        return self._variables.expand(value, place)

    def _texts(self, key: str) -> tuple[str, ...]:
        value, place = self._raw.get(key), self._place.at(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            place.wrong(f"is {_describe_value(value)}", "a list of strings")
            return ()
        found = []
        for index, item in enumerate(value):
            if isinstance(item, str):
                found.append(self._variables.expand(item, place.at(index)))
            else:
                place.at(index).wrong(f"is {_describe_value(item)}", "a string")
        return tuple(found)

    def _table(self, key: str) -> dict[str, str]:
        value, place = self._raw.get(key), self._place.at(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            place.wrong(f"is {_describe_value(value)}", "a table of names and strings")
            return {}
        found = {}
        for name, item in value.items():
            if isinstance(item, bool) or not isinstance(item, str | int | float):
                place.at(name).wrong(f"is {_describe_value(item)}", "a string")
            elif "\0" in str(item) or "\0" in name or not name or (key == "env" and "=" in name):
                place.at(name).wrong("can't be passed to a program", "a name without '=', and no NUL")
            else:
                found[name] = self._variables.expand(str(item), place.at(name))
        return found

    def _named(self) -> dict[str, str]:
        """Variables of the relay's environment that the server gets too."""
        place = self._place.at("env_vars")
        return {name: self._variables.expand(f"${{{name}}}", place) for name in self._texts("env_vars")}

    def _env_file(self) -> list[tuple[str, str]]:
        file_name = self._text("env_file", "the path of a file with NAME=value lines")
        if not file_name:
            return []
        path = self._base / Path(file_name).expanduser()
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            self._place.at("env_file").wrong(f"{path} can't be read", "the path of a file with NAME=value lines")
            return []
        stripped = [line.strip() for line in lines]
        pairs = [line.removeprefix("export ").partition("=") for line in stripped if not line.startswith("#")]
        return [(name.strip(), value.strip().strip("\"'")) for name, _, value in pairs if name.strip() and value]

    def _cwd(self) -> str | None:
        folder_name = self._text("cwd", "a folder")
        if not folder_name:
            return None
        folder = self._base / Path(folder_name).expanduser()
        if not folder.is_dir():
            self._place.at("cwd").wrong(f"{folder} is not a folder", "a folder that exists")
        return str(folder)


def is_generated(header: str) -> bool:
    return header.lower() in GENERATED or header.lower().startswith(mcp_headers.PARAM_PREFIX)


def check_path(path: str, place: KeyPath) -> str:
    """A second address of a server. A missing slash is added, as in websocket-mcp."""
    full = path if path.startswith("/") else f"/{path}"
    first = full[1:].partition("/")[0]
    if not _PATH.fullmatch(full) or len(full) > MAX_PATH:
        place.wrong(f"{path!r} is not a path", 'one such as "/db": A-Z, a-z, 0-9, - _ . ~ between slashes')
    else:
        try:
            check_server_name(first)
        except ServerNameError:
            place.wrong(f"{path!r} is an address of the relay's own or of the web", 'another path, such as "/db"')
    return full


def _check_url(url: str, place: KeyPath) -> None:
    expected = "an address that begins with http:// or https://"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        place.wrong("is not an address", expected)
        return
    if parts.scheme not in ("http", "https") or not parts.hostname or any(c.isspace() for c in url):
        place.wrong("is not an address", expected)
    elif port == 0:
        place.wrong("has port 0", "a port that a server can listen on")
    elif parts.fragment:
        place.wrong("has a fragment", "an address without #")


def _describe_value(value: object) -> str:
    """Description of a wrong value without its text, which may be a secret."""
    if isinstance(value, str):
        return "an empty string" if not value.strip() else "a string"
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else f"{value}"
