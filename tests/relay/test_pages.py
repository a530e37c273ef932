"""The relay's own routes behind the real gate, called in this process."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tabrelay import __version__
from tabrelay.assets import Assets
from tabrelay.codes import PERSON_TTL_S
from tabrelay.faces.pages import PAGE_CSP, WORKER_CSP, pages
from tabrelay.gate import Gate
from tabrelay.policy import Policy, Principal, Refuse
from tabrelay.tokens import Tokens
from tests.support.asgi import Answer, request

OWN = "http://127.0.0.1:4747"
APP = "https://app.example"
HOST = ("Host", "127.0.0.1:4747")
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
            "page/index.html": "<!doctype html>\n" * 50,
            "page/page.css": "body {}\n",
            "page/favicon.svg": "<svg/>",
            "demo/index.html": "<!doctype html><title>Demo</title>\n",
            "pyodide/pyodide.mjs": "export {};\n",
            "pyodide/pyodide.asm.wasm": "\0asm",
            "pyscript/core.js": "export {};\n",
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        folders = {name: root / name for name in ("tabserver", "page", "demo", "pyodide", "pyscript")}
        self.assets = Assets(**folders, fix="Do this.")
        self.tokens = Tokens(root / "state")
        self.clock = Clock()
        policy = Policy.for_address("127.0.0.1", 4747, allow_origins=[APP])
        inner = pages(self.assets, self.tokens, policy, self.status, probe=probe, clock=self.clock)
        self.gate = Gate(inner, policy, self.tokens)

    def status(self, principal: Principal) -> dict[str, Any]:
        return {"servers": [], "for": principal.id}

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


async def test_the_worker_has_its_own_policy_and_a_stable_name(house: House) -> None:
    answer = await house.get("/-/worker.js")
    assert answer.header("content-type") == "text/javascript; charset=utf-8"
    assert answer.header("content-security-policy") == WORKER_CSP
    assert answer.header("cache-control") == "no-cache"
    assert answer.header("access-control-allow-origin") == "*"


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
    assert principal.scopes == frozenset({"serve"})
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
    token = bearer(house.tokens.issue(OWN, None, ["serve"]))
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
