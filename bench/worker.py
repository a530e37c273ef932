"""The worker's own time per call: `tabserver` in Pyodide under Node, with a socket and a tab that answer at once.

There is no browser, relay or event loop between them, so small changes are visible, on a busy machine too: beside
microseconds it prints a ratio to a yardstick, a little Python that takes turns with the calls. `worker.mjs` does the
work.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.stage import ROOT
from tabrelay.assets.files import Assets, read_all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=8000)
    parser.add_argument("--bytes", type=int, default=200, help="of the tab's results")
    parser.add_argument("--profile", metavar="TOOL", choices=("in_tab", "in_worker"), help="by Python function instead")
    args = parser.parse_args()
    node = shutil.which("node")
    if node is None:
        parser.error("there is no node on the PATH")
    assets = Assets.find()
    with tempfile.TemporaryDirectory(prefix="tabrelay-bench-") as folder:
        archive = Path(folder) / "tabserver.zip"
        archive.write_bytes(read_all(assets.tabserver.body))
        shim = ROOT / "browser_pkg" / "tabserver" / "js" / "worker" / "python_bridge.js"
        files = [ROOT / "bench" / "worker.mjs", assets.pyodide, archive, shim]
        subprocess.run([node, *map(str, files), str(args.calls), str(args.bytes), args.profile or ""], check=True)


if __name__ == "__main__":
    main()
