"""Imports what a worker's Python has at its start: bake.mjs runs this in Pyodide and keeps the memory that it leaves.

Files are not part of a snapshot, modules are. So every module of tabserver is imported, also those that a worker needs
late or never: it could not be found any more. No JavaScript object may be alive at the end but the global ones.
"""

import gc
import importlib
import pkgutil
import traceback  # noqa: F401 - a worker wants it when something went wrong, and tools of pages often do

import tabserver

for module in pkgutil.walk_packages(tabserver.__path__, "tabserver."):
    importlib.import_module(module.name)
gc.collect()
