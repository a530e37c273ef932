"""URI templates: the variables of a template, and their values in a URI.

`{name}` is one path segment; `{name*}` may contain slashes. The rest of RFC 6570 is deliberately not supported: the
text between variables is literal, so a URI matches in one way or not at all.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

_VARIABLE: Final = re.compile(r"\{([A-Za-z_]\w*)(\*?)\}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# Callers choose the URI; a limit bounds the work of the pattern.
LONGEST_URI: Final = 4096


def check_uri(uri: str) -> list[str]:
    """The variables of a URI or URI template, in order; raises ValueError for other text."""
    if not _SCHEME.match(uri):
        raise ValueError(f"{uri!r}: a URI begins with a scheme, such as notes://")
    variables = [found[1] for found in _VARIABLE.finditer(uri)]
    if re.search(r"[{}]", _VARIABLE.sub("", uri)):
        raise ValueError(f"{uri}: a variable is written {{name}}, or {{name*}} if it may have slashes in it")
    if len(set(variables)) < len(variables):
        raise ValueError(f"{uri}: an argument is in the URI twice")
    if uri.count("*}") > 1:
        raise ValueError(f"{uri}: only one argument may have slashes in it")
    return variables


def match(template: str, uri: str) -> dict[str, str] | None:
    """The values of a template's variables in a URI; None if it does not match."""
    found = _pattern(template).fullmatch(uri) if len(uri) <= LONGEST_URI else None
    return {name: unquote(text) for name, text in found.groupdict().items()} if found else None


@lru_cache(maxsize=256)
def _pattern(template: str) -> re.Pattern[str]:
    text, end = "", 0
    for found in _VARIABLE.finditer(template):
        text += re.escape(template[end : found.start()]) + f"(?P<{found[1]}>{'.+' if found[2] else '[^/?#]+'})"
        end = found.end()
    return re.compile(text + re.escape(template[end:]), re.DOTALL)
