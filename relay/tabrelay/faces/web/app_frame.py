"""Frame in which the console shows the page of an app (MCP Apps): an empty document with an opaque origin.

The document writes the HTML that the console posts to it into itself, so the page has this document's policy: a sandbox
without an origin of its own, no storage, no key of the relay, and no network but the origins that the app names in
`csp`. Only pages of the relay may embed it. `app_host.js` of the console has the other end. Does not read apps.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response

ROUTE: Final = "/-/page/app-frame"
MAX_CSP: Final = 8192  # characters of the parameter
MAX_ORIGINS: Final = 64  # of one kind
# A source of a policy: scheme and host, possibly with `*.`, a port and a path. Nothing that ends a rule.
_SOURCE: Final = re.compile(r"(https?|wss?)://(\*\.)?[A-Za-z0-9.-]+(:([0-9]{1,5}|\*))?(/[A-Za-z0-9._~/%-]*)?")
PERMISSIONS: Final = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"

DOCUMENT: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8" /><title>App</title><script>
addEventListener("message", function take({ source, data }) {
  if (source !== parent || typeof data?.html !== "string") return;
  removeEventListener("message", take);
  document.open();
  document.write(data.html);
  document.close();
});
parent.postMessage({ tabrelay: "frame-ready" }, "*");
</script></head><body></body></html>
"""


class AppFrameRoutes:
    """`GET /-/page/app-frame?csp={"connectDomains": […], …}`."""

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route(ROUTE, self._frame, methods=["GET", "HEAD"])

    async def _frame(self, request: Request, csp: str = "") -> Response:
        headers = {
            "Content-Security-Policy": app_policy(_read(csp)),
            "Permissions-Policy": PERMISSIONS,
            "X-Frame-Options": "SAMEORIGIN",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        return Response("" if request.method == "HEAD" else DOCUMENT, media_type="text/html", headers=headers)


def app_policy(csp: dict[str, list[str]]) -> str:
    """`csp`: as an app declares it, without sources that are none."""
    resources = " ".join(csp.get("resourceDomains", ()))

    def sources(kind: str) -> str:
        return " ".join(csp.get(kind, ())) or "'none'"

    rules = (
        # defence: the page of an app has an opaque origin
        "sandbox allow-scripts allow-forms",
        "default-src 'none'",
        f"script-src 'unsafe-inline' {resources}",
        f"style-src 'unsafe-inline' {resources}",
        f"img-src data: blob: {resources}",
        f"media-src data: blob: {resources}",
        f"font-src data: {resources}",
        # defence: the page of an app reaches the origins that it names
        f"connect-src {sources('connectDomains')}",
        f"frame-src {sources('frameDomains')}",
        f"base-uri {sources('baseUriDomains')}",
        "form-action 'none'",
        "frame-ancestors 'self'",
    )
    return "; ".join(rule.rstrip() for rule in rules)


def _read(text: str) -> dict[str, list[str]]:
    try:
        given: Any = orjson.loads(text) if text and len(text) <= MAX_CSP else {}
    except ValueError:
        given = {}
    return {kind: _sources(found) for kind, found in given.items()} if isinstance(given, dict) else {}


def _sources(given: Any) -> list[str]:
    # defence: rules in the origins of an app
    found = [one for one in given if isinstance(one, str) and _SOURCE.fullmatch(one)] if isinstance(given, list) else []
    return found[:MAX_ORIGINS]
