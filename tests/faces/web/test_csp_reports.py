"""Reports of content security policy violations: which are logged, and how many."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI

from tabrelay.admission.policy import Policy
from tabrelay.faces.web.csp_reports import PER_MINUTE, CspReports
from tests.support.web_routes import APP, FAR, OWN, WebRoutes


def report(**more: str) -> bytes:
    violation = {"document-uri": f"{OWN}/", "blocked-uri": "http://x.example/a.js", "violated-directive": "img-src"}
    return json.dumps({"csp-report": violation | more}).encode()


CSP_REPORT = ("Content-Type", "application/csp-report")


async def test_what_the_policy_kept_from_a_page_is_written_to_the_log(
    web: WebRoutes, caplog: pytest.LogCaptureFixture
) -> None:
    body = report(**{"blocked-uri": "http://x.example/\x1b[31m\n\u202e<b>"})
    assert (await web.post("/-/reports", body, CSP_REPORT, ("Origin", OWN))).status == 204
    [line] = caplog.messages
    assert line == f"content security policy: {OWN}/ tried to load http://x.example/?[31m???b?, blocked by img-src"


async def test_a_report_that_is_none_is_not_written(web: WebRoutes, caplog: pytest.LogCaptureFixture) -> None:
    for body in (b"", b"{", b"[]", b"{}", b'{"csp-report": 1}', b'{"csp-report": {}}'):
        assert (await web.post("/-/reports", body, CSP_REPORT)).status == 204
    assert (await web.post("/-/reports", report(), ("Content-Type", "text/plain"))).status == 403
    assert (await web.post("/-/reports", report(), CSP_REPORT, ("Origin", APP))).status == 403
    assert (await web.post("/-/reports", report(more="x" * 20_000), CSP_REPORT)).status == 413
    assert caplog.messages == []


async def test_reports_do_not_fill_the_log(web: WebRoutes, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(PER_MINUTE + 5):
        await web.post("/-/reports", report(), CSP_REPORT)
    assert len(caplog.messages) == PER_MINUTE
    web.clock.now += 60
    await web.post("/-/reports", report(), CSP_REPORT)
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
