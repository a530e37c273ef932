"""Hatch build hook: puts the runtime assets, the demo and the documentation into the wheel.

An editable install gets none of this: there the relay finds the assets in the source tree.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class AssetsHook(BuildHookInterface[Any]):
    """Maps `build/assets/*`, `build/docs` and `web_demo` to `tabrelay/_assets/`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        prepared = root / "build" / "assets"
        made = (prepared / ".stamp", prepared / "snapshot" / "snapshot.json", root / "build" / "docs" / "index.html")
        if not all(path.is_file() for path in made):
            raise RuntimeError("the assets are not prepared; `make build` prepares them and builds the wheel")
        for group, folder in {
            "pyodide": prepared / "pyodide",
            "pyscript": prepared / "pyscript",
            "micropython": prepared / "micropython",
            "snapshot": prepared / "snapshot",
            "editor": prepared / "editor",
            "demo": root / "web_demo",
            "docs": root / "build" / "docs",
        }.items():
            for path in sorted(folder.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    build_data["force_include"][str(path)] = f"tabrelay/_assets/{group}/{path.relative_to(folder)}"
