"""Installs a tap in a relay process; Python imports this module by itself when its folder is on PYTHONPATH.

The tap writes the received messages to the file that TABRELAY_TEST_TAP names, and created secrets to
TABRELAY_TEST_SECRETS. The command that a test starts stays the one that users start.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

FILE = os.environ.get("TABRELAY_TEST_TAP")
SECRETS = os.environ.get("TABRELAY_TEST_SECRETS")


class Hook(MetaPathFinder):
    """Import hook that waits for the module of the application factory, then removes itself."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "tabrelay.server.app":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            module.create_app = tapped(module.create_app)
            if SECRETS:
                watched("tabrelay.system.private_files", "new_secret")
                watched("tabrelay.admission.pairing_codes", "PairingCodes", "mint")

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def tapped(create_app: Any) -> Any:
    def create(*args: Any, **more: Any) -> Any:
        # One line at a time, so that a killed relay leaves whole lines.
        file = open(str(FILE), "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open for as long as the relay runs
        app = create_app(*args, **more)
        tap = importlib.import_module("tap").Tap(app, lambda record: file.write(json.dumps(record) + "\n"))
        tap.change = app.change  # used by the reload of the configuration
        return tap

    return create


def watched(module: str, *names: str) -> None:
    """Writes down every secret that this function returns, so that the test can search for it."""
    place = importlib.import_module(module)
    for name in names[:-1]:
        place = getattr(place, name)
    make = getattr(place, names[-1])

    def making(*args: Any, **more: Any) -> str:
        secret: str = make(*args, **more)
        with open(str(SECRETS), "a", encoding="utf-8") as file:
            file.write(secret + "\n")
        return secret

    setattr(place, names[-1], making)


if FILE:
    sys.meta_path.insert(0, Hook())
