"""Installer of Python packages in the worker: wheels of the relay, unpacked by Pyodide's own installer.

JavaScript downloads the bytes, compares their hash and lets Pyodide unpack them and load their libraries
(`js/worker/package_download.js`). Which packages are installed, and when, is decided in `worker.packages`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable
from typing import Any

from pyodide.ffi import JsException, create_proxy

from .python_bridge import PythonBridge


class RelayPackages:
    """The packages of the relay at one address. `token` gives the id of the page's key, for the proof."""

    def __init__(self, bridge: PythonBridge, relay: str, token: Callable[[], str]) -> None:
        self._bridge, self._relay, self._token = bridge, relay.rstrip("/"), token

    async def index(self) -> list[dict[str, Any]]:
        try:
            text = str(await self._bridge.packageIndex(self._relay, self._token()))
            rows: list[dict[str, Any]] = json.loads(text)["packages"]
            return rows
        except (JsException, ValueError) as error:
            raise OSError(_message(error)) from None

    async def install(self, row: dict[str, Any], progress: Callable[[int, int], None]) -> None:
        report = create_proxy(progress)
        try:
            await self._bridge.installPackage(self._relay, self._token(), str(row["file"]), str(row["sha256"]), report)
            importlib.invalidate_caches()
        except JsException as error:
            raise OSError(f"{row['name']} {_message(error)}") from None
        finally:
            report.destroy()

    def is_installed(self, name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            return False

    def in_distribution(self, name: str) -> tuple[str, bool] | None:
        found = json.loads(self._bridge.inDistribution(name))
        return None if found is None else (str(found["name"]), bool(found["compiled"]))


def _message(error: BaseException) -> str:
    return str(getattr(error, "message", error))
