"""What tokens were given out: to whom, for what, until when. In one file, `tokens.json`, with digests and no token.

Read again whenever the file changed, so that what one process revokes is revoked for all. It does not decide what a
principal may do (see policy), and never sees a token itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from tabrelay.calls import proof
from tabrelay.calls.principal import SERVE, Principal
from tabrelay.system import private_files

log = logging.getLogger(__name__)

# Pages that pair again and again push out the oldest pages; tokens with a name go only when somebody revokes them.
MAX_PAGES: Final = 64
MAX_NAMED: Final = 256
# Those whose names begin so were made by a program for a while, and it may have ended without revoking them: nobody
# misses them when they are over, and nobody else would make room.
PASSING: Final = "acp-"


class TokenStoreError(ValueError):
    """A token that can't be made or revoked; the text says why."""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """One token, without the token. A page's has an `origin`, one that was made on the command line a `name`."""

    sha256: str
    scopes: tuple[str, ...]
    created: float
    name: str | None = None
    origin: str | None = None
    servers: tuple[str, ...] | None = None  # None: every server
    expires: float | None = None

    @property
    def id(self) -> str:
        """Short, for people to type; says nothing about the token."""
        return self.sha256[:8]

    @property
    def principal(self) -> Principal:
        # Pages of one origin are one principal, whichever token each was paired with: another browser profile, or the
        # same page paired anew, takes a server over instead of being locked out by itself.
        who = f"page:{self.origin}" if self.origin else f"token:{self.name or self.id}"
        servers = None if self.servers is None else frozenset(self.servers)
        return Principal(who, frozenset(self.scopes), self.origin, servers, self.sha256)

    def is_over(self, now: float) -> bool:
        return self.expires is not None and now >= self.expires


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """A key, and the principal that a client with this key has."""

    key: bytes
    principal: Principal
    grant: IssuedToken | None = None  # None: the relay's own token


def holders(sha256: str, principal: Principal, grant: IssuedToken | None = None) -> dict[str, TokenHolder]:
    """A token's two keys by their ids: its own, and the one for a worker, which may serve and nothing else."""
    key = bytes.fromhex(sha256)
    found = {proof.key_id(key): TokenHolder(key, principal, grant)}
    if SERVE in principal.scopes:
        derived = proof.serve_key(key)
        # defence: another program on the port: a worker may serve only
        found[proof.key_id(derived)] = TokenHolder(derived, replace(principal, scopes=frozenset({SERVE})), grant)
    return found


class TokenStore:
    """The file, and what was last read from it. `on_revoked` hears of grants that were there and are gone."""

    def __init__(self, home: Path, glance_s: float = private_files.GLANCE_S) -> None:
        self._home = home
        self._path = home / "tokens.json"
        self._watch = private_files.FileWatch(self._path, glance_s)
        self._by_digest: dict[str, IssuedToken] = {}
        self._holders: dict[str, TokenHolder] = {}  # by key id
        self._origins: set[str] = set()
        self.on_revoked: Callable[[list[IssuedToken]], None] = lambda grants: None

    def find(self, sha256: str) -> IssuedToken | None:
        """Looking up a digest instead of the token takes the timing of the comparison away from the attacker."""
        self.refresh()
        known = self._by_digest.get(sha256)
        if known is None and self.refresh(look=True):  # made this very moment
            known = self._by_digest.get(sha256)
        return known

    def holder(self, key_id: str) -> TokenHolder | None:
        """Who has this key?"""
        self.refresh()
        known = self._holders.get(key_id)
        if known is None and self.refresh(look=True):
            known = self._holders.get(key_id)
        return known

    def all(self) -> list[IssuedToken]:
        self.refresh(look=True)
        return list(self._by_digest.values())

    def has_origin(self, origin: str) -> bool:
        self.refresh()
        return origin in self._origins or (self.refresh(look=True) and origin in self._origins)

    def add(self, grant: IssuedToken) -> None:
        def added(grants: list[IssuedToken]) -> list[IssuedToken]:
            grants = [other for other in grants if not _is_left_over(other, grant.created)]
            if grant.name is not None:
                if any(other.name == grant.name for other in grants):
                    raise TokenStoreError(
                        f'There is a token "{grant.name}" already. Revoke it first, or use another name.'
                    )
                if sum(other.name is not None for other in grants) >= MAX_NAMED:
                    raise TokenStoreError(
                        f"There are {MAX_NAMED} tokens already. Revoke one first: tabrelay token list"
                    )
            grants.append(grant)
            surplus = [other for other in grants if other.name is None][:-MAX_PAGES]
            return [other for other in grants if other not in surplus]

        self._change(added)

    def remove(self, is_meant: Callable[[IssuedToken], bool]) -> list[IssuedToken]:
        """Revoke; gives back what was revoked."""
        removed: list[IssuedToken] = []

        def rest(grants: list[IssuedToken]) -> list[IssuedToken]:
            removed.extend(grant for grant in grants if is_meant(grant))
            return [grant for grant in grants if grant not in removed]

        self._change(rest)
        return removed

    def refresh(self, *, look: bool = False) -> bool:
        """Read the file again if it changed; says whether it had."""
        if not self._watch.has_changed(look=look):
            return False
        before = self._by_digest
        self._by_digest = {grant.sha256: grant for grant in _load(self._path)} if self._watch.is_there else {}
        self._holders = {}
        for grant in self._by_digest.values():
            self._holders |= holders(grant.sha256, grant.principal, grant)
        self._origins = {grant.origin for grant in self._by_digest.values() if grant.origin is not None}
        gone = [grant for digest, grant in before.items() if digest not in self._by_digest]
        if gone:
            self.on_revoked(gone)
        return True

    def _change(self, change: Callable[[list[IssuedToken]], list[IssuedToken]]) -> None:
        private_files.prepare(self._home)
        with private_files.locked(self._home):
            grants = change(self.all())
            private_files.write(
                self._path, json.dumps({"grants": [asdict(grant) for grant in grants]}, indent=1) + "\n"
            )
        self.refresh(look=True)


def _is_left_over(grant: IssuedToken, now: float) -> bool:
    return grant.name is not None and grant.name.startswith(PASSING) and grant.is_over(now)


def _load(path: Path) -> Iterable[IssuedToken]:
    try:
        return [_grant(row) for row in json.loads(private_files.read(path))["grants"]]
    except (OSError, ValueError, KeyError, TypeError, private_files.StateError) as error:
        # A damaged list must not stop the relay: nobody on it is let in, and pages have to be paired again.
        log.warning("Can't read %s (%s): the tokens in it don't count.", path, error)
        return []


def _grant(row: Any) -> IssuedToken:
    """One row; raises for anything that is not what was written here."""
    texts = (row["sha256"], row["name"], row["origin"])
    if (
        not isinstance(row["sha256"], str)
        or len(bytes.fromhex(row["sha256"])) != 32
        or any(text is not None and not isinstance(text, str) for text in texts)
    ):
        raise ValueError("a row is not of the right form")
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
