"""Build of the documentation site: docs/ to build/docs, with a compressed copy beside each text.

usage: python .ci/docs_site/build.py [--strict] [--to FOLDER]

ProperDocs makes the pages. With `--strict`, a link or an anchor that leads nowhere fails the build; without it, it is
printed. The old site stays in place until the new one is whole. `make docs` runs it, strictly.
"""

from __future__ import annotations

import argparse
import gzip
import logging
import shutil
import sys
from pathlib import Path
from typing import Final

from properdocs.commands.build import build
from properdocs.config import load_config
from properdocs.exceptions import Abort

HERE: Final = Path(__file__).resolve().parent
TARGET: Final = HERE.parents[1] / "build" / "docs"
TEXTS: Final = {".html", ".json", ".svg", ".yml"}
SMALLEST: Final = 1_000  # bytes; smaller files are sent as they are


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="fail if a link leads nowhere")
    parser.add_argument("--to", type=Path, default=TARGET, metavar="FOLDER", help="where the site is written")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    draft = chosen.to.with_name(f"{chosen.to.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    config = load_config(str(HERE / "properdocs.yml"), strict=chosen.strict, site_dir=str(draft))
    try:
        build(config)
    except Abort as problem:
        print(problem)
        return 1
    # `tabrelay help CODE` reads it in the wheel.
    shutil.copy(HERE.parents[1] / "docs" / "reference" / "errors.md", draft / "reference" / "errors.md")
    for name in ("sitemap.xml", "sitemap.xml.gz"):
        (draft / name).unlink(missing_ok=True)
    for path in sorted(draft.rglob("*")):
        if path.suffix in TEXTS and path.stat().st_size >= SMALLEST:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    shutil.rmtree(chosen.to, ignore_errors=True)
    draft.rename(chosen.to)
    print(f"{len(list(chosen.to.rglob('*.html')))} pages in {chosen.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
