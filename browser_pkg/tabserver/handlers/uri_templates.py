"""URI templates: which variables one has, and what a URI gives for them.

`{name}` is one path segment; `{name*}` may have slashes in it. The rest of RFC 6570 is left out on purpose: what stands
between the variables is literal, so that a URI fits or does not.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

_VARIABLE: Final = re.compile(r"\{([A-Za-z_]\w*)(\*?)\}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# Whoever calls chooses the URI: a pattern must not be made to work on a novel.
LONGEST_URI: Final = 4096


def check_uri(uri: str) -> list[str]:
    """The variables of a URI or URI template, in order; raises ValueError for what is neither."""
    if not _SCHEME.match(uri):
        raise ValueError(f"{uri!r}: a URI begins with a scheme, such as notes://")
    variables = [found[1] for found in _VARIABLE.finditer(uri)]
    if re.search(r"[{}]", _VARIABLE.sub("", uri)):
        raise ValueError(f"{uri}: a variable is written {{name}}, or {{name*}} if it may have slashes in it")
    if len(set(variables)) < len(variables):
        raise ValueError(f"{uri}: an argument stands in the URI twice")
    if uri.count("*}") > 1:
        raise ValueError(f"{uri}: only one argument may have slashes in it")
    return variables


def match(template: str, uri: str) -> dict[str, str] | None:
    """What a URI gives for a template's variables, or None if it is another one's."""
    found = _pattern(template).fullmatch(uri) if len(uri) <= LONGEST_URI else None
    return {name: unquote(text) for name, text in found.groupdict().items()} if found else None


@lru_cache(maxsize=256)
def _pattern(template: str) -> re.Pattern[str]:
    text, end = "", 0
    for found in _VARIABLE.finditer(template):
        text += re.escape(template[end : found.start()]) + f"(?P<{found[1]}>{'.+' if found[2] else '[^/?#]+'})"
        end = found.end()
    return re.compile(text + re.escape(template[end:]), re.DOTALL)
