"""OAuth credentials: stored between runs, refreshed before they expire, and requested once at a time.

A lock file makes several processes share one token request. The protocol steps are in `sdk_flow`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from tabrelay import mcp_headers
from tabrelay.bridge.clock import Clock
from tabrelay.bridge.credentials import CredentialsError
from tabrelay.bridge.http import HttpAnswer
from tabrelay.bridge.oauth.token_store import OAuthStore, StoredSignIn, StoreError
from tabrelay.observe.log_setup import add_secret

if TYPE_CHECKING:
    from tabrelay.bridge.oauth.sdk_flow import RefusedRequest, TokenOptions

log = logging.getLogger("tabrelay.bridge")

SKEW_S: Final = 30.0


class OAuth:
    """`make_options` returns the user's options when they are needed: the SDK is imported then, not before."""

    hint = "The server refused the token that was just issued for it."

    def __init__(
        self,
        store: OAuthStore,
        make_options: Callable[[], TokenOptions],
        show_url: Callable[[str], Awaitable[None]],
        *,
        is_early: bool = False,
        callback_port: int | None = None,
        advice: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`is_early`: get a token before the first message. `callback_port`: exactly this port. `advice`: the user
        can't be asked here; the error text that replaces the question."""
        self._store = store
        self._make_options = make_options
        self._show_url = show_url
        self._is_early = is_early
        self._callback_port = callback_port
        self._advice = advice
        self._clock = clock or Clock()
        self._lock = asyncio.Lock()
        self._record: StoredSignIn | None = None
        self._nonce: str | None = None  # for proofs, as the server last gave it

    async def prepare(self) -> None:
        if self._is_early and not self._known().is_valid(self._clock.now(), SKEW_S):
            await self._obtain(self._known().access_token, None)

    async def header(self) -> str | None:
        """None until a server requires a token. A token that soon expires is refreshed first."""
        record = self._known()
        if record.access_token is not None and not record.is_valid(self._clock.now(), SKEW_S):
            try:
                await self._obtain(record.access_token, None)
            except CredentialsError as problem:
                if not record.is_valid(self._clock.now(), 0):
                    raise
                log.warning("The token could not be refreshed early: %s", problem)
            record = self._known()
        if record.access_token is None:
            return None
        return f"{'DPoP' if record.dpop.get('is_bound') else 'Bearer'} {record.access_token}"

    def proof(self, authorization: str | None, method: str, url: str) -> Mapping[str, str]:
        scheme, _, token = (authorization or "").partition(" ")
        if scheme != "DPoP":
            return {}
        from tabrelay.bridge.oauth.dpop import loaded

        return {"DPoP": loaded(self._known().dpop["key"]).proof(method, url, token=token, nonce=self._nonce)}

    async def refused(self, used: str | None, answer: HttpAnswer) -> bool:
        nonce, challenge = answer.header("dpop-nonce"), answer.header("www-authenticate") or ""
        if used is not None and nonce is not None and mcp_headers.WANTS_NONCE in challenge:
            self._nonce = nonce
            return True
        await self._obtain(None if used is None else used.partition(" ")[2], answer)
        return True

    def _known(self) -> StoredSignIn:
        if self._record is None:
            self._record = self._store.load()
            self._conceal(self._record)
        return self._record

    async def _obtain(self, used: str | None, answer: HttpAnswer | None) -> None:
        """Gets another token than `used`. Concurrent requests, in this process and in others, share it."""
        try:
            async with self._lock, self._store.lock(self._clock):
                self._record = record = self._store.load()
                self._conceal(record)
                is_other = record.access_token != used
                if is_other and record.is_valid(self._clock.now(), SKEW_S):
                    return
                self._record = await self._run(record, _refusal(answer))
                self._store.save(self._record)
        except StoreError as problem:
            raise CredentialsError(str(problem)) from None

    async def _run(self, record: StoredSignIn, refusal: RefusedRequest) -> StoredSignIn:
        from tabrelay.bridge.oauth.callback import PORT, Callback, CallbackError
        from tabrelay.bridge.oauth.sdk_flow import SignInFlow

        options = self._make_options()
        flow = SignInFlow(options, record, self._clock, self._show_url)
        try:
            if await flow.refresh(refusal):
                return flow.record
            if not options.asks_user:
                await flow.run(refusal, None)
                return flow.record
            if self._advice is not None:
                raise CredentialsError(self._advice)
            # One question to the user at a time, for all servers: there is one browser and one port.
            async with self._store.lock(self._clock, "callback"):
                may_move = self._callback_port is None
                async with Callback(self._callback_port or PORT, may_move=may_move) as callback:
                    await flow.run(refusal, callback)
        except CallbackError as problem:
            raise CredentialsError(str(problem)) from None
        finally:
            if flow.record.client != record.client:
                self._store.save(flow.record)  # a registered client stays registered, even if the user refused
        return flow.record

    @staticmethod
    def _conceal(record: StoredSignIn) -> None:
        for secret in (
            record.access_token,
            record.token.get("refresh_token"),
            record.client.get("client_secret"),
            record.dpop.get("key"),
        ):
            if isinstance(secret, str):
                add_secret(secret)


def _refusal(answer: HttpAnswer | None) -> RefusedRequest:
    from tabrelay.bridge.oauth.sdk_flow import RefusedRequest

    if answer is None:
        return RefusedRequest()
    return RefusedRequest(
        answer.status,
        answer.header("www-authenticate"),
        answer.request_header(mcp_headers.PROTOCOL_VERSION),
        is_real=True,
    )
