"""Where a server's tokens are kept between runs: one file per server, readable by this user only.

Several bridges of one user use the same server. Only one of them asks at a time; the others wait, and find its token.
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
    """The directory can't be used; the text says what to do."""


@dataclass(frozen=True, slots=True)
class StoredSignIn:
    """What is known of one server. All but the first two is the SDK's own JSON."""

    access_token: str | None = None
    expires_at: float | None = None
    token: dict[str, Any] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    resource: dict[str, Any] = field(default_factory=dict)

    def is_valid(self, now: float, margin_s: float) -> bool:
        return self.access_token is not None and (self.expires_at is None or now < self.expires_at - margin_s)


class OAuthStore:
    def __init__(self, folder: Path, *identity: str) -> None:
        """`identity`: whatever makes one token another's: server, client, grant, scope."""
        import hashlib

        self._folder = folder
        name = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:32]
        self._path = folder / f"{name}.json"
        self._lock = folder / f"{name}.lock"

    def load(self) -> StoredSignIn:
        try:
            return StoredSignIn(**json.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return StoredSignIn()  # a damaged file only means that the user is asked again

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
        """Nobody else asks for this server's token meanwhile; with `shared`, nobody for any server's."""
        self._prepare()
        async with _flock(self._lock if shared is None else self._folder / f"{shared}.lock", clock):
            yield


@contextlib.asynccontextmanager
async def _flock(path: Path, clock: Clock) -> AsyncIterator[None]:
    """The system takes the lock away from a process that dies, so nobody waits for the dead."""
    try:
        import fcntl
    except ImportError:  # not on this system; then nobody locks
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
