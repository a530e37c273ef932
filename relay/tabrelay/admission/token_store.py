"""Token store: the issued tokens with origin or name, scopes, servers and expiry, in one file, `tokens.json`.

The file contains digests, never a token. It is read again whenever it has changed, so that a token that one process
revokes is revoked for all. Does not decide what a principal may do (`policy`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from tabrelay.calls import proof
from tabrelay.calls.principal import CALL, PAGE, SERVE, Principal
from tabrelay.system import private_files
from tabrelay.system.program import command

log = logging.getLogger(__name__)

# Pages that pair repeatedly drop the oldest pages; tokens with a name are kept until they are revoked.
MAX_PAGES: Final = 64
MAX_NAMED: Final = 256
# Names of tokens that a program issued for a limited time. It may have ended without revoking them, so they are removed
# after they have expired.
TEMPORARY_PREFIX: Final = "acp-"


class TokenStoreError(ValueError):
    """A token that can't be made or revoked; the text says why."""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """One issued token, without its text. A page's has an `origin`, one of the command line a `name`."""

    sha256: str
    scopes: tuple[str, ...]
    created: float
    name: str | None = None
    origin: str | None = None
    servers: tuple[str, ...] | None = None  # None: every server
    expires: float | None = None

    @property
    def id(self) -> str:
        """Short, for people to type. A digest: the token can't be derived from it."""
        return self.sha256[:8]

    @property
    def principal(self) -> Principal:
        # Pages of one origin are one principal, whichever token each has: another browser profile, or the same page
        # after a new pairing, takes a server over instead of being refused.
        id = f"{PAGE}{self.origin}" if self.origin else f"token:{self.name or self.id}"
        servers = None if self.servers is None else frozenset(self.servers)
        return Principal(id, frozenset(self.scopes), self.origin, servers, self.sha256)

    def is_expired(self, now: float) -> bool:
        return self.expires is not None and now >= self.expires


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """A key, and the principal that a client with this key has."""

    key: bytes
    principal: Principal
    issued: IssuedToken | None = None  # None: the relay's own token


def holders(sha256: str, principal: Principal, issued: IssuedToken | None = None) -> dict[str, TokenHolder]:
    """A token's keys by their ids: its own, one for a worker, which has only the scope `serve`, and one with which a
    page calls the servers of its own origin."""
    key = bytes.fromhex(sha256)
    found = {proof.key_id(key): TokenHolder(key, principal, issued)}
    if SERVE in principal.scopes:
        derived = proof.serve_key(key)
        # defence: another program on the port: a worker may serve only
        found[proof.key_id(derived)] = TokenHolder(derived, replace(principal, scopes=frozenset({SERVE})), issued)
    if SERVE in principal.scopes and principal.origin is not None:
        derived = proof.call_key(key)
        # defence: the call key of a page: calls and nothing else
        found[proof.key_id(derived)] = TokenHolder(derived, replace(principal, scopes=frozenset({CALL})), issued)
    return found


class TokenStore:
    """The file, and the rows that were last read. `on_revoked` is called with the tokens that are no longer in it."""

    def __init__(self, home: Path, check_every_s: float, on_revoked: Callable[[list[IssuedToken]], None]) -> None:
        self._home = home
        self._path = home / "tokens.json"
        self._watch = private_files.FileWatch(self._path, check_every_s)
        self._by_digest: dict[str, IssuedToken] = {}
        self._holders: dict[str, TokenHolder] = {}  # by key id
        self._origins: set[str] = set()
        self._on_revoked = on_revoked

    def find(self, sha256: str) -> IssuedToken | None:
        """A lookup by digest instead of by token prevents timing attacks on the comparison."""
        self.refresh()
        known = self._by_digest.get(sha256)
        if known is None and self.refresh(force=True):  # issued a moment ago by another process
            known = self._by_digest.get(sha256)
        return known

    def holder(self, key_id: str) -> TokenHolder | None:
        """The token and principal of a key id."""
        self.refresh()
        known = self._holders.get(key_id)
        if known is None and self.refresh(force=True):
            known = self._holders.get(key_id)
        return known

    def all(self) -> list[IssuedToken]:
        self.refresh(force=True)
        return list(self._by_digest.values())

    def has_origin(self, origin: str) -> bool:
        self.refresh()
        return origin in self._origins or (self.refresh(force=True) and origin in self._origins)

    def add(self, issued: IssuedToken) -> None:
        def added(tokens: list[IssuedToken]) -> list[IssuedToken]:
            tokens = [other for other in tokens if not _is_expired_temporary(other, issued.created)]
            if issued.name is not None:
                if any(other.name == issued.name for other in tokens):
                    raise TokenStoreError(
                        f'There is a token "{issued.name}" already. Revoke it first, or use another name.'
                    )
                if sum(other.name is not None for other in tokens) >= MAX_NAMED:
                    raise TokenStoreError(
                        f"There are {MAX_NAMED} tokens already. Revoke one first: {command()} token list"
                    )
            tokens.append(issued)
            surplus = [other for other in tokens if other.name is None][:-MAX_PAGES]
            return [other for other in tokens if other not in surplus]

        self._change(added)

    def remove(self, matches: Callable[[IssuedToken], bool]) -> list[IssuedToken]:
        """Revoke; returns the revoked tokens."""
        removed: list[IssuedToken] = []

        def rest(tokens: list[IssuedToken]) -> list[IssuedToken]:
            removed.extend(issued for issued in tokens if matches(issued))
            return [issued for issued in tokens if issued not in removed]

        self._change(rest)
        return removed

    def refresh(self, *, force: bool = False) -> bool:
        """Read the file again if it has changed; returns whether it had."""
        if not self._watch.has_changed(force=force):
            return False
        before = self._by_digest
        self._by_digest = {issued.sha256: issued for issued in _load(self._path)} if self._watch.is_there else {}
        self._holders = {}
        for issued in self._by_digest.values():
            self._holders |= holders(issued.sha256, issued.principal, issued)
        self._origins = {issued.origin for issued in self._by_digest.values() if issued.origin is not None}
        gone = [issued for digest, issued in before.items() if digest not in self._by_digest]
        if gone:
            self._on_revoked(gone)
        return True

    def _change(self, change: Callable[[list[IssuedToken]], list[IssuedToken]]) -> None:
        private_files.ensure_directory(self._home)
        with private_files.locked(self._home):
            tokens = change(self.all())
            private_files.write(
                self._path, json.dumps({"grants": [asdict(issued) for issued in tokens]}, indent=1) + "\n"
            )
        self.refresh(force=True)


def _is_expired_temporary(issued: IssuedToken, now: float) -> bool:
    return issued.name is not None and issued.name.startswith(TEMPORARY_PREFIX) and issued.is_expired(now)


def _load(path: Path) -> Iterable[IssuedToken]:
    try:
        return [_read_row(row) for row in json.loads(private_files.read(path))["grants"]]
    except (OSError, ValueError, KeyError, TypeError, private_files.StateError) as error:
        # A damaged file must not stop the relay: its tokens are not accepted, and pages have to be paired again.
        log.warning("Can't read %s (%s): its tokens are not accepted.", path, error)
        return []


def _read_row(row: Any) -> IssuedToken:
    """One row of the file; raises if it has another form than `_change` writes."""
    texts = (row["sha256"], row["name"], row["origin"])
    if (
        not isinstance(row["sha256"], str)
        or len(bytes.fromhex(row["sha256"])) != 32
        or any(text is not None and not isinstance(text, str) for text in texts)
    ):
        raise ValueError("a row has the wrong form")
    servers = row["servers"]
    return IssuedToken(
        sha256=row["sha256"],
        scopes=tuple(row["scopes"]),
        created=float(row["created"]),
        name=row["name"],
        origin=row["origin"],
        servers=None if servers is None else tuple(servers),
        expires=None if row["expires"] is None else float(row["expires"]),
    )
