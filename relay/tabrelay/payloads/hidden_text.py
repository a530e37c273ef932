"""Hidden text: characters that people do not see and models read (controls, direction marks, tags, fillers).

One search over a value's JSON text finds them in names, descriptions, schemas and annotations. Line breaks and tabs are
not hidden text. Joiners and variation selectors are legal where a script needs them: a single one, between characters
that are not ASCII, or after a symbol. Does not decide what is refused.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

# Unicode's Default_Ignorable_Code_Point: not rendered. Joiners and variation selectors are among them.
_IGNORABLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
DEFAULT_IGNORABLE: Final = re.compile(f"[{_IGNORABLE}]")
# Few programs render interlinear annotation marks; private use characters have no agreed meaning.
_MORE: Final = "\ufff9-\ufffb\ue000-\uf8ff\U000f0000-\U0010ffff"
_CONTROLS: Final = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_JOINERS: Final = "\u200c\u200d"
_SELECTORS: Final = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_LETTER: Final = f"[^\\x00-\\x7f{_IGNORABLE}{_MORE}{_CONTROLS}]"
# A variation selector may follow: a symbol with an emoji form, an ideograph, an operator. A keycap is 1 FE0F 20E3.
_SYMBOL: Final = "[\u00a9\u00ae\u200d\u203c-\u3299\U0001f000-\U0001faff]"
_IDEOGRAPH: Final = "[\u3001-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_MATHEMATICAL: Final = "[\u2200-\u22ff\u2a00-\u2aff]"
_LEGAL_JOINER: Final = f"(?:(?<={_LETTER})|(?<={_SYMBOL}\ufe0f))[{_JOINERS}](?={_LETTER})"
_LEGAL_SELECTOR: Final = (
    f"(?<={_SYMBOL})[\ufe0e\ufe0f](?![{_SELECTORS}])|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    f"|(?<={_IDEOGRAPH})[\ufe00-\ufe02\U000e0100-\U000e01ef](?![{_SELECTORS}])"
    f"|(?<={_MATHEMATICAL})\ufe00(?![{_SELECTORS}])"
)
_HIDDEN: Final = re.compile(f"(?!{_LEGAL_JOINER}|{_LEGAL_SELECTOR})[{_CONTROLS}{_IGNORABLE}{_MORE}]")
# The same in JSON text as orjson writes it, where controls below U+0020 are escapes. An escaped backslash is not one.
_ESCAPED_CONTROL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u00[01][0-9a-f]|[bf])")


STRETCH: Final = 64 * 1024  # characters
_BACKSLASHES: Final = re.compile(r"\\*+")


def has_hidden_in_json(text: str) -> bool:
    """Does a value's JSON text, as orjson writes it, contain hidden characters?"""
    if "\x7f" in text or ("\\" in text and _ESCAPED_CONTROL.search(text) is not None):
        return True
    return not text.isascii() and _HIDDEN.search(text) is not None


def searching_json(text: str) -> Generator[None, None, bool]:
    """`has_hidden_in_json`, with a `yield` after each stretch of a long text: 64 Ki characters take about 10 ms."""
    if len(text) <= STRETCH:
        return has_hidden_in_json(text)
    yield
    if "\x7f" in text:
        return True
    for start in range(0, len(text), STRETCH) if "\\" in text else ():
        run = _BACKSLASHES.match(text, start + STRETCH)
        end = (run.end() if run is not None else len(text)) + len("u0000")
        if _ESCAPED_CONTROL.search(text, start, end) is not None:
            return True
        yield
    for start in range(0, len(text), STRETCH) if not text.isascii() else ():
        # The pattern looks one character ahead: what begins in the overlap belongs to the next stretch.
        found = _HIDDEN.search(text, start, start + STRETCH + 2)
        if found is not None and (found.start() < start + STRETCH or start + STRETCH >= len(text)):
            return True
        yield
    return False
