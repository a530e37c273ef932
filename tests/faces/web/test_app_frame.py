"""Frame of apps in the console: its document is sandboxed for every origin, with the network that an app names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tabrelay.faces.web.app_frame import MAX_ORIGINS, ROUTE, AppFrameRoutes
from tests.support.web_routes import OWN, WebRoutes


@pytest.fixture
def web(tmp_path: Path) -> WebRoutes:
    return WebRoutes(tmp_path, groups=lambda assets: [AppFrameRoutes()])


async def rules(web: WebRoutes, csp: Any) -> dict[str, str]:
    text = csp if isinstance(csp, str) else json.dumps(csp)
    answer = await web.get(f"{ROUTE}?csp={quote(text)}")
    assert answer.status == 200
    policy = answer.header("content-security-policy") or ""
    return {name: rest for name, _, rest in (rule.partition(" ") for rule in policy.split("; "))}


@pytest.mark.parametrize("origin", [None, "null", OWN])
async def test_the_document_has_an_opaque_origin_however_it_is_opened(web: WebRoutes, origin: str | None) -> None:
    answer = await web.get(ROUTE, *([("Origin", origin)] if origin else []))
    policy = answer.header("content-security-policy") or ""
    # "null" is no origin of the relay: the gate refuses it, before anything is answered.
    assert answer.status == (403 if origin == "null" else 200)
    if answer.status == 200:
        assert policy.startswith("sandbox allow-scripts allow-forms; default-src 'none';")
        assert "allow-same-origin" not in policy and "connect-src 'none'" in policy
        assert policy.endswith("frame-ancestors 'self'") and answer.header("x-frame-options") == "SAMEORIGIN"


async def test_the_policy_names_the_origins_of_the_app(web: WebRoutes) -> None:
    found = await rules(
        web,
        {
            "connectDomains": ["https://api.example", "wss://*.example:8443"],
            "resourceDomains": ["https://cdn.example/lib/"],
            "frameDomains": ["https://map.example"],
            "baseUriDomains": ["https://base.example"],
        },
    )
    assert found["connect-src"] == "https://api.example wss://*.example:8443"
    assert found["script-src"] == "'unsafe-inline' https://cdn.example/lib/"
    assert found["img-src"] == "data: blob: https://cdn.example/lib/"
    assert (found["frame-src"], found["base-uri"]) == ("https://map.example", "https://base.example")
    assert found["form-action"] == "'none'"


@pytest.mark.parametrize(
    "csp",
    [
        "no json",
        "[]",
        '"https://api.example"',
        {"connectDomains": "https://api.example"},
        {"connectDomains": [5, None, {}, "*", "'self'", "data:", "javascript:x", "https:", "https://"]},
        {"connectDomains": ["https://a.example; script-src *", "https://a.example https://b", "https://a\r\nX: y"]},
        {"connectDomains": ["https://api.example"] * 5000},
        {"sandbox": ["https://api.example"], "default-src": ["https://api.example"]},
    ],
)
async def test_what_is_no_list_of_origins_adds_nothing(web: WebRoutes, csp: Any) -> None:
    assert await rules(web, csp) == await rules(web, {})


async def test_the_number_of_origins_has_a_bound(web: WebRoutes) -> None:
    found = await rules(web, {"connectDomains": [f"https://{number}.example" for number in range(MAX_ORIGINS + 9)]})
    assert len(found["connect-src"].split()) == MAX_ORIGINS


@pytest.mark.parametrize(
    "csp", ["[" * 8000, '{"connectDomains":' + "[" * 3000, '{"a":"\\ud800"}', "9" * 5000, "\udcff"]
)
async def test_a_parameter_of_any_form_is_answered(web: WebRoutes, csp: str) -> None:
    answer = await web.get(f"{ROUTE}?csp={quote(csp, errors='surrogateescape')}")
    assert answer.status == 200 and "connect-src 'none'" in (answer.header("content-security-policy") or "")
