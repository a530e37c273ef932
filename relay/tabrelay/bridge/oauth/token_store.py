"""Token storage of OAuth sign-ins: one file for each server, readable by this user only.

Several bridges of one user may use the same server. A file lock lets only one of them request a token; the others wait
and read it. Tokens are not validated here.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tabrelay.bridge.clock import Clock

POLL_S: Final = 0.1


class StoreError(Exception):
    """The directory can't be used; the text gives advice."""


@dataclass(frozen=True, slots=True)
class StoredSignIn:
    """The stored state of one server. `token` to `resource` are the SDK's JSON."""

    access_token: str | None = None
    expires_at: float | None = None
    token: dict[str, Any] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    resource: dict[str, Any] = field(default_factory=dict)
    dpop: dict[str, Any] = field(default_factory=dict)
    """The key that the token is bound to: see `dpop`."""

    def is_valid(self, now: float, margin_s: float) -> bool:
        return self.access_token is not None and (self.expires_at is None or now < self.expires_at - margin_s)


class OAuthStore:
    def __init__(self, folder: Path, *identity: str) -> None:
        """`identity`: what distinguishes tokens: server, client, grant, scope."""
        import hashlib

        self._folder = folder
        name = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:32]
        self._path = folder / f"{name}.json"
        self._lock = folder / f"{name}.lock"

    def load(self) -> StoredSignIn:
        try:
            return StoredSignIn(**json.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return StoredSignIn()  # after damage the user is only asked again

    def save(self, record: StoredSignIn) -> None:
        """Raises StoreError."""
        from tabrelay.system import private_files

        self._prepare()
        private_files.write(self._path, json.dumps(asdict(record), indent=1))

    def _prepare(self) -> None:
        from tabrelay.system import private_files

        try:
            private_files.ensure_directory(self._folder)
        except private_files.StateError as problem:
            raise StoreError(str(problem)) from None

    @contextlib.asynccontextmanager
    async def lock(self, clock: Clock, shared: str | None = None) -> AsyncIterator[None]:
        """Excludes other requests for this server's token; with `shared`, for the token of any server."""
        self._prepare()
        async with _flock(self._lock if shared is None else self._folder / f"{shared}.lock", clock):
            yield


@contextlib.asynccontextmanager
async def _flock(path: Path, clock: Clock) -> AsyncIterator[None]:
    """The system releases the lock of a process that dies, so no process waits for it."""
    try:
        import fcntl
    except ImportError:  # not on this system: no lock
        yield
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await clock.sleep(POLL_S)
        yield
    finally:
        os.close(handle)
