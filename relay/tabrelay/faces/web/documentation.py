"""Routes of the documentation: ``/-/docs/`` and the pages below it, and the page for addresses that lead nowhere.

Public, with the headers of the relay's own pages. A page's address ends with a slash; without one it is redirected,
because links in pages are relative. A browser that opens an address without a page gets the site's 404 page, other
programs get JSON, and so do all if no site was built. Does not find the files: `assets/docs_site` does.
"""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tabrelay.admission.routes import is_page_request
from tabrelay.assets.docs_site import DocsSite
from tabrelay.assets.files import Asset
from tabrelay.faces.web.routes import PAGE_HEADERS, file_response, not_found
from tabrelay.http.headers import RequestHeaders

ROOT: Final = "/-/docs/"


class DocsRoutes:
    """The site's routes, and the 404 page for people."""

    def __init__(self, site: DocsSite) -> None:
        self._site = site

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route(ROOT.rstrip("/"), self._folder, methods=["GET", "HEAD"])
        app.add_api_route(f"{ROOT}{{path:path}}", self._page, methods=["GET", "HEAD"])
        app.add_exception_handler(404, self._missing)

    async def _folder(self) -> Response:
        return Response(status_code=308, headers={"Location": ROOT})

    async def _page(self, path: str, request: Request) -> Response:
        asset, location = await asyncio.to_thread(self._find, path)
        if location is not None:
            return Response(status_code=308, headers={"Location": location})
        return await self._missing(request, LookupError()) if asset is None else self._send(asset, request)

    def _find(self, path: str) -> tuple[Asset | None, str | None]:
        asset = self._site.find(path)
        is_page = asset is None and not path.endswith("/") and self._site.find(f"{path}/") is not None
        return asset, f"{ROOT}{path}/" if is_page else None

    async def _missing(self, request: Request, error: Exception) -> Response:
        if is_page_request(RequestHeaders(request.scope["headers"])):
            page = await asyncio.to_thread(self._site.not_found)
            if page is not None:
                response = self._send(page, request)
                response.status_code = 404
                return response
        return await not_found(request, error)

    def _send(self, asset: Asset, request: Request) -> Response:
        return file_response(asset, request, PAGE_HEADERS)
