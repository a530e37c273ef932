"""JWKS cache: the public keys of an authorization server, discovered by the issuer's metadata, fetched and rotated.

A token with an unknown key id triggers a new fetch, at most every `PAUSE_S` seconds: clients that send made-up key ids
must not cause a request to the authorization server each time. Does not read the claims of tokens.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import jwt

log = logging.getLogger(__name__)

LIFE_S: Final = 3600.0  # a key that is no longer published is accepted for at most this long
PAUSE_S: Final = 10.0  # between two fetches
WAIT_S: Final = 5.0
MAX_BODY: Final = 256 * 1024
MAX_KEYS: Final = 64
ALGORITHMS: Final = ("RS256", "ES256")

Fetch = Callable[[str], Awaitable[Any]]


class JwksError(Exception):
    """The keys can't be fetched; the text says why."""


class JwksCache:
    def __init__(
        self, issuer: str, url: str = "", *, fetch: Fetch | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`url`: address of the keys; empty: the `jwks_uri` of the issuer's metadata."""
        self._issuer = issuer
        self._url = url
        self._fetch = fetch or fetch_json
        self._clock = clock
        self.keys: dict[str, jwt.PyJWK] = {}  # another dictionary after each change
        self._read = self._tried = -LIFE_S
        self._reading: asyncio.Task[None] | None = None

    def find(self, kid: str | None) -> jwt.PyJWK | None:
        """The key with this id. A token without a key id is accepted if there is only one key."""
        if kid is None:
            return next(iter(self.keys.values())) if len(self.keys) == 1 else None
        return self.keys.get(kid)

    async def prepare(self, kid: str | None) -> None:
        """Fetch the keys if they are old, or if this one is not among them."""
        now = self._clock()
        if self.find(kid) is not None and now - self._read < LIFE_S:
            return
        if self._reading is None:
            # defence: made-up key names
            if now - self._tried < PAUSE_S:
                return
            self._tried = now
            self._reading = asyncio.create_task(self._refresh())
            self._reading.add_done_callback(lambda _task: setattr(self, "_reading", None))
        # Shielded: several requests may wait for one fetch, and one of them may be cancelled.
        await asyncio.shield(self._reading)

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                url = self._url or await self._discover()
                found = _keys(await self._fetch(url))
        except (JwksError, TimeoutError, OSError, ValueError) as problem:
            log.warning("The keys of %s can't be read: %s", self._issuer, str(problem) or type(problem).__name__)
            if self._clock() - self._read >= LIFE_S and self.keys:
                self.keys = {}  # whether they are still valid is unknown
            return
        self._read = self._clock()
        if {kid: key.key for kid, key in found.items()} != {kid: key.key for kid, key in self.keys.items()}:
            self.keys = found

    async def _discover(self) -> str:
        """RFC 8414 §3.1, then OpenID Connect Discovery."""
        parts = urlsplit(self._issuer)
        path = parts.path.rstrip("/")
        inserted = urlunsplit((parts.scheme, parts.netloc, f"/.well-known/oauth-authorization-server{path}", "", ""))
        problem = "it has no metadata"
        for url in (inserted, f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"):
            try:
                about = await self._fetch(url)
            except (JwksError, OSError, ValueError) as error:
                problem = str(error)
                continue
            # RFC 8414 §3.3: metadata of another issuer must not be used; an attacker may have sent it.
            if (
                isinstance(about, dict)
                # defence: the metadata's own issuer
                and about.get("issuer") == self._issuer
                and isinstance(about.get("jwks_uri"), str)
            ):
                return str(about["jwks_uri"])
            problem = f"{url} names another issuer, or no jwks_uri"
        raise JwksError(problem)


def _keys(value: Any) -> dict[str, jwt.PyJWK]:
    """The keys that can verify a token's signature; a set may contain others."""
    listed = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        raise JwksError("this is not a key set")
    found: dict[str, jwt.PyJWK] = {}
    for each in listed[:MAX_KEYS]:
        # A symmetric key (oct) could sign too: it is a secret and must not be published.
        if not isinstance(each, dict) or each.get("kty") not in ("RSA", "EC") or each.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK.from_dict(each)
        except jwt.PyJWTError:
            continue
        if key.algorithm_name in ALGORITHMS:
            found[str(each.get("kid", ""))] = key
    return found


async def fetch_json(url: str) -> Any:
    """GET of one small JSON document. Does not follow redirects: the address is a setting, or from the issuer."""
    import httpx2
    import orjson

    async with httpx2.AsyncClient(timeout=WAIT_S) as http, http.stream("GET", url) as response:
        if response.status_code != 200:
            raise JwksError(f"{url} returned status {response.status_code}")
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_BODY:
                raise JwksError(f"{url} sends more than {MAX_BODY:,} bytes")
    return orjson.loads(body)
