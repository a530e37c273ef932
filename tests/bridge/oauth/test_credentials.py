"""OAuth through the bridge: the user is asked once, and tokens are stored, refreshed and kept secret."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.auth import OAuthFlowError

from tabrelay.bridge.clock import Clock
from tabrelay.bridge.credentials import CredentialsError
from tabrelay.bridge.oauth.callback import Callback, CallbackError
from tabrelay.bridge.oauth.credentials import OAuth
from tabrelay.bridge.oauth.sdk_flow import SignInFlow, TokenOptions
from tabrelay.bridge.oauth.token_store import OAuthStore, StoredSignIn
from tests.support.bridge_harness import BridgeProcess, InProcessBridge, QuickClock, request
from tests.support.fake_upstream import Reply, Upstream, status
from tests.support.oauth_protected_server import Authority
from tests.support.paths import ROOT
from tests.support.waiting import BOUND_S

VISIT = ROOT / "tests" / "conformance" / "visit.py"


async def agree(url: str) -> None:
    """A user who consents, or any other answer of the authorization server."""
    async with httpx2.AsyncClient(trust_env=False, follow_redirects=True) as browser:
        await browser.get(url)


class Asked:
    def __init__(self) -> None:
        self.urls: list[str] = []

    async def __call__(self, url: str) -> None:
        self.urls.append(url)
        await agree(url)


@asynccontextmanager
async def bridge(
    server: Authority, home: Path, clock: Clock | None = None, ask: Any = None, **wish: Any
) -> AsyncIterator[InProcessBridge]:
    credentials = OAuth(
        OAuthStore(home / "oauth", server.url),
        lambda: TokenOptions(server.url, **wish),
        ask or Asked(),
        is_early="grant" in wish,
        clock=clock,
    )
    await credentials.prepare()
    async with InProcessBridge(server.url, credentials=credentials) as here:
        yield here


async def test_the_user_is_asked_once_and_the_token_is_kept(tmp_path: Path) -> None:
    ask = Asked()
    async with Authority() as server:
        async with bridge(server, tmp_path, ask=ask) as here:
            assert (await here.ask("ping"))["result"] == {}
            assert (await here.ask("ping"))["result"] == {}
        async with bridge(server, tmp_path, ask=ask) as here:
            assert (await here.ask("ping"))["result"] == {}
        assert len(ask.urls) == 1
        assert server.asked["/register"] == server.asked["authorization_code"] == 1
    [kept] = (tmp_path / "oauth").glob("*.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert "secret-refresh-1" in kept.read_text()


async def test_many_requests_at_once_ask_once(tmp_path: Path) -> None:
    ask = Asked()
    async with Authority() as server, bridge(server, tmp_path, ask=ask) as here:
        for number in range(6):
            await here.send(request("ping", id=number))
        answers = [await here.next() for _ in range(6)]
        assert all("result" in answer for answer in answers)
        assert len(ask.urls) == 1


class AdvancedClock(QuickClock):
    """A clock that the test advances."""

    time = 1_800_000_000.0

    def now(self) -> float:
        return self.time


async def test_a_token_that_ends_within_thirty_seconds_is_refreshed_before_it_is_used(tmp_path: Path) -> None:
    clock, ask = AdvancedClock(), Asked()
    async with Authority() as server, bridge(server, tmp_path, clock, ask) as here:
        await here.ask("ping")
        clock.time += 3600 - 31
        await here.ask("ping")
        assert server.asked["refresh_token"] == 0
        clock.time += 2
        assert (await here.ask("ping"))["result"] == {}
        assert server.asked["refresh_token"] == 1
        assert server.forms[-1]["refresh_token"] == "secret-refresh-1"
        assert server.seen[-1].headers["authorization"] == "Bearer secret-access-2"
        assert len(ask.urls) == 1


async def test_a_token_from_another_run_is_refreshed_where_it_was_made(tmp_path: Path) -> None:
    """The SDK does not store the address; without the stored one it would guess /token at the server itself."""
    clock, ask = AdvancedClock(), Asked()
    async with Authority() as server:
        server.metadata = {"token_endpoint": f"{server.base}/token?tenant=1"}
        async with bridge(server, tmp_path, clock, ask) as here:
            await here.ask("ping")
        clock.time += 4000
        async with bridge(server, tmp_path, clock, ask) as here:
            assert (await here.ask("ping"))["result"] == {}
        assert [seen.path for seen in server.seen if seen.path.startswith("/token")] == ["/token?tenant=1"] * 2
        assert len(ask.urls) == 1


async def test_a_token_that_the_server_refuses_is_refreshed_without_the_user(tmp_path: Path) -> None:
    ask = Asked()
    async with Authority() as server, bridge(server, tmp_path, ask=ask) as here:
        await here.ask("ping")
        server.revoke()
        assert (await here.ask("ping"))["result"] == {}
        assert (server.asked["refresh_token"], len(ask.urls)) == (1, 1)


async def test_when_the_refresh_is_refused_the_user_is_asked_again(tmp_path: Path) -> None:
    ask = Asked()
    async with Authority() as server, bridge(server, tmp_path, ask=ask) as here:
        await here.ask("ping")
        server.revoke()
        server.refuses_refresh = True
        assert (await here.ask("ping"))["result"] == {}
        assert (server.asked["refresh_token"], len(ask.urls)) == (1, 2)


async def test_a_refresh_token_is_not_shown_to_another_authorization_server(tmp_path: Path) -> None:
    ask = Asked()
    async with Authority() as old, Authority() as new, bridge(old, tmp_path, ask=ask) as here:
        await here.ask("ping")
        old.revoke()

        async def moved(reply: Reply) -> None:
            await reply.json({"resource": old.url, "authorization_servers": [new.base]})

        old._resource = moved  # type: ignore[method-assign]
        new.good = old.good
        assert (await here.ask("ping"))["result"] == {}
        assert (old.asked["refresh_token"], new.asked["refresh_token"], new.asked["/register"]) == (0, 0, 1)


async def test_a_refusal_of_the_user_is_the_answer(tmp_path: Path) -> None:
    async with Authority() as server, bridge(server, tmp_path) as here:
        server.denies = True
        error = (await here.ask("ping"))["error"]
        assert (error["code"], error["data"]["status"]) == (-32001, 401)
        assert "not <you>" in error["message"]
        server.denies = False
        assert (await here.ask("ping"))["result"] == {}
        assert server.asked["/register"] == 1, "the client is registered already"


@pytest.mark.parametrize(
    "endpoint", ["file:///etc/passwd", "javascript:alert(1)", "http://example.com/authorize", "calc.exe", "a:$(calc)"]
)
async def test_an_address_that_does_not_lead_to_the_web_is_never_opened(tmp_path: Path, endpoint: str) -> None:
    ask = Asked()
    async with Authority() as server, bridge(server, tmp_path, ask=ask) as here:
        server.metadata = {"authorization_endpoint": endpoint}
        await here.ask("ping")
        # A value that is not a web address at all counts as missing for the SDK, which tries the usual one.
        assert all(url.startswith(f"{server.base}/authorize?") for url in ask.urls)
    with pytest.raises(OAuthFlowError, match="can't be used"):
        SignInFlow(TokenOptions(server.url), StoredSignIn(), QuickClock(), ask)._check(endpoint)


async def test_tokens_are_not_sent_over_plain_http_to_other_computers(tmp_path: Path) -> None:
    async with Authority() as server, bridge(server, tmp_path) as here:
        server.metadata = {"token_endpoint": "http://192.0.2.1/token"}
        error = (await here.ask("ping"))["error"]
        assert "192.0.2.1" in error["message"] and "TLS" in error["message"]


async def test_scopes_of_the_users_are_asked_for(tmp_path: Path) -> None:
    ask = Asked()
    async with Authority() as server, bridge(server, tmp_path, ask=ask, scope="read write") as here:
        await here.ask("ping")
        assert "scope=read+write" in ask.urls[0]


# -- without a user ----------------------------------------------------------------------------------------------------


async def test_client_credentials_are_fetched_before_the_first_message(tmp_path: Path) -> None:
    clock = AdvancedClock()
    wish = {"grant": "client_credentials", "client_id": "me", "client_secret": "very-secret"}
    async with Authority() as server, bridge(server, tmp_path, clock, **wish) as here:
        assert server.asked["client_credentials"] == 1
        assert (await here.ask("ping"))["result"] == {}
        assert [seen.method for seen in server.seen if seen.path == "/mcp"] == ["ping"]
        clock.time += 3600 - 29
        assert (await here.ask("ping"))["result"] == {}
        assert server.asked["client_credentials"] == 2
        server.revoke()
        assert (await here.ask("ping"))["result"] == {}
        assert server.asked["client_credentials"] == 3


async def test_a_bridge_that_gets_no_token_at_the_start_ends_with_code_2(tmp_path: Path) -> None:
    async with Authority() as server:
        server.metadata = {"token_endpoint": f"{server.base}/nothing"}
        flags = ("--grant", "client_credentials", "--client-id", "me", "--client-secret-env", "S", "--home", tmp_path)
        async with BridgeProcess(server.url, *flags, env={"S": "very-secret-1"}) as child:
            assert await child.ended() == 2
            log = await child.log()
            assert "No token could be obtained" in log and "Traceback" not in log and "very-secret-1" not in log


# -- several processes -------------------------------------------------------------------------------------------------


async def test_several_bridges_of_one_user_ask_once(tmp_path: Path) -> None:
    browser = f"{sys.executable} {VISIT} %s"
    async with Authority() as server:
        flags = (server.url, "--home", tmp_path, "--log-level", "trace")
        async with (
            BridgeProcess(*flags, env={"BROWSER": browser}) as one,
            BridgeProcess(*flags, env={"BROWSER": browser}) as two,
            BridgeProcess(*flags, env={"BROWSER": browser}) as three,
        ):
            children = (one, two, three)
            answers = await asyncio.gather(*(child.ask("ping") for child in children))
            assert [answer.get("result") for answer in answers] == [{}] * 3
            assert server.asked["authorization_code"] == server.asked["/register"] == 1
            for child in children:
                child.close()
                assert await child.ended() == 0
                assert "secret-" not in await child.log()


async def test_a_process_that_died_with_the_lock_blocks_no_other_process(tmp_path: Path) -> None:
    store, clock = OAuthStore(tmp_path, "x"), QuickClock()
    code = (
        "import asyncio, sys, pathlib\n"
        "from tabrelay.bridge.oauth.token_store import OAuthStore\n"
        "from tabrelay.bridge.clock import Clock\n"
        "async def hold():\n"
        "    async with OAuthStore(pathlib.Path(sys.argv[1]), 'x').lock(Clock()):\n"
        "        print('held', flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(hold())\n"
    )
    pipe = asyncio.subprocess.PIPE
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(tmp_path), stdout=pipe)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), store.lock(Clock()):
            pass
    holder.kill()
    await holder.wait()
    async with asyncio.timeout(BOUND_S), store.lock(clock):
        pass


def test_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    store = OAuthStore(tmp_path, "x")
    store.save(StoredSignIn("t", 1.0))
    assert store.load().access_token == "t"
    [path] = tmp_path.glob("*.json")
    for text in ("", "[]", '{"what": 1}', "\x00"):
        path.write_text(text)
        assert store.load() == StoredSignIn()
    assert OAuthStore(tmp_path, "y").load() == StoredSignIn()


# -- the address to which the browser returns --------------------------------------------------------------------------


async def visit(url: str) -> httpx2.Response:
    async with httpx2.AsyncClient(trust_env=False) as browser:
        return await browser.get(url)


async def test_only_the_answer_to_the_question_is_taken(tmp_path: Path) -> None:
    async with Callback(0) as callback:
        early = await visit(f"{callback.uri}?code=c&state=")
        callback.expect("https://x/authorize?state=right")
        wrong = [await visit(f"{callback.uri}{query}") for query in ("", "?code=evil", "?code=evil&state=wrong")]
        other_path = await visit(callback.uri.replace("/callback", "/"))
        assert [answer.status_code for answer in (early, *wrong, other_path)] == [400, 400, 400, 400, 404]
        right = await visit(f"{callback.uri}?code=c&state=right&iss=https://x")
        assert right.status_code == 200 and "close this window" in right.text
        assert "default-src 'none'" in right.headers["content-security-policy"]
        found = await callback.returned()
        assert (found.code, found.state, found.issuer) == ("c", "right", "https://x")
        assert "already" in (await visit(f"{callback.uri}?code=d&state=right")).text


async def test_text_of_the_server_is_not_run_in_the_page() -> None:
    async with Callback(0) as callback:
        callback.expect("https://x/authorize?state=s")
        answer = await visit(f"{callback.uri}?error=no&error_description=<script>alert(1)</script>&state=s")
        assert "<script>" not in answer.text and "&lt;script&gt;" in answer.text
        with pytest.raises(CallbackError, match="The authorization server refused"):
            await callback.returned()


async def test_the_wait_for_the_user_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tabrelay.bridge.oauth.callback.WAIT_S", 0.01)
    async with Callback(0) as callback:
        with pytest.raises(CallbackError, match="within"):
            await callback.returned()


async def test_noise_on_the_port_does_no_harm() -> None:
    async with Callback(0) as callback:
        port = int(callback.uri.rpartition(":")[2].partition("/")[0])
        for noise in (b"", b"\r\n\r\n", b"GET\r\n\r\n", b"\xff\xfe\r\n\r\n", b"x" * 70_000):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(noise)
            writer.close()
        callback.expect("https://x/authorize?state=s")
        assert (await visit(f"{callback.uri}?code=c&state=s")).status_code == 200


async def test_a_port_that_is_taken_is_left_for_another_unless_it_must_be_that_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with Callback(port) as callback:
            assert f":{port}/" not in callback.uri
        with pytest.raises(CallbackError, match=str(port)):
            async with Callback(port, may_move=False):
                pass


async def test_a_server_that_wants_nothing_is_given_nothing_and_the_sdk_is_not_loaded(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tabrelay.cli.main import main\n"
        "main(['stdio', sys.argv[1], '--home', sys.argv[2]])\n"
        "print(*[name for name in ('mcp', 'pydantic', 'cryptography') if name in sys.modules], file=sys.stderr)\n"
    )
    async with Upstream() as server:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, server.url, str(tmp_path)),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
        )
        out, err = await process.communicate(json.dumps(request("ping")).encode() + b"\n")
        assert json.loads(out)["result"] == {}
        assert err.decode().strip() == ""
        assert "authorization" not in server.seen[0].headers


async def test_a_refusal_of_the_wrong_kind_is_not_a_reason_to_ask(tmp_path: Path) -> None:
    ask = Asked()
    async with Authority() as server, bridge(server, tmp_path, ask=ask) as here:
        await here.ask("ping")
        server.on["x"] = status(403, b"never")
        assert (await here.ask("x"))["error"]["data"]["status"] == 403
        assert len(ask.urls) == 1


async def test_credentials_that_can_not_be_stored_fail_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "oauth").write_text("in the way")
    credentials = OAuth(OAuthStore(tmp_path / "oauth", "x"), lambda: TokenOptions("http://127.0.0.1:9/"), agree)
    with pytest.raises(CredentialsError, match="oauth"):
        await credentials._obtain(None, None)
