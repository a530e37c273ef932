"""The relay's own routes behind the real gate, called in this process."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from tabrelay import __version__
from tabrelay.admission.gate import Gate
from tabrelay.admission.pairing import PairingRequest
from tabrelay.admission.pairing_codes import PERSON_TTL_S
from tabrelay.admission.policy import Policy, Refuse
from tabrelay.admission.tokens import StateError, Tokens
from tabrelay.assets.files import Assets
from tabrelay.calls.principal import Principal
from tabrelay.faces.web.csp_reports import PER_MINUTE, CspReports
from tabrelay.faces.web.pairing import PairingRoutes
from tabrelay.faces.web.routes import PAGE_CSP, WORKER_CSP, web_app
from tabrelay.system import private_files
from tests.support.asgi import Answer, request

OWN = "http://127.0.0.1:4747"
APP = "https://app.example"
HOST = ("Host", "127.0.0.1:4747")
FAR = "relay.example"
JSON = ("Content-Type", "application/json")


class Clock:
    """A time that only a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class House:
    """The pages of a small set of files, behind the gate."""

    def __init__(self, root: Path, probe: Callable[[Principal, str], Refuse | None] | None = None) -> None:
        for name, text in {
            "tabserver/__init__.py": "",
            "tabserver/js/worker.js": "export {};\n" * 50,
            "tabserver/js/tabrelay.js": 'export const RELAY = "http://127.0.0.1:4747";\n',
            "page/index.html": "<!doctype html>\n" * 50,
            "page/page.css": "body {}\n",
            "page/favicon.svg": "<svg/>",
            "demo/index.html": "<!doctype html><title>Demo</title>\n",
            "pyodide/pyodide.mjs": "export {};\n",
            "pyodide/pyodide.asm.wasm": "\0asm",
            "pyscript/core.js": "export {};\n",
            "micropython/micropython.mjs": "export {};\n",
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        names = ("tabserver", "page", "demo", "pyodide", "pyscript", "micropython", "snapshot")
        folders = {name: root / name for name in names}
        self.assets = Assets(**folders, fix="Do this.")
        self.tokens = Tokens(root / "state")
        self.clock = Clock()
        policy = Policy.for_address("127.0.0.1", 4747, allow_origins=[APP], allow_hosts=[FAR])
        self.asked: list[tuple[str, str, str, list[str]]] = []
        self.paired: list[str] = []
        self.pairs = PairingRoutes(
            self.tokens,
            policy,
            on_ask=self._on_ask,
            on_paired=self.paired.append,
            clock=self.clock,
            collect_s=0.5,
        )
        inner = web_app(self.assets, self.status, groups=(self.pairs, CspReports(policy, self.clock)), probe=probe)
        self.gate = Gate(inner, policy, self.tokens)

    def _on_ask(self, asking: PairingRequest, others: list[str]) -> None:
        self.asked.append((asking.origin, asking.server, asking.code, others))

    async def status(self, principal: Principal) -> bytes:
        return json.dumps({"servers": [], "for": principal.id}).encode()

    async def get(self, path: str, *headers: tuple[str, str], method: str = "GET") -> Answer:
        return await request(self.gate, method, path, [HOST, *headers])

    async def post(self, path: str, body: bytes, *headers: tuple[str, str]) -> Answer:
        return await request(self.gate, "POST", path, [HOST, *headers], body)

    async def pair(self, code: str, origin: str | None = OWN) -> Answer:
        headers = [JSON, ("Origin", origin)] if origin else [JSON]
        return await self.post("/-/pair", json.dumps({"code": code}).encode(), *headers)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def bearer(token: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {token}"


async def test_health_is_told_to_anyone(house: House) -> None:
    answer = await house.get("/-/healthz", ("Origin", "https://anywhere.example"))
    assert answer.json() == {"status": "ok", "build": house.assets.build, "version": __version__}
    assert answer.header("access-control-allow-origin") == "*"
    assert answer.header("cache-control") == "no-store"


async def test_the_manifest_leads_to_files_that_exist(house: House) -> None:
    answer = await house.get("/-/manifest.json", ("Origin", "https://anywhere.example"))
    assert answer.header("access-control-allow-origin") == "*"
    assert answer.header("cache-control") == "no-cache"
    manifest = answer.json()
    for path in (manifest["tabserver"], manifest["pyodide"] + "pyodide.asm.wasm", manifest["js"] + "worker.js"):
        file = await house.get(path)
        assert file.status == 200
        assert file.header("access-control-allow-origin") == "*"
        assert file.header("cross-origin-resource-policy") == "cross-origin"
        assert file.header("cache-control") == "public, max-age=31536000, immutable"


async def test_a_runtime_that_is_missing_is_reported_with_the_way_out(house: House, tmp_path: Path) -> None:
    (tmp_path / "pyodide/pyodide.mjs").unlink()
    answer = await house.get("/-/manifest.json")
    assert answer.status == 503
    assert "Do this." in answer.json()["message"]


@pytest.mark.parametrize("path", ["/", "/-/demo/", "/-/demo/index.html", "/-/page/page.css"])
async def test_own_pages_have_a_policy_that_runs_no_inline_script(house: House, path: str) -> None:
    answer = await house.get(path)
    assert answer.status == 200
    assert answer.header("content-security-policy") == PAGE_CSP
    assert "unsafe-inline" not in PAGE_CSP
    assert "'unsafe-eval'" not in PAGE_CSP
    assert answer.header("cache-control") == "no-cache"
    assert answer.header("x-content-type-options") == "nosniff"
    assert answer.header("referrer-policy") == "no-referrer"
    assert answer.header("access-control-allow-origin") is None
    assert answer.header("x-frame-options") == "DENY"
    assert answer.header("cross-origin-opener-policy") == "same-origin"
    assert "geolocation=()" in (answer.header("permissions-policy") or "")


async def test_whatever_is_no_page_has_a_policy_that_lets_nothing_run(house: House) -> None:
    for path in ("/-/status", "/-/healthz", "/-/nothing", "/.well-known/nothing"):
        policy = (await house.get(path)).header("content-security-policy") or ""
        assert policy.startswith("default-src 'none'")


async def test_the_worker_has_its_own_policy_and_a_stable_name(house: House) -> None:
    answer = await house.get("/-/worker.js")
    assert answer.header("content-type") == "text/javascript; charset=utf-8"
    assert answer.header("content-security-policy") == WORKER_CSP
    assert answer.header("cache-control") == "no-cache"
    assert answer.header("access-control-allow-origin") == "*"


async def test_the_loader_that_an_app_hosts_names_the_address_under_which_it_was_fetched(house: House) -> None:
    near = await house.get("/-/tabrelay.js", ("Origin", "https://anywhere.example"))
    assert near.header("access-control-allow-origin") == "*"
    assert near.body == b'export const RELAY = "http://127.0.0.1:4747";\n'
    far = await request(house.gate, "GET", "/-/tabrelay.js", [("Host", FAR)])
    assert far.body == f'export const RELAY = "http://{FAR}";\n'.encode()


async def test_a_loader_that_is_fetched_under_the_public_address_names_that(house: House) -> None:
    app = web_app(house.assets, house.status, public_url=f"https://{FAR}")
    answer = await request(app, "GET", "/-/tabrelay.js", [("Host", FAR)])
    assert answer.body == f'export const RELAY = "https://{FAR}";\n'.encode()
    answer = await request(app, "GET", "/-/tabrelay.js", [HOST])
    assert answer.body == f'export const RELAY = "{OWN}";\n'.encode()


async def test_the_address_of_the_demo_without_its_slash_leads_there(house: House) -> None:
    answer = await house.get("/-/demo")
    assert (answer.status, answer.header("location")) == (308, "/-/demo/")


async def test_the_icon_that_browsers_ask_for_is_there(house: House) -> None:
    answer = await house.get("/favicon.ico")
    assert (answer.status, answer.header("content-type")) == (200, "image/svg+xml")


@pytest.mark.parametrize("path", ["/-/none.js", "/-/demo/none", "/-/page/../page.css", "/-/assets/x", "/.well-known/x"])
async def test_what_is_not_there_is_a_short_404(house: House, path: str) -> None:
    answer = await house.get(path)
    assert answer.status == 404
    assert answer.json()["error"] == "not_found"


async def test_there_are_no_documentation_routes(house: House) -> None:
    for path in ("/docs", "/redoc", "/openapi.json", "/-/openapi.json"):
        answer = await house.get(path, bearer(house.tokens.master()))
        assert answer.status == 404


async def test_a_file_that_the_browser_has_is_not_sent_again(house: House) -> None:
    for accept in ([], [("Accept-Encoding", "gzip, br")]):
        etag = (await house.get("/-/worker.js", *accept)).header("etag")
        assert etag is not None
        assert not etag.startswith("W/")
        for given in (etag, f'"x", {etag}', f"W/{etag}", "*"):
            answer = await house.get("/-/worker.js", ("If-None-Match", given), *accept)
            assert (answer.status, answer.body) == (304, b"")
            assert answer.header("etag") == etag
        assert (await house.get("/-/worker.js", ("If-None-Match", '"x"'), *accept)).status == 200


async def test_gzip_goes_to_those_who_accept_it_under_its_own_etag(house: House) -> None:
    plain = await house.get("/-/worker.js")
    zipped = await house.get("/-/worker.js", ("Accept-Encoding", "br, gzip;q=0.5"))
    assert zipped.header("content-encoding") == "gzip"
    assert gzip.decompress(zipped.body) == plain.body
    assert zipped.header("etag") != plain.header("etag")
    assert plain.header("vary") == zipped.header("vary") == "Accept-Encoding"
    refused = await house.get("/-/worker.js", ("Accept-Encoding", "gzip;q=0.0, br"))
    assert refused.header("content-encoding") is None


@pytest.mark.parametrize(("host", "is_zipped"), [("127.0.0.1:4747", False), (FAR, True)])
async def test_a_large_file_goes_unpacked_to_a_browser_on_this_computer(
    house: House, tmp_path: Path, host: str, is_zipped: bool
) -> None:
    """Unpacking takes longer than loopback does; over a network it is the other way round."""
    body = b"large " * 300_000
    (tmp_path / "pyodide/large.zip").write_bytes(body)
    (tmp_path / "pyodide/large.zip.gz").write_bytes(gzip.compress(body))
    path = house.assets.manifest()["pyodide"] + "large.zip"
    answer = await request(house.gate, "GET", path, [("Host", host), ("Accept-Encoding", "gzip")])
    assert (answer.header("content-encoding") == "gzip") is is_zipped
    assert (gzip.decompress(answer.body) if is_zipped else answer.body) == body


async def test_head_is_answered_like_get(house: House) -> None:
    for path in ("/", "/-/healthz", "/-/manifest.json", "/-/worker.js", "/-/demo/"):
        assert (await house.get(path, method="HEAD")).status == 200


async def test_a_page_trades_its_code_for_a_token_that_serves(house: House) -> None:
    answer = await house.pair(house.tokens.mint("demo", 60, house.clock.now))
    assert answer.status == 200
    assert answer.header("cache-control") == "no-store"
    got = answer.json()
    assert got["server"] == "demo"
    principal = house.tokens.identify(got["token"], OWN)
    assert principal is not None
    assert principal.scopes == frozenset({"serve", "manage"})
    status = await house.get("/-/status", bearer(got["token"]))
    assert status.json() == {"servers": [], "for": principal.id}


async def test_a_used_or_invented_code_is_unknown_and_an_old_one_expired(house: House) -> None:
    code = house.tokens.mint(None, 60, house.clock.now)
    await house.pair(code)
    old = house.tokens.mint(None, 60, house.clock.now)
    house.clock.now += 60
    for given, error in ((code, "unknown"), ("invented", "unknown"), (old, "expired")):
        answer = await house.pair(given)
        assert (answer.status, answer.json()["error"]) == (403, error)
        assert "tabrelay pair" in answer.json()["message"]


@pytest.mark.parametrize("origin", [None, APP])
async def test_only_the_relays_own_pages_pair_with_a_code(house: House, origin: str | None) -> None:
    code = house.tokens.mint(None, 60, house.clock.now)
    assert (await house.pair(code, origin)).status == 403
    assert (await house.pair(code)).status == 200


async def test_a_pairing_request_must_be_small_json(house: House) -> None:
    own = ("Origin", OWN)
    assert (await house.post("/-/pair", b"code=x", own, ("Content-Type", "text/plain"))).status == 415
    assert (await house.post("/-/pair", b"{}", own)).status == 415
    for body in (b"", b"{", b"[]", b"{}", b'{"code": 1}', b"\xff"):
        assert (await house.post("/-/pair", body, own, JSON)).status == 400
    assert (await house.post("/-/pair", b'{"code": "' + b"x" * 5000 + b'"}', own, JSON)).status == 413


async def test_the_command_line_gets_a_fresh_address_that_pairs(house: House) -> None:
    answer = await house.post("/-/codes", b"", bearer(house.tokens.master()))
    assert answer.status == 200
    body = answer.json()
    assert body["expires_s"] == PERSON_TTL_S
    base, _, code = body["url"].partition("/#pair=")
    assert base == OWN
    house.clock.now += PERSON_TTL_S - 1
    assert (await house.pair(code)).status == 200


async def test_a_probe_says_whether_the_name_may_be_served(tmp_path: Path) -> None:
    def held_by_another(principal: Principal, server: str) -> Refuse | None:
        return Refuse(403, "forbidden", "Held by another.") if server == "held" else None

    house = House(tmp_path, held_by_another)
    token = bearer(house.tokens.issue_for_page(OWN, None, ["serve"]))
    assert (await house.get("/-/probe/demo", token)).status == 204
    held = await house.get("/-/probe/held", token)
    assert (held.status, held.json()) == (403, {"error": "forbidden", "message": "Held by another."})
    for name in ("-x", ".well-known", "favicon.ico", "a/b", "", "ä"):
        refused = await house.get(f"/-/probe/{name}", token)
        assert refused.status == 403
        assert refused.json()["error"] == "forbidden"


async def test_no_unknown_route_of_the_relay_is_open(house: House) -> None:
    for method in ("GET", "POST", "PUT", "DELETE"):
        assert (await house.get("/-/anything", method=method)).status == 401


# --- pages of other origins

STRANGER = "https://stranger.example"


class Stranger:
    """A page of another origin that asks to be paired."""

    def __init__(self, house: House, origin: str = STRANGER) -> None:
        self._house = house
        self._origin = ("Origin", origin)

    async def ask(self, server: Any = "notes") -> Answer:
        body = json.dumps({"server": server}).encode()
        return await self._house.post("/-/ask", body, self._origin, JSON)

    async def answer(self, request: str) -> Answer:
        body = json.dumps({"request": request}).encode()
        return await self._house.post("/-/ask/answer", body, self._origin, JSON)


async def decide(house: House, **body: str) -> Answer:
    token = bearer(house.tokens.master())
    return await house.post("/-/pairs", json.dumps(body).encode(), JSON, token)


async def test_a_page_asks_is_approved_by_its_code_and_gets_a_token_for_its_origin_and_name(house: House) -> None:
    page = Stranger(house)
    asked = await page.ask()
    assert asked.status == 200
    assert asked.header("access-control-allow-origin") == STRANGER
    assert asked.header("cache-control") == "no-store"
    ticket = asked.json()
    assert house.asked == [(STRANGER, "notes", ticket["code"], [])]
    waiting = asyncio.create_task(page.answer(ticket["request"]))
    await asyncio.sleep(0)
    assert (await decide(house, approve=ticket["code"])).json()["state"] == "approved"
    assert house.paired == ["notes"]
    async with asyncio.timeout(60):
        got = (await waiting).json()
    principal = house.tokens.identify(got["token"], STRANGER)
    assert principal is not None
    assert (principal.scopes, principal.origin, principal.servers) == (
        frozenset({"serve"}),
        STRANGER,
        frozenset({"notes"}),
    )
    assert (await page.answer(ticket["request"])).status == 404
    assert house.tokens.identify(got["token"], APP) is None


async def test_a_refused_page_is_told_and_gets_nothing(house: House) -> None:
    page = Stranger(house)
    ticket = (await page.ask()).json()
    waiting = asyncio.create_task(page.answer(ticket["request"]))
    await asyncio.sleep(0)
    await decide(house, refuse=ticket["code"])
    async with asyncio.timeout(60):
        answer = await waiting
    assert (answer.status, answer.json()["error"]) == (403, "refused")
    assert (await page.ask()).status == 200
    assert len(house.asked) == 1  # the user is not asked again so soon
    assert house.tokens.issued() == []


async def test_a_request_that_nobody_answers_ends(house: House) -> None:
    page = Stranger(house)
    ticket = (await page.ask()).json()
    house.clock.now += 120
    answer = await page.answer(ticket["request"])
    assert (answer.status, answer.json()["error"]) == (410, "expired")
    assert (await decide(house, approve=ticket["code"])).status == 404


async def test_a_program_without_a_token_keeps_no_page_from_being_paired(house: House) -> None:
    """It can forge an Origin: what it does in the name of another must not count against that one."""
    page, forger = Stranger(house), Stranger(house)
    for _ in range(10):
        assert (await forger.answer("guess")).status == 404
    await decide(house, refuse=(await forger.ask()).json()["code"])
    others = [Stranger(house, f"https://{number}.example") for number in range(20)]
    await asyncio.gather(*(other.ask() for other in others))
    asked = await page.ask()
    assert asked.status == 200
    await asyncio.gather(*(other.ask() for other in (*others, forger)))
    ticket = asked.json()
    waiting = asyncio.create_task(page.answer(ticket["request"]))
    await asyncio.sleep(0)
    approved = await decide(house, approve=ticket["code"])
    assert (approved.status, approved.json()["origin"]) == (200, STRANGER)
    async with asyncio.timeout(25):
        assert (await waiting).json()["state"] == "approved"


async def test_the_approval_of_a_code_that_no_page_has_is_taken_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabrelay.faces.web.pairing.HOLD_S", 0.05)
    page = Stranger(house)
    first, second = (await page.ask()).json(), (await page.ask()).json()
    refused = await decide(house, approve=first["code"])  # it is not in the list, and its page is gone
    assert (refused.status, refused.json()["error"]) == (404, "unknown")
    assert "token" not in (await page.answer(first["request"])).json()
    assert (await decide(house, refuse=second["code"])).status == 200
    house.clock.now += 120
    assert (await page.answer(first["request"])).status == 410
    assert house.tokens.issued() == []


@pytest.mark.parametrize("problem", [OSError(errno.ENOSPC, "No space left on device"), StateError("gone")])
async def test_a_token_that_can_not_be_stored_does_not_use_up_the_approval(
    house: House, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    def full(*_: object, **__: object) -> None:
        raise problem

    page, code = Stranger(house), house.tokens.mint(None, 60, house.clock.now)
    ticket = (await page.ask()).json()
    await decide(house, approve=ticket["code"])
    with monkeypatch.context() as disk:
        disk.setattr(private_files, "write", full)
        for answer in (await page.answer(ticket["request"]), await house.pair(code)):
            assert (answer.status, answer.json()["error"], answer.header("retry-after")) == (507, "not_stored", "5")
    assert house.tokens.issued() == []
    assert (await page.answer(ticket["request"])).status == 200
    assert (await house.pair(code)).status == 200


@pytest.mark.parametrize("server", ["", "-x", "a b", "favicon.ico", None, 1.5, ["a"], "a\nb", "x" * 65])
async def test_a_page_asks_for_a_name_that_can_be_one(house: House, server: Any) -> None:
    assert (await Stranger(house).ask(server)).status == 400
    assert house.asked == []


ODD = ["null", "", "https://A.example", "https://a.example/", "https://a.example:443", "https://*.example", "x"]


@pytest.mark.parametrize("origin", ODD)
async def test_only_a_browsers_own_origin_can_ask(house: House, origin: str) -> None:
    answer = await Stranger(house, origin).ask()
    assert answer.status in (400, 403)
    assert house.asked == []


@pytest.mark.parametrize("other", [STRANGER, "https://other.example", "null", ""])
async def test_who_names_two_origins_has_none(house: House, other: str) -> None:
    for origins in ((STRANGER, other), (other, STRANGER)):
        headers = [("Origin", origin) for origin in origins]
        assert (await house.post("/-/ask", b'{"server": "notes"}', *headers, JSON)).status in (400, 403)
    assert house.asked == []
    ticket = (await Stranger(house).ask()).json()
    await decide(house, approve=ticket["code"])
    body = json.dumps({"request": ticket["request"]}).encode()
    answer = await house.post("/-/ask/answer", body, ("Origin", STRANGER), ("Origin", other), JSON)
    assert answer.status in (403, 404)
    assert (await Stranger(house).answer(ticket["request"])).status == 200


async def test_of_all_that_ask_at_once_the_user_is_shown_three(house: House) -> None:
    pages = [f"https://app{port}.example:{port}" for port in range(8001, 8006)]
    answers = await asyncio.gather(*(Stranger(house, origin).ask() for origin in pages * 4))
    assert [answer.status for answer in answers] == [200] * 20
    assert len({origin for origin, *_ in house.asked}) == len(house.asked) == 3
    assert len((await house.get("/-/pairs", bearer(house.tokens.master()))).json()["asking"]) == 3


async def test_of_all_that_pick_a_token_up_at_once_one_gets_it(house: House) -> None:
    page = Stranger(house)
    ticket = (await page.ask()).json()
    waiting = [asyncio.create_task(page.answer(ticket["request"])) for _ in range(5)]
    await asyncio.sleep(0)
    decided = await asyncio.gather(*(decide(house, approve=ticket["code"]) for _ in range(3)))
    assert sorted(answer.status for answer in decided) == [200, 404, 404]
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*waiting)
    assert sorted(answer.status for answer in answers) == [200, 404, 404, 404, 404]
    assert len(house.tokens.issued()) == 1


async def test_origins_that_differ_by_their_port_know_nothing_of_each_other(house: House) -> None:
    one, other = Stranger(house, "https://a.example:8443"), Stranger(house, "https://a.example")
    ticket = (await one.ask()).json()
    await decide(house, approve=ticket["code"])
    assert (await other.answer(ticket["request"])).status == 404
    token = (await one.answer(ticket["request"])).json()["token"]
    assert house.tokens.identify(token, "https://a.example") is None
    assert house.tokens.identify(token, "https://A.example:8443") is None
    assert house.tokens.identify(token, "https://a.example:8443") is not None


async def test_an_approval_that_nobody_picks_up_is_worth_nothing_later(house: House) -> None:
    page = Stranger(house)
    ticket = (await page.ask()).json()
    await decide(house, approve=ticket["code"])
    house.clock.now += 3600
    answer = await page.answer(ticket["request"])
    assert (answer.status, answer.json()["error"]) == (410, "expired")
    assert house.tokens.issued() == []


async def test_a_program_without_an_origin_cannot_ask(house: House) -> None:
    assert (await house.post("/-/ask", b'{"server": "notes"}', JSON)).status == 400


async def test_a_form_cannot_ask(house: House) -> None:
    origin = ("Origin", STRANGER)
    assert (await house.post("/-/ask", b'{"server": "notes"}', origin, ("Content-Type", "text/plain"))).status == 415
    assert (await house.post("/-/ask", b"[" * 4000, origin, JSON)).status == 400


async def test_the_relays_own_page_sees_who_asks_and_decides(house: House) -> None:
    got = (await house.pair(house.tokens.mint(None, 60, house.clock.now))).json()
    own = [bearer(got["token"]), ("Origin", OWN)]
    other = Stranger(house, "https://other.example")
    first = (await other.ask()).json()
    await decide(house, approve=first["code"])
    await other.answer(first["request"])
    ticket = (await Stranger(house).ask()).json()
    assert house.asked[-1][3] == ["https://other.example"]
    listed = (await house.get("/-/pairs", *own)).json()
    assert [(row["origin"], row["code"], row["others"]) for row in listed["asking"]] == [
        (STRANGER, ticket["code"], ["https://other.example"])
    ]
    assert [(row["origin"], row["servers"], row["own"]) for row in listed["paired"]] == [
        (OWN, None, True),
        ("https://other.example", ["notes"], False),
    ]
    body = json.dumps({"approve": ticket["code"]}).encode()
    assert (await house.post("/-/pairs", body, JSON, *own)).status == 200
    body = json.dumps({"revoke": listed["paired"][1]["id"]}).encode()
    assert (await house.post("/-/pairs", body, JSON, *own)).json() == {"revoked": ["https://other.example"]}


async def test_nobody_else_sees_or_decides_who_is_paired(house: House) -> None:
    ticket = (await Stranger(house).ask()).json()
    body = json.dumps({"approve": ticket["code"]}).encode()
    paired = house.tokens.issue_for_page(STRANGER, "notes", ["serve"])
    for token, origin, status in (
        (None, OWN, 401),
        (None, STRANGER, 403),
        (paired, STRANGER, 403),
        (paired, OWN, 403),
        (house.tokens.issue_named("laptop", ["call", "serve"]), OWN, 403),
    ):
        headers = [("Origin", origin), *([bearer(token)] if token else [])]
        assert (await house.get("/-/pairs", *headers)).status == status
        assert (await house.post("/-/pairs", body, JSON, *headers)).status == status
    assert (await decide(house, approve=ticket["code"])).status == 200


@pytest.mark.parametrize("body", ["{}", '{"approve": 1}', '{"revoke": null}', "[]"])
async def test_a_decision_that_is_none_is_refused(house: House, body: str) -> None:
    assert (await house.post("/-/pairs", body.encode(), JSON, bearer(house.tokens.master()))).status == 400


async def test_revoking_takes_no_named_token(house: House) -> None:
    house.tokens.issue_named("laptop", ["call"])
    [grant] = house.tokens.issued()
    assert (await decide(house, revoke=grant.id)).status == 404


# --- what browsers report


def report(**more: str) -> bytes:
    violation = {"document-uri": f"{OWN}/", "blocked-uri": "http://x.example/a.js", "violated-directive": "img-src"}
    return json.dumps({"csp-report": violation | more}).encode()


CSP_REPORT = ("Content-Type", "application/csp-report")


async def test_what_the_policy_kept_from_a_page_is_written_to_the_log(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    body = report(**{"blocked-uri": "http://x.example/\x1b[31m\n\u202e<b>"})
    assert (await house.post("/-/reports", body, CSP_REPORT, ("Origin", OWN))).status == 204
    [line] = caplog.messages
    assert line == f"content security policy: {OWN}/ was kept from http://x.example/?[31m???b? by img-src"


async def test_a_report_that_is_none_is_not_written(house: House, caplog: pytest.LogCaptureFixture) -> None:
    for body in (b"", b"{", b"[]", b"{}", b'{"csp-report": 1}', b'{"csp-report": {}}'):
        assert (await house.post("/-/reports", body, CSP_REPORT)).status == 204
    assert (await house.post("/-/reports", report(), ("Content-Type", "text/plain"))).status == 403
    assert (await house.post("/-/reports", report(), CSP_REPORT, ("Origin", APP))).status == 403
    assert (await house.post("/-/reports", report(more="x" * 20_000), CSP_REPORT)).status == 413
    assert caplog.messages == []


async def test_reports_do_not_fill_the_log(house: House, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(PER_MINUTE + 5):
        await house.post("/-/reports", report(), CSP_REPORT)
    assert len(caplog.messages) == PER_MINUTE
    house.clock.now += 60
    await house.post("/-/reports", report(), CSP_REPORT)
    assert len(caplog.messages) == PER_MINUTE + 1


async def test_a_report_that_breaks_off_is_no_error_of_ours() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    app = FastAPI()
    CspReports(Policy.for_address("127.0.0.1", 4747, allow_origins=[APP], allow_hosts=[FAR])).add_routes(app)
    kind = (b"content-type", b"application/csp-report")
    scope = {"type": "http", "method": "POST", "path": "/-/reports", "query_string": b"", "headers": [kind]}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    assert sent[0]["status"] == 400
