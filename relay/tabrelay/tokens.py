"""Tokens and where they are kept: the relay's own, and those given to pages that were paired.

The state directory is 0700. ``token`` holds the relay's own token in clear (0600: clients on this account read it);
``pairs.json`` holds what was issued, as SHA-256 only. Several relays of one user share the directory, so the file is
read again whenever it changed, and written whole. This module does not decide what a principal may do (see policy).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tabrelay.codes import Code, CodeProblem, Codes
from tabrelay.policy import ADMIN, CALL, SERVE, Principal

PREFIX = "tr_"  # makes a leaked token recognisable: for the log redaction, and for secret scanners
MAX_PAIRS = 64
MASTER_SCOPES = frozenset({CALL, SERVE, ADMIN})


class StateError(Exception):
    """The state directory can't be used; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One issued token, without the token: its digest, whom it is bound to, and since when."""

    sha256: str
    origin: str | None
    server: str | None
    scopes: tuple[str, ...]
    created: float


@dataclass(frozen=True, slots=True)
class Redeemed:
    """What a page gets for its code."""

    token: str
    server: str | None


class Tokens:
    """Reads, makes and recognises tokens; also holds the pending pairing codes."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._codes = Codes()
        self._master: str | None = None
        self._master_principal = Principal("token:none", frozenset())
        self._pairs: tuple[Pair, ...] = ()
        self._seen: tuple[int, int, int] | None = None

    def master(self) -> str:
        """The relay's own token, made at the first start."""
        if self._master is None:
            _prepare(self._home)
            self._master = _read_or_make(self._home / "token")
            self._master_principal = Principal(principal_id(digest(self._master)), MASTER_SCOPES)
        return self._master

    def session_key(self) -> bytes:
        """What session ids are sealed with; made at the first start, and good for nothing else."""
        _prepare(self._home)
        return _read_or_make(self._home / "session.key").encode()

    def identify(self, token: str, origin: str | None) -> Principal | None:
        """Whose token is this? A bound token is unknown to every other origin.

        No Origin at all is accepted: browsers leave it out on same-origin GETs, and a program could forge it anyway.
        """
        # The relay's own token is compared as it is: hashing would cost every call and hide nothing but its length.
        if hmac.compare_digest(_bytes(token), _bytes(self.master())):
            return self._master_principal
        given = digest(token)
        self._refresh()
        found: Pair | None = None
        for pair in self._pairs:  # no early exit: the time says nothing about which one matched
            if hmac.compare_digest(given, pair.sha256):
                found = pair
        if found is None or (origin is not None and found.origin is not None and origin != found.origin):
            return None
        # Pages of one origin are one principal, whichever token each was paired with: another browser profile, or the
        # same page paired anew, takes a server over instead of being locked out by itself.
        id = f"page:{found.origin}" if found.origin else principal_id(given)
        return Principal(id, frozenset(found.scopes), found.origin, found.server)

    def issue(self, origin: str | None, server: str | None, scopes: Iterable[str]) -> str:
        """A new token bound to an origin (and a server); at most MAX_PAIRS are kept, the oldest go."""
        token = PREFIX + secrets.token_urlsafe(32)
        _prepare(self._home)
        self._refresh()
        pair = Pair(digest(token), origin, server, tuple(sorted(scopes)), time.time())
        self._pairs = (*self._pairs, pair)[-MAX_PAIRS:]
        _write(self._path, json.dumps({"pairs": [asdict(p) for p in self._pairs]}, indent=1))
        self._seen = _stamp(self._path)
        return token

    def pairs(self) -> tuple[Pair, ...]:
        self._refresh()
        return self._pairs

    def mint(self, server: str | None, ttl_s: float, now: float) -> str:
        """A pairing code; ``server`` None: its token may serve any name."""
        return self._codes.mint(server, ttl_s, now)

    def redeem(self, code: str, origin: str, now: float) -> Redeemed | CodeProblem:
        """Trade a code for a serve-only token that works for this origin."""
        taken = self._codes.take(code, now)
        if not isinstance(taken, Code):
            return taken
        return Redeemed(self.issue(origin, taken.server, (SERVE,)), taken.server)

    @property
    def _path(self) -> Path:
        return self._home / "pairs.json"

    def _refresh(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return
        self._pairs = _load(self._path) if stamp is not None else ()
        self._seen = stamp


def digest(token: str) -> str:
    return hashlib.sha256(_bytes(token)).hexdigest()


def _bytes(token: str) -> bytes:
    return token.encode("utf-8", "surrogatepass")


def principal_id(sha256: str) -> str:
    """A name for a token that can be logged: it can't be turned back."""
    return f"token:{sha256[:8]}"


def _prepare(home: Path) -> None:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name == "posix" and home.stat().st_mode & 0o077:
            home.chmod(0o700)
    except OSError as error:
        raise StateError(f"Can't use {home} for the relay's state ({error.strerror}). Try: --home DIRECTORY") from error


def _read_or_make(path: Path) -> str:
    try:
        if not path.exists():
            _write(path, PREFIX + secrets.token_urlsafe(32) + "\n", is_new=True)
        if os.name == "posix" and path.stat().st_mode & 0o077:
            path.chmod(0o600)
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(f"Can't read or write {path} ({error}). Try: --home DIRECTORY") from error
    if len(token) < 32 or not token.isascii() or not token.isprintable() or " " in token:
        raise StateError(f"{path} holds no usable token. Delete it, and the next start makes a new one.")
    return token


def _load(path: Path) -> tuple[Pair, ...]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["pairs"]
        return tuple(
            Pair(r["sha256"], r["origin"], r["server"], tuple(r["scopes"]), float(r["created"])) for r in rows
        )[-MAX_PAIRS:]
    except (OSError, ValueError, KeyError, TypeError):
        # A damaged list must not stop the relay: it only means that pages have to be paired again.
        return ()


def _write(path: Path, text: str, is_new: bool = False) -> None:
    """Write whole or not at all; mkstemp makes the file 0600 from the first moment."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        if is_new:
            try:
                os.link(name, path)  # unlike replace, fails if another relay was first: then theirs counts
            except FileExistsError:
                pass
            except OSError:  # a file system without hard links
                os.replace(name, path)
        else:
            os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
