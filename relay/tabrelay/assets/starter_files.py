"""Files of a new page, for `tabrelay init`: a page with tools in JavaScript, tools in Python, and the relay's loader.

The templates are in `starter/`. Writes nothing: the command does.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tabrelay.assets.files import LOADER, Assets, AssetsMissing, read_all
from tabserver.wire.errors import ServerNameError
from tabserver.wire.names import MAX_NAME, check_server_name

_TEMPLATES: Final = Path(__file__).parent / "starter"
_NAMES: Final = {"index.html": "index.html", "tools.py": "tools.py.txt"}
FALLBACK: Final = "app"


def starter_files(server: str, relay: str) -> Iterator[tuple[str, bytes]]:
    """Names and contents, for a page that offers `server` at the relay with this address."""
    for name, template in _NAMES.items():
        yield name, (_TEMPLATES / template).read_text(encoding="utf-8").replace("SERVER", server).encode()
    loader = Assets.find().loader(relay)
    if loader is None:
        raise AssetsMissing(f"The browser package is incomplete ({LOADER}). Reinstall tabrelay.")
    yield LOADER, read_all(loader.body)


def name_for(folder: Path) -> str:
    """A server name made of a folder's name."""
    plain = unicodedata.normalize("NFKD", folder.resolve().name)  # "Müller" becomes "muller"
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._").lower()[:MAX_NAME]
    try:
        return check_server_name(name)
    except ServerNameError:
        return FALLBACK
