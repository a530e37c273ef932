"""Routes of the playground (`/-/demo/playground/`): its page, and the sandboxed frame in which a visitor's code runs.

The page has the policy of the relay's other pages and one more rule: it may embed the frame's document, and no other.
The frame's document has a policy with `sandbox`, so its origin is opaque however it is opened: it has no storage, no
keys and no token of the relay. It may load the runtime (`/-/assets/`) and nothing else, and navigate nowhere:
`frame-src` of the page applies to that. Does not decide who may use the routes: `admission/routes.py` does.
"""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import FastAPI, Request, Response

from tabrelay.assets.files import Assets
from tabrelay.faces.web.routes import PAGE_HEADERS, SHARED, file_response, own_address

ROUTE: Final = "/-/demo/playground"
FRAME: Final = f"{ROUTE}/frame/"
FRAME_PAGE: Final = f"{FRAME}frame.html"

PERMISSIONS: Final = (
    "camera=(), clipboard-read=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"
)


class PlaygroundRoutes:
    """The page and its frame."""

    def __init__(self, assets: Assets, public_url: str) -> None:
        self._assets = assets
        self._public_url = public_url

    def add_routes(self, app: FastAPI) -> None:
        methods = ["GET", "HEAD"]
        app.add_api_route(ROUTE, self._folder, methods=methods)
        app.add_api_route(f"{ROUTE}/", self._page, methods=methods)
        app.add_api_route(f"{FRAME}{{path:path}}", self._frame, methods=methods)

    async def _folder(self) -> Response:
        return Response(status_code=308, headers={"Location": f"{ROUTE}/"})

    async def _page(self, request: Request) -> Response:
        address = own_address(request, self._public_url)
        # defence: the playground embeds its frame and nothing else
        rules = f"{PAGE_HEADERS['Content-Security-Policy']}; frame-src {address}{FRAME_PAGE}"
        page = await asyncio.to_thread(self._assets.lookup, "demo/playground/index.html")
        return file_response(page, request, {**PAGE_HEADERS, "Content-Security-Policy": rules})

    async def _frame(self, path: str, request: Request) -> Response:
        headers = {
            **SHARED,
            "Content-Security-Policy": frame_policy(own_address(request, self._public_url)),
            "Permissions-Policy": PERMISSIONS,
            "X-Frame-Options": "SAMEORIGIN",
        }
        asset = await asyncio.to_thread(self._assets.lookup, f"demo/playground/frame/{path}")
        return file_response(asset, request, headers)


def frame_policy(address: str) -> str:
    """Without `report-uri`: code of visitors that tries what it must not is no fault of a page."""
    return "; ".join(
        (
            # defence: the playground's frame has an opaque origin
            "sandbox allow-scripts",
            "default-src 'none'",
            f"script-src {address}/-/ blob: 'wasm-unsafe-eval'",
            "worker-src blob:",
            # defence: the playground's frame sends no requests
            f"connect-src {address}/-/assets/ {address}/-/manifest.json {address}{FRAME}",
            f"style-src {address}{FRAME} 'unsafe-inline'",
            "img-src data: blob:",
            "media-src data: blob:",
            "font-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'self'",
        )
    )
