"""`tabrelay init`: writes a page, its Python tools and the relay's loader into a folder.

No file is replaced without --force, and none is written through a symbolic link. An existing page gets the loader and
the tools, and the command prints the lines to add to it.
"""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import Any

from tabrelay.cli import flags, running_relay
from tabrelay.cli.output import FAILED, OK, ExitWith

PAGE = "index.html"


def add(commands: Any) -> None:
    about = "Write a page with tools into a folder, to begin with."
    parser = flags.add_command(
        commands, "init", about, "tabrelay init notes && tabrelay dev notes\n  tabrelay init --dry-run"
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="default: the current one")
    parser.add_argument("--server", metavar="NAME", help="the name of the MCP server (default: that of the folder)")
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.add_argument("--dry-run", action="store_true", help="show what would be written, and write nothing")
    parser.set_defaults(run=_init)


def _init(args: argparse.Namespace) -> int:
    from tabrelay.assets.files import DEFAULT_RELAY, AssetsMissing
    from tabrelay.assets.starter_files import name_for, starter_files
    from tabserver.wire.errors import ServerNameError
    from tabserver.wire.names import check_server_name

    folder: Path = args.folder
    if folder.exists() and not folder.is_dir():
        raise ExitWith(f"{folder} is not a folder.", help="TR316")
    try:
        server = check_server_name(args.server) if args.server else name_for(folder)
        files = list(starter_files(server, DEFAULT_RELAY))
    except (ServerNameError, AssetsMissing) as problem:
        raise ExitWith(str(problem), help="TR316") from None
    kept = [name for name, body in files if _write(folder / name, body, args.force, args.dry_run)]
    command = f"{running_relay.command()} dev"
    if PAGE in kept and not args.dry_run:
        print(_lines_for_page(server))
    if kept and not args.force:
        print("To replace what exists: --force")
    shown = f"./{folder}" if str(folder).startswith("-") else str(folder)  # otherwise a shell's word would be a flag
    where = "" if folder.resolve() == Path.cwd() else f" {shlex.quote(shown)}"
    print(f"{'Then' if args.dry_run else 'Next'}: {command}{where}")
    return OK


def _write(path: Path, body: bytes, is_forced: bool, is_dry: bool) -> bool:
    """Write one file and print what was done. Returns whether an existing file stays as it is."""
    is_there = path.exists() or path.is_symlink()
    if is_there and path.is_file() and not path.is_symlink() and path.read_bytes() == body:
        print(f"  unchanged  {path}")
        return False
    if is_there and (not is_forced or path.is_symlink() or not path.is_file()):
        print(f"  exists     {path}, left as it is")
        return True
    if is_dry:
        print(f"  would write {path}")
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with open(draft, "xb") as file:
            file.write(body)
        try:
            # A link fails for a file that another program has written in the meantime; a replacement would not.
            draft.replace(path) if is_there else os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as problem:
        raise ExitWith(f"{path} can't be written: {problem.strerror or problem}", FAILED, help="TR316") from None
    print(f"  {'replaced  ' if is_there else 'wrote     '} {path}")
    return False


def _lines_for_page(server: str) -> str:
    return f"""
Your page stays as it is. Add this to it:

  <script type="module">
    import {{ load }} from "./tabrelay.js";
    load().then(({{ connect }}) => {{
      connect({{ server: "{server}", worker: "tabrelay.js", modules: ["tools.py"] }});
    }});
  </script>
"""
