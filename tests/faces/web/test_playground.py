"""Routes of the playground: the page may embed one frame, and the frame's document is sandboxed for every origin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tabrelay.faces.web.playground import PlaygroundRoutes, frame_policy
from tabrelay.faces.web.routes import PAGE_CSP
from tests.support.web_routes import OWN, WebRoutes

PAGE = "/-/demo/playground/"
FRAME = "/-/demo/playground/frame/frame.html"


@pytest.fixture
def web(tmp_path: Path) -> WebRoutes:
    for name in ("index.html", "playground.js", "frame/frame.html", "frame/frame.js"):
        (tmp_path / "demo/playground" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "demo/playground" / name).write_text(f"{name}\n")
    return WebRoutes(tmp_path, groups=lambda assets: [PlaygroundRoutes(assets, "")])


async def test_the_page_has_the_policy_of_all_pages_and_may_embed_one_document(web: WebRoutes) -> None:
    answer = await web.get(PAGE)
    assert answer.status == 200
    assert answer.header("content-security-policy") == f"{PAGE_CSP}; frame-src {OWN}{FRAME}"
    assert answer.header("x-frame-options") == "DENY"
    assert answer.header("access-control-allow-origin") is None
    moved = await web.get(PAGE.rstrip("/"))
    assert (moved.status, moved.header("location")) == (308, PAGE)
    # Its other files are files of the demo, with the policy of all pages.
    assert (await web.get(f"{PAGE}playground.js")).header("content-security-policy") == PAGE_CSP


@pytest.mark.parametrize("origin", [None, "null", OWN, "https://evil.example"])
async def test_the_frames_document_is_sandboxed_however_it_is_opened(web: WebRoutes, origin: str | None) -> None:
    answer = await web.get(FRAME, *([("Origin", origin)] if origin else []))
    assert answer.status == 200
    policy = answer.header("content-security-policy") or ""
    assert policy == frame_policy(OWN)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["sandbox"] == "allow-scripts"
    assert rules["frame-ancestors"] == "'self'"
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"].split() == [
        f"{OWN}/-/assets/",
        f"{OWN}/-/manifest.json",
        f"{OWN}/-/demo/playground/frame/",
    ]
    assert "report-uri" not in rules
    assert answer.header("x-frame-options") == "SAMEORIGIN"


async def test_scripts_of_the_frame_are_readable_for_its_opaque_origin(web: WebRoutes) -> None:
    for path in ("frame/frame.js", "frame/frame.html"):
        assert (await web.get(f"{PAGE}{path}", ("Origin", "null"))).header("access-control-allow-origin") == "*"
    assert (await web.get(f"{PAGE}frame/../../tools.py", ("Origin", "null"))).status in (403, 404)
    assert (await web.get(f"{PAGE}frame/missing.js")).status == 404


@pytest.mark.parametrize("path", ["/-/status", "/-/pairs", "/-/calls", "/demo", "/-/metrics"])
async def test_an_opaque_origin_reads_nothing_else(web: WebRoutes, path: str) -> None:
    answer = await web.get(path, ("Origin", "null"))
    assert answer.status == 403
    assert answer.header("access-control-allow-origin") is None
