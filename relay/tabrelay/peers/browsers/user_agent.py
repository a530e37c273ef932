"""Browser name from a User-Agent header: "Firefox 153 on Linux".

The first pattern that matches wins. For display only: nothing is decided by it.
"""

from __future__ import annotations

import re
from typing import Final

# In this order: most browsers also claim to be those after them.
_BROWSERS: Final = (
    ("Edge", re.compile(r"Edg(?:e|A|iOS)?/(\d+)")),
    ("Opera", re.compile(r"OPR/(\d+)")),
    ("Firefox", re.compile(r"(?:Firefox|FxiOS)/(\d+)")),
    ("Chrome", re.compile(r"(?:HeadlessChrome|Chrome|CriOS)/(\d+)")),
    ("Safari", re.compile(r"Version/(\d+)[^ ]* .*Safari/")),
)
_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iOS"),
    ("iPad", "iPadOS"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def browser_name(user_agent: str) -> str:
    """Empty for an unknown browser."""
    browser = next((f"{name} {found[1]}" for name, words in _BROWSERS if (found := words.search(user_agent))), "")
    system = next((name for word, name in _SYSTEMS if word in user_agent), "")
    return f"{browser} on {system}" if browser and system else browser
