"""Compiles the standard library, inside the very Python that will run it: bake.mjs runs this in Pyodide.

Pyodide ships its library as source, and every start compiles what it imports; that is most of a start. The compiled
files carry a hash of their source instead of a date and are not checked against it: the source is not there. Nothing is
optimised away: docstrings and asserts stay, only the library's lines in tracebacks are missing.
"""

import importlib.util
import sys
import zipfile
from importlib import _bootstrap_external

SHOWN_EVERY = 50
EPOCH = (1980, 1, 1, 0, 0, 0)  # no dates: the same library gives the same bytes
HOME = f"/lib/python{sys.version_info.major}{sys.version_info.minor}.zip"


def compiled(name: str, source: bytes) -> bytes:
    code = compile(source, f"{HOME}/{name}", "exec", dont_inherit=True, optimize=0)
    return bytes(_bootstrap_external._code_to_hash_pyc(code, importlib.util.source_hash(source), False))  # type: ignore[attr-defined]


with zipfile.ZipFile("/library.zip") as library, zipfile.ZipFile("/compiled.zip", "w") as target:
    items = library.infolist()
    for number, item in enumerate(items):
        if number % SHOWN_EVERY == 0:
            print(f"{number} of {len(items)} files")
        name, body = item.filename, library.read(item)
        if name.endswith(".py"):
            name, body = name + "c", compiled(name, body)
        target.writestr(zipfile.ZipInfo(name, EPOCH), body, zipfile.ZIP_DEFLATED, 9)
