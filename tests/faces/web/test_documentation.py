"""Routes of the documentation: pages from disk, compressed, with the policy of all pages; the 404 page for people."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tabrelay.assets.docs_site import DocsSite
from tabrelay.faces.web.documentation import DocsRoutes
from tabrelay.faces.web.routes import PAGE_CSP
from tests.support.web_routes import WebRoutes

NAVIGATION = (("Accept", "text/html,*/*;q=0.8"), ("Sec-Fetch-Mode", "navigate"))
PAGES = {
    "index.html": "<h1>Overview</h1>",
    "404.html": "<h1>No page here</h1>",
    "guides/tabs/index.html": "<h1>Tabs</h1>" * 100,
    "search.json": "[]",
}


@pytest.fixture
def web(tmp_path: Path) -> WebRoutes:
    for name, text in PAGES.items():
        file = tmp_path / "docs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if len(text) > 1_000:
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(text.encode()))
    return WebRoutes(tmp_path, groups=lambda assets: [DocsRoutes(DocsSite(assets.docs))])


async def test_pages_are_public_and_have_the_policy_of_all_pages(web: WebRoutes) -> None:
    for path, name in (("/-/docs/", "index.html"), ("/-/docs/guides/tabs/", "guides/tabs/index.html")):
        answer = await web.get(path)
        assert (answer.status, answer.body.decode()) == (200, PAGES[name])
        assert answer.header("content-type") == "text/html; charset=utf-8"
        assert answer.header("content-security-policy") == PAGE_CSP
        assert answer.header("cache-control") == "no-cache"
    assert (await web.get("/-/docs/search.json")).header("content-type") == "application/json"


async def test_a_page_is_sent_compressed_and_only_once(web: WebRoutes) -> None:
    plain = await web.get("/-/docs/guides/tabs/")
    packed = await web.get("/-/docs/guides/tabs/", ("Accept-Encoding", "gzip, br"))
    assert packed.header("content-encoding") == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert packed.header("etag") != plain.header("etag")
    again = await web.get(
        "/-/docs/guides/tabs/", ("Accept-Encoding", "gzip"), ("If-None-Match", packed.header("etag") or "")
    )
    assert (again.status, again.body) == (304, b"")
    assert (await web.get("/-/docs/guides/tabs/", method="HEAD")).body == b""


async def test_a_page_that_is_built_again_is_served_without_a_restart(web: WebRoutes, tmp_path: Path) -> None:
    before = await web.get("/-/docs/")
    (tmp_path / "docs" / "index.html").write_text("<h1>New</h1>")
    after = await web.get("/-/docs/")
    assert after.body == b"<h1>New</h1>"
    assert after.header("etag") != before.header("etag")


@pytest.mark.parametrize(("path", "location"), [("", "/-/docs/"), ("/guides/tabs", "/-/docs/guides/tabs/")])
async def test_an_address_without_the_slash_at_its_end_is_redirected(web: WebRoutes, path: str, location: str) -> None:
    answer = await web.get(f"/-/docs{path}")
    assert (answer.status, answer.header("location")) == (308, location)


@pytest.mark.parametrize("path", ["/-/docs/nothing/", "/-/docs/nothing", "/-/demo/nothing.html", "/-/page/nothing.js"])
async def test_a_browser_that_opens_an_address_without_a_page_gets_the_404_page(web: WebRoutes, path: str) -> None:
    page = await web.get(path, *NAVIGATION)
    assert (page.status, page.body.decode()) == (404, PAGES["404.html"])
    assert page.header("content-security-policy") == PAGE_CSP
    program = await web.get(path, ("Accept", "*/*"))
    assert program.status == 404
    assert program.json()["error"] == "not_found"


@pytest.mark.parametrize(
    "path", ["../state/token", "guides/../../page/page.css", "guides/tabs/index.html.gz", ".stamp"]
)
async def test_nothing_but_files_of_the_site_is_served(web: WebRoutes, path: str) -> None:
    assert (await web.get(f"/-/docs/{path}")).status == 404


async def test_without_a_built_site_people_get_json_too(tmp_path: Path) -> None:
    web = WebRoutes(tmp_path, groups=lambda assets: [DocsRoutes(DocsSite(assets.docs))])
    answer = await web.get("/-/docs/", *NAVIGATION)
    assert (answer.status, answer.json()["error"]) == (404, "not_found")
