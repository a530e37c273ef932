"""The relay's pages, files and probe behind the real gate, called in this process."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from fastapi import FastAPI

from tabrelay import __version__
from tabrelay.admission.policy import Refuse
from tabrelay.assets.stored_file import CHUNK
from tabrelay.calls.principal import Principal
from tabrelay.faces.web.routes import PAGE_CSP, WORKER_CSP, web_app
from tests.support.asgi_client import request
from tests.support.web_routes import FAR, HOST, OWN, WebRoutes, bearer


async def test_health_needs_no_token(web: WebRoutes) -> None:
    answer = await web.get("/-/healthz", ("Origin", "https://anywhere.example"))
    assert answer.json() == {"status": "ok", "build": web.assets.build, "version": __version__}
    assert answer.header("access-control-allow-origin") == "*"
    assert answer.header("cache-control") == "no-store"


async def test_the_manifest_leads_to_files_that_exist(web: WebRoutes) -> None:
    answer = await web.get("/-/manifest.json", ("Origin", "https://anywhere.example"))
    assert answer.header("access-control-allow-origin") == "*"
    assert answer.header("cache-control") == "no-cache"
    manifest = answer.json()
    for path in (manifest["tabserver"], manifest["pyodide"] + "pyodide.asm.wasm", manifest["js"] + "worker.js"):
        file = await web.get(path)
        assert file.status == 200
        assert file.header("access-control-allow-origin") == "*"
        assert file.header("cross-origin-resource-policy") == "cross-origin"
        assert file.header("cache-control") == "public, max-age=31536000, immutable"


async def test_a_runtime_that_is_missing_is_reported_with_the_way_out(web: WebRoutes, tmp_path: Path) -> None:
    (tmp_path / "pyodide/pyodide.mjs").unlink()
    answer = await web.get("/-/manifest.json")
    assert answer.status == 503
    assert "Do this." in answer.json()["message"]


@pytest.mark.parametrize("path", ["/", "/-/demo/", "/-/demo/index.html", "/-/page/page.css"])
async def test_own_pages_have_a_policy_that_runs_no_inline_script(web: WebRoutes, path: str) -> None:
    answer = await web.get(path)
    assert answer.status == 200
    embedded = f"; frame-src {OWN}/-/page/app-frame" if path == "/" else ""
    assert answer.header("content-security-policy") == f"{PAGE_CSP}{embedded}"
    assert "unsafe-inline" not in PAGE_CSP
    assert "'unsafe-eval'" not in PAGE_CSP
    assert answer.header("cache-control") == "no-cache"
    assert answer.header("x-content-type-options") == "nosniff"
    assert answer.header("referrer-policy") == "no-referrer"
    assert answer.header("access-control-allow-origin") is None
    assert answer.header("x-frame-options") == "DENY"
    assert answer.header("cross-origin-opener-policy") == "same-origin"
    assert "geolocation=()" in (answer.header("permissions-policy") or "")


async def test_whatever_is_no_page_has_a_policy_that_lets_nothing_run(web: WebRoutes) -> None:
    for path in ("/-/status", "/-/healthz", "/-/nothing", "/.well-known/nothing"):
        policy = (await web.get(path)).header("content-security-policy") or ""
        assert policy.startswith("default-src 'none'")


async def test_the_worker_has_its_own_policy_and_a_stable_name(web: WebRoutes) -> None:
    answer = await web.get("/-/worker.js")
    assert answer.header("content-type") == "text/javascript; charset=utf-8"
    assert answer.header("content-security-policy") == WORKER_CSP
    assert answer.header("cache-control") == "no-cache"
    assert answer.header("access-control-allow-origin") == "*"


async def test_the_loader_that_an_app_hosts_names_the_address_under_which_it_was_fetched(web: WebRoutes) -> None:
    near = await web.get("/-/tabrelay.js", ("Origin", "https://anywhere.example"))
    assert near.header("access-control-allow-origin") == "*"
    assert near.body == b'export const RELAY = "http://127.0.0.1:4747";\n'
    far = await request(web.gate, "GET", "/-/tabrelay.js", [("Host", FAR)])
    assert far.body == f'export const RELAY = "http://{FAR}";\n'.encode()


async def test_a_loader_that_is_fetched_under_the_public_address_names_that(web: WebRoutes) -> None:
    app = web_app(web.assets, web.status, public_url=f"https://{FAR}")
    answer = await request(app, "GET", "/-/tabrelay.js", [("Host", FAR)])
    assert answer.body == f'export const RELAY = "https://{FAR}";\n'.encode()
    answer = await request(app, "GET", "/-/tabrelay.js", [HOST])
    assert answer.body == f'export const RELAY = "{OWN}";\n'.encode()


async def test_the_address_of_the_demo_without_its_slash_leads_there(web: WebRoutes) -> None:
    answer = await web.get("/-/demo")
    assert (answer.status, answer.header("location")) == (308, "/-/demo/")


async def test_the_icon_that_browsers_ask_for_is_there(web: WebRoutes) -> None:
    answer = await web.get("/favicon.ico")
    assert (answer.status, answer.header("content-type")) == (200, "image/svg+xml")


@pytest.mark.parametrize("path", ["/-/none.js", "/-/demo/none", "/-/page/../page.css", "/-/assets/x", "/.well-known/x"])
async def test_what_is_not_there_is_a_short_404(web: WebRoutes, path: str) -> None:
    answer = await web.get(path)
    assert answer.status == 404
    assert answer.json()["error"] == "not_found"


async def test_there_are_no_documentation_routes(web: WebRoutes) -> None:
    for path in ("/docs", "/redoc", "/openapi.json", "/-/openapi.json"):
        answer = await web.get(path, bearer(web.tokens.master()))
        assert answer.status == 404


async def test_a_file_that_the_browser_has_is_not_sent_again(web: WebRoutes) -> None:
    for accept in ([], [("Accept-Encoding", "gzip, br")]):
        etag = (await web.get("/-/worker.js", *accept)).header("etag")
        assert etag is not None
        assert not etag.startswith("W/")
        for given in (etag, f'"x", {etag}', f"W/{etag}", "*"):
            answer = await web.get("/-/worker.js", ("If-None-Match", given), *accept)
            assert (answer.status, answer.body) == (304, b"")
            assert answer.header("etag") == etag
        assert (await web.get("/-/worker.js", ("If-None-Match", '"x"'), *accept)).status == 200


async def test_gzip_goes_to_those_who_accept_it_under_its_own_etag(web: WebRoutes) -> None:
    plain = await web.get("/-/worker.js")
    zipped = await web.get("/-/worker.js", ("Accept-Encoding", "br, gzip;q=0.5"))
    assert zipped.header("content-encoding") == "gzip"
    assert gzip.decompress(zipped.body) == plain.body
    assert zipped.header("etag") != plain.header("etag")
    assert plain.header("vary") == zipped.header("vary") == "Accept-Encoding"
    refused = await web.get("/-/worker.js", ("Accept-Encoding", "gzip;q=0.0, br"))
    assert refused.header("content-encoding") is None


@pytest.mark.parametrize("host", ["127.0.0.1:4747", FAR])
async def test_a_compressed_copy_goes_to_those_who_accept_it_wherever_they_are(
    web: WebRoutes, tmp_path: Path, host: str
) -> None:
    body, packed = os.urandom(CHUNK), os.urandom(CHUNK // 2)
    (tmp_path / "pyodide/large.wasm").write_bytes(body)
    (tmp_path / "pyodide/large.wasm.zst").write_bytes(packed)
    path = web.assets.manifest()["pyodide"] + "large.wasm"
    answers = {
        accepted: await request(web.gate, "GET", path, [("Host", host), ("Accept-Encoding", accepted)])
        for accepted in ("gzip, deflate, br, zstd", "gzip, deflate", "ZSTD;q=0.1", "zstd;q=0, gzip", "*")
    }
    is_packed = {accepted: answer.header("content-encoding") == "zstd" for accepted, answer in answers.items()}
    assert list(is_packed.values()) == [True, False, True, False, False]
    for accepted, answer in answers.items():
        assert answer.body == (packed if is_packed[accepted] else body)
        assert answer.header("content-type") == "application/wasm"
        assert answer.header("vary") == "Accept-Encoding"
    assert len({answer.header("etag") for answer in answers.values()}) == 2


async def test_head_is_answered_like_get(web: WebRoutes) -> None:
    for path in ("/", "/-/healthz", "/-/manifest.json", "/-/worker.js", "/-/demo/"):
        assert (await web.get(path, method="HEAD")).status == 200


async def test_a_file_on_disk_is_sent_whole_in_pieces_and_not_at_all_for_head(web: WebRoutes, tmp_path: Path) -> None:
    body = os.urandom(2 * CHUNK + 5)
    (tmp_path / "pyodide/large.bin").write_bytes(body)
    path = web.assets.manifest()["pyodide"] + "large.bin"
    got, head = await web.get(path), await web.get(path, method="HEAD")
    assert got.body == body and head.body == b""
    assert got.header("content-length") == head.header("content-length") == str(len(body))
    again = await web.get(path, ("If-None-Match", str(got.header("etag"))))
    assert again.status == 304 and again.body == b""


async def test_a_probe_returns_whether_the_name_may_be_served(tmp_path: Path) -> None:
    def held_by_another(principal: Principal, server: str) -> Refuse | None:
        return Refuse(403, "forbidden", "Held by another.") if server == "held" else None

    web = WebRoutes(tmp_path, held_by_another)
    token = bearer(web.tokens.issue_for_page(OWN, None, ["serve"]))
    assert (await web.get("/-/probe/demo", token)).status == 204
    held = await web.get("/-/probe/held", token)
    body = {"error": "forbidden", "message": "Held by another.", "help": "TR202"}
    assert (held.status, held.json()) == (403, body)
    assert dict(held.headers)["link"] == '</-/docs/reference/errors/#tr202>; rel="help"'
    for name in ("-x", ".well-known", "favicon.ico", "a/b", "", "ä"):
        refused = await web.get(f"/-/probe/{name}", token)
        assert refused.status == 403
        assert refused.json()["error"] == "forbidden"


async def test_no_unknown_route_of_the_relay_is_open(web: WebRoutes) -> None:
    for method in ("GET", "POST", "PUT", "DELETE"):
        assert (await web.get("/-/anything", method=method)).status == 401


async def test_a_wrong_method_or_body_is_answered_like_every_error(tmp_path: Path) -> None:
    class Bodies:
        def add_routes(self, app: FastAPI) -> None:
            @app.post("/-/accept")
            async def accept(body: dict[str, str]) -> dict[str, str]:
                return body

    web = WebRoutes(tmp_path, groups=lambda assets: [Bodies()])
    token = bearer(web.tokens.master())
    wrong = await web.get("/-/healthz", token, method="DELETE")
    assert (wrong.status, wrong.json()["error"], wrong.json()["help"]) == (405, "method_not_allowed", "TR205")
    assert set((wrong.header("allow") or "").split(", ")) == {"GET", "HEAD"}
    broken = await web.post("/-/accept", b'["no object"]', token, ("Content-Type", "application/json"))
    assert (broken.status, broken.json()["error"], broken.json()["help"]) == (400, "invalid_request", "TR141")
