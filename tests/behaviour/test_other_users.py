"""Another user of the same computer: can read no file, and can use the port only with a token."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.running_relay import RunningRelay

# The attempts of another user. Only the standard library: this Python may be unreadable for other users.
TRIES = r"""
import os, sys, urllib.error, urllib.request
home, url = sys.argv[1:]
for name in ("token", "tokens.json", "session.key", "servers.json", "log"):
    try:
        path = os.path.join(home, name)
        print("read", name, os.listdir(path) if os.path.isdir(path) else open(path).read())
    except OSError as error:
        print(type(error).__name__)
for path in ("/notes", "/-/status", "/-/calls", "/-/pairs"):
    try:
        urllib.request.urlopen(url + path, timeout=20)
        print("in", path)
    except urllib.error.HTTPError as error:
        print(error.code)
"""
NOBODY = 65534


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be another user")
async def test_another_user_can_read_nothing_and_connect_nowhere(tmp_path: Path) -> None:
    python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
    home = tmp_path / "home"
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)  # the relay itself must protect the files
    async with RunningRelay(home, servers=("notes",)) as relay:
        import asyncio

        tried = await asyncio.to_thread(
            subprocess.run,
            [python, "-I", "-c", TRIES, str(home), relay.url],
            capture_output=True,
            text=True,
            user=NOBODY,
            group=NOBODY,
            cwd="/",
            env={},
            timeout=60,
        )
    if tried.returncode != 0 and "ermission denied" in tried.stderr and not tried.stdout:
        pytest.skip("the user nobody can't run Python here")  # style: ok, a user name
    assert tried.stdout.split() == ["PermissionError"] * 5 + ["401"] * 4, tried.stderr
