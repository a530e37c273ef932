"""Tokens: verification, issue and revocation of the relay's own token, named tokens and tokens of paired pages.

``token`` in the state directory contains the relay's own token in clear text (0600: clients of this user read it).
Issued tokens are in `token_store`, as digests. Changes by other processes take effect with the next request. Does not
decide what a principal may do (`policy`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tabrelay.admission.pairing_codes import PairingCode, PairingCodeError, PairingCodes
from tabrelay.admission.token_store import IssuedToken, TokenHolder, TokenStore, TokenStoreError, holders
from tabrelay.calls import proof
from tabrelay.calls.principal import ADMIN, CALL, MANAGE, METRICS, SERVE, Principal
from tabrelay.http.addresses import loopback_siblings
from tabrelay.system import private_files
from tabrelay.system.private_files import StateError

__all__ = ["IssuedToken", "Redeemed", "StateError", "TokenStoreError", "Tokens"]

log = logging.getLogger(__name__)

MASTER_NAME: Final = "default"  # name of the relay's own token in lists of tokens
_NO_PRINCIPAL: Final = Principal("token:none", frozenset())
MASTER_SCOPES: Final = frozenset({CALL, SERVE, MANAGE, METRICS, ADMIN})
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Redeemed:
    """What a page gets in exchange for its code."""

    token: str
    server: str | None


class Tokens:
    """Reads, issues and verifies tokens; also has the pending pairing codes."""

    def __init__(
        self,
        home: Path,
        wall: Callable[[], float] = time.time,
        check_every_s: float = private_files.CHECK_EVERY_S,
        *,
        shares_proofs: bool = False,
    ) -> None:
        """`check_every_s`: the files are checked for changes at most this often. `shares_proofs`: client proofs are
        accepted by every relay with the same `session.key`, since the next request may reach another one of them."""
        self.home = home
        self._file = home / "token"
        self._watch = private_files.FileWatch(self._file, check_every_s)
        self._wall = wall
        self._codes = PairingCodes()
        self._master: str | None = None
        self._session_key: bytes | None = None
        self._master_principal = _NO_PRINCIPAL
        self._master_holders: dict[str, TokenHolder] = {}
        self._shares_proofs = shares_proofs
        self._issuer: proof.ProofIssuer | None = None
        self._store = TokenStore(
            home, check_every_s, lambda tokens: self._revoked(issued.principal for issued in tokens)
        )
        self.on_revoked: list[Callable[[set[str]], None]] = []

    # -- the relay's own ----------------------------------------------------------------------------------------------

    def master(self) -> str:
        """The relay's own token. Created at the first start, and again when its file was deleted."""
        if self._watch.has_changed() or self._master is None:
            self._read_master()
        assert self._master is not None
        return self._master

    def _read_master(self) -> None:
        private_files.ensure_directory(self.home)
        before, known = self._master, self._master_principal
        # A file that can't be read admits no request.
        self._master, self._master_principal, self._master_holders = None, _NO_PRINCIPAL, {}
        self._master = private_files.read_or_create_secret(self._file)
        sha256 = digest(self._master)
        self._master_principal = Principal(f"token:{sha256[:8]}", MASTER_SCOPES, credential=sha256)
        self._master_holders = holders(sha256, self._master_principal)
        if before is not None and before != self._master:
            self._revoked([known])

    def renew_master(self) -> str:
        """Replace the relay's own token: the old one is no longer accepted."""
        private_files.ensure_directory(self.home)
        private_files.write(self._file, private_files.new_secret() + "\n")
        self._watch.has_changed(force=True)
        self._master = None
        return self.master()

    def session_key(self) -> bytes:
        """The key that seals session ids, and from which other keys are derived. Created at the first start."""
        if self._session_key is None:  # cached: each new browser needs it
            private_files.ensure_directory(self.home)
            self._session_key = private_files.read_or_create_secret(self.home / "session.key").encode()
        return self._session_key

    def state_key(self, server: str, principal: str) -> str:
        """The key with which a server's pages seal the state that clients carry for them. Another server has another
        key."""
        bound = json.dumps(["request state", server, principal]).encode()
        return hmac.new(self.session_key(), bound, hashlib.sha256).hexdigest()

    # -- verification -------------------------------------------------------------------------------------------------

    def identify(self, token: str, origin: str | None) -> Principal | None:
        """The principal of a token. A token that is bound to an origin is not accepted from another one.

        A missing Origin is accepted: browsers omit it on same-origin GETs, and a program could forge it anyway.
        """
        if token.startswith(proof.PREFIX):
            return self._identify_proof(token, origin)
        # The relay's own token is compared in clear text: hashing costs time in every call and hides only its length.
        if self._is_master(token):
            return self._master_principal
        issued = self._store.find(digest(token))
        # defence: an expired token
        if issued is None or issued.is_expired(self._wall()):
            return None
        # defence: a token bound to an origin
        if origin is not None and issued.origin is not None and origin != issued.origin:
            return None
        return issued.principal

    # -- proofs instead of tokens -------------------------------------------------------------------------------------

    def prove(self, key_id: str, authority: str, client_nonce: str) -> dict[str, str] | None:
        """The relay's signature for a client's challenge; None if no token has this key. `authority` is the relay's."""
        holder = self._holder(key_id)
        return None if holder is None else self._proofs().answer(holder.key, authority, client_nonce)

    def socket_signature(self, text: str) -> str | None:
        """The relay's first message on a WebSocket that was opened with this client proof; None for a token."""
        found = self._verify_proof(text) if text.startswith(proof.PREFIX) else None
        return None if found is None else found[0].exchange.socket_signature(found[1].key)

    def _identify_proof(self, text: str, origin: str | None) -> Principal | None:
        found = self._verify_proof(text)
        if found is None:
            return None
        issued = found[1].issued
        # defence: another program on the port: a page's proof is of its origin
        if issued is not None and origin is not None and issued.origin is not None and origin != issued.origin:
            return None
        return found[1].principal

    def _verify_proof(self, text: str) -> tuple[proof.ShownProof, TokenHolder] | None:
        shown = self._proofs().read(text)
        holder = None if shown is None else self._holder(shown.key_id)
        # defence: another program on the port: a proof is signed by the client
        if shown is None or holder is None or not shown.is_signed_by(holder.key):
            return None
        return shown, holder

    def _holder(self, key_id: str) -> TokenHolder | None:
        try:
            self.master()
        except StateError as problem:
            log.error("%s", problem)
        holder = self._master_holders.get(key_id) or self._store.holder(key_id)
        if holder is not None and holder.issued is not None and holder.issued.is_expired(self._wall()):
            return None
        return holder

    def _proofs(self) -> proof.ProofIssuer:
        if self._issuer is None:
            # defence: proofs that relays of one bus share
            shared = hmac.digest(self.session_key(), b"client proofs", "sha256") if self._shares_proofs else None
            # A secret of this process only: a proof that another program on the port captures ends with this relay.
            # defence: another program on the port: a proof is of one process
            # defence: proofs of relays without a bus
            self._issuer = proof.ProofIssuer(shared or secrets.token_bytes(32), self._wall)
        return self._issuer

    def _is_master(self, token: str) -> bool:
        try:
            return hmac.compare_digest(_bytes(token), _bytes(self.master()))
        except StateError as problem:
            # The file was damaged while the relay runs: its token is refused, and the relay continues.
            log.error("%s", problem)
            return False

    def is_valid(self, principal: Principal) -> bool:
        """Is the token of this admitted principal still accepted?"""
        if principal.credential is None:
            return True
        try:
            if self._watch.has_changed() or self._master is None:
                self._read_master()
        except StateError as problem:
            log.error("%s", problem)
        if principal.credential == self._master_principal.credential:
            return True
        issued = self._store.find(principal.credential)
        return issued is not None and not issued.is_expired(self._wall())

    def _revoked(self, principals: Iterable[Principal]) -> None:
        """Call `on_revoked` with the ids of principals without a token: a page may have been paired more than once."""
        left = {issued.principal.id for issued in self._store.all()}
        gone = {principal.id for principal in principals} - left
        for id in gone:
            log.info("%s: its token was revoked", id)
        for notify in self.on_revoked:
            notify(gone)

    # -- issue --------------------------------------------------------------------------------------------------------

    def issue_for_page(self, origin: str | None, server: str | None, scopes: Iterable[str]) -> str:
        """A new token for a page: bound to its origin, and to a server unless that is None."""
        return self._issue(scopes, origin=origin, servers=None if server is None else (server,))

    def issue_named(
        self, name: str, scopes: Iterable[str], servers: Sequence[str] | None = None, life_s: float | None = None
    ) -> str:
        """A new token with a name. `servers` None: all of them. `life_s` None: valid until it is revoked."""
        if name == MASTER_NAME:
            raise TokenStoreError(f'"{MASTER_NAME}" is the name of the relay\'s own token. Use another one.')
        if not _NAME.fullmatch(name):
            rule = "1 to 64 of A-Z, a-z, 0-9, '-', '_' and '.', and does not begin with '-', '_' or '.'"
            raise TokenStoreError(f"A token can't be called {name[:64]!a}. A name has {rule}.")
        expires = None if life_s is None else self._wall() + life_s
        return self._issue(scopes, name=name, servers=None if servers is None else tuple(servers), expires=expires)

    def _issue(self, scopes: Iterable[str], **more: Any) -> str:
        token = private_files.new_secret()
        self._store.add(IssuedToken(digest(token), tuple(sorted(scopes)), self._wall(), **more))
        return token

    def issued(self) -> list[IssuedToken]:
        return self._store.all()

    def has_page(self, origin: str) -> bool:
        """Was a page of this origin paired?"""
        return self._store.has_origin(origin)

    def revoke_pages(self, which: str) -> list[IssuedToken]:
        """Revoke the pairings of pages with this id or origin, and those of the same port under its other loopback
        names, which the same approval covers."""
        named = [
            issued for issued in self.issued() if issued.origin is not None and which in (issued.id, issued.origin)
        ]
        # defence: revoking an approval under each loopback name
        covered = {(origin, issued.servers) for issued in named for origin in loopback_siblings(issued.origin or "")}
        return self.revoke(lambda issued: issued in named or (issued.origin, issued.servers) in covered)

    def revoke(self, matches: Callable[[IssuedToken], bool]) -> list[IssuedToken]:
        return self._store.remove(matches)

    # -- one-time codes -----------------------------------------------------------------------------------------------

    def mint(self, server: str | None, ttl_s: float, now: float) -> str:
        """A new pairing code; ``server`` None: its token may serve any name."""
        return self._codes.mint(server, ttl_s, now)

    def redeem(self, code: str, origin: str, now: float) -> Redeemed | PairingCodeError:
        """Exchange a code for a token of the relay's own page, with the scopes `serve` and `manage`, without `call`."""
        found = self._codes.find(code, now)
        if not isinstance(found, PairingCode):
            return found
        # The token first: if it can't be stored, the code stays valid.
        token = self.issue_for_page(origin, found.server, (SERVE, MANAGE))
        self._codes.use_up(code)
        return Redeemed(token, found.server)


def digest(token: str) -> str:
    return hashlib.sha256(_bytes(token)).hexdigest()


def _bytes(token: str) -> bytes:
    return token.encode("utf-8", "surrogatepass")
