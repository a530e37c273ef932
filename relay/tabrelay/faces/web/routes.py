"""FastAPI application for `/` and `/-/`: the relay's page, static files, demo, health, status and the WebSocket probe.

The gate has decided who may use these routes. They are not hot paths, so they are plain FastAPI routes, without its
documentation pages. Pairing, admin and other route groups are added by the caller; MCP is not served here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol
from urllib.parse import urlsplit

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as RoutingException
from starlette.types import Receive, Scope, Send

from tabrelay import __version__
from tabrelay.admission.policy import Refuse
from tabrelay.admission.routes import is_page_request
from tabrelay.assets.files import LOADER, Asset, Assets, AssetsMissing
from tabrelay.assets.stored_file import CHUNK, StoredFile
from tabrelay.calls.principal import Principal
from tabrelay.errors import BadRequest
from tabrelay.faces.web.app_frame import ROUTE as APP_FRAME
from tabrelay.faces.web.csp_reports import ROUTE as REPORTS
from tabrelay.http.headers import RequestHeaders
from tabrelay.http.json_body import refuse_body
from tabrelay.http.problems import problem_response
from tabserver.wire.errors import ServerNameError
from tabserver.wire.names import check_server_name

PAGE_CSP = (
    # defence: scripts in the relay's pages
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; worker-src 'self'; font-src 'self'; "
    f"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; report-uri {REPORTS}"
)
# A SharedWorker is subject to the policy of its own script, not to that of the page that started it.
WORKER_CSP = f"default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; report-uri {REPORTS}"
PAGE_HEADERS = {
    "Content-Security-Policy": PAGE_CSP,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "X-Frame-Options": "DENY",
}

SHARED = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}


class StoredFileResponse(Response):
    """A file that is read while it is sent: one piece of it is in memory at a time."""

    def __init__(self, file: StoredFile, headers: dict[str, str]) -> None:
        super().__init__(headers={**headers, "Content-Length": str(len(file))})
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        offset = 0
        while scope["method"] != "HEAD" and offset < len(self._file):
            # In a thread, because a disk may be slow.
            chunk = await asyncio.to_thread(self._file.read, offset, CHUNK)
            if not chunk:
                raise OSError("a file became shorter while it was sent")
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            offset += len(chunk)
        await send({"type": "http.response.body", "body": b""})


class RouteGroup(Protocol):
    """An object that adds routes to the application."""

    def add_routes(self, app: FastAPI) -> None: ...


Status = Callable[[Principal], Awaitable[bytes]]
Probe = Callable[[Principal, str], Refuse | None]


def web_app(
    assets: Assets,
    status: Status,
    *,
    groups: Iterable[RouteGroup] = (),
    probe: Probe | None = None,
    is_draining: Callable[[], bool] = lambda: False,
    public_url: str = "",
) -> FastAPI:
    """The application for ``/`` and ``/-/``. `groups` add further routes; `probe` may refuse a principal a name that
    its token would allow."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.add_exception_handler(404, not_found)
    app.add_exception_handler(405, _method_not_allowed)
    app.add_exception_handler(RequestValidationError, _invalid_query)
    app.add_exception_handler(BadRequest, refuse_body)
    _add_information(app, assets, status, probe, is_draining)
    for room in groups:
        room.add_routes(app)
    _add_files(app, assets, public_url)
    _add_address_page(app, assets)
    return app


def _add_information(
    app: FastAPI, assets: Assets, status: Status, probe: Probe | None, is_draining: Callable[[], bool]
) -> None:
    @app.api_route("/-/healthz", methods=["GET", "HEAD"])
    async def healthz() -> Response:
        status_text, status_code = ("draining", 503) if is_draining() else ("ok", 200)
        body = {"status": status_text, "build": assets.build, "version": __version__}
        return JSONResponse(body, status_code, headers={**SHARED, "Cache-Control": "no-store"})

    @app.api_route("/-/manifest.json", methods=["GET", "HEAD"])
    async def manifest() -> Response:
        headers = {**SHARED, "Cache-Control": "no-cache"}
        try:
            # Hashing a runtime of 15 MB the first time must not delay running calls.
            return JSONResponse(await asyncio.to_thread(assets.manifest), headers=headers)
        except AssetsMissing as missing:
            return problem_response(503, "assets_missing", str(missing), headers)

    @app.get("/-/status")
    async def current(request: Request) -> Response:
        return Response(await status(request.scope["state"]["principal"]), media_type="application/json")

    @app.get("/-/probe/{server:path}")
    async def may_serve(server: str, request: Request) -> Response:
        """Reason for a refused WebSocket: browsers do not expose it to pages, so the page asks here."""
        try:
            check_server_name(server)
        except ServerNameError as problem:
            return problem_response(403, "forbidden", str(problem))
        refusal = probe(request.scope["state"]["principal"], server) if probe else None
        if refusal is not None:
            return problem_response(refusal.status, refusal.reason, refusal.message)
        return Response(status_code=204)


def _add_files(app: FastAPI, assets: Assets, public_url: str) -> None:
    async def index(request: Request) -> Response:
        # defence: the console embeds the frame of apps and nothing else
        rules = f"{PAGE_CSP}; frame-src {own_address(request, public_url)}{APP_FRAME}"
        headers = {**PAGE_HEADERS, "Content-Security-Policy": rules}
        return file_response(await asyncio.to_thread(assets.index), request, headers)

    async def demo_folder() -> Response:
        return Response(status_code=308, headers={"Location": "/-/demo/"})

    async def own(path: str, request: Request) -> Response:
        inside = request.url.path.removeprefix("/-/")
        return file_response(await asyncio.to_thread(assets.lookup, inside), request, PAGE_HEADERS)

    async def icon(request: Request) -> Response:
        # Browsers request this name whatever the page declares; they use the content type, not the suffix.
        return file_response(await asyncio.to_thread(assets.lookup, "page/favicon.svg"), request, {})

    async def shared(path: str, request: Request) -> Response:
        headers = {**SHARED, "Content-Security-Policy": WORKER_CSP}
        return file_response(await asyncio.to_thread(assets.lookup, path), request, headers)

    async def loader(request: Request) -> Response:
        """The loader script that an app on another origin hosts, with the address of this relay in it."""
        asset = await asyncio.to_thread(assets.loader, own_address(request, public_url))
        return file_response(asset, request, {**SHARED, "Content-Security-Policy": WORKER_CSP})

    app.add_api_route(f"/-/{LOADER}", loader, methods=["GET", "HEAD"])
    app.add_api_route("/", index, methods=["GET", "HEAD"])
    app.add_api_route("/favicon.ico", icon, methods=["GET", "HEAD"])
    app.add_api_route("/-/demo", demo_folder, methods=["GET", "HEAD"])
    app.add_api_route("/-/demo/{path:path}", own, methods=["GET", "HEAD"])
    app.add_api_route("/-/page/{path:path}", own, methods=["GET", "HEAD"])
    app.add_api_route("/-/{path:path}", shared, methods=["GET", "HEAD"])


def own_address(request: Request, public_url: str) -> str:
    """The relay's address as this request has it."""
    # The gate has compared Host with the exact list, so an address can be built from it.
    host = request.headers["host"].strip()
    is_public = host == urlsplit(public_url).netloc  # behind a proxy, which may terminate TLS
    return public_url if is_public else f"{request.scope['scheme']}://{host}"


def file_response(asset: Asset | None, request: Request, headers: dict[str, str]) -> Response:
    """RFC 9110 §8.8.3: two encodings of one file are two representations, so each has its own strong ETag."""
    if asset is None:
        if is_page_request(RequestHeaders(request.scope["headers"])):
            raise HTTPException(404)
        return problem_response(404, "not_found", "No such file.", headers)
    accepted = _accepted_codings(request.headers.get("accept-encoding", ""))
    coding = next((coding for coding in asset.encoded if coding in accepted), None)
    etag = f'"{asset.etag}-{coding}"' if coding else f'"{asset.etag}"'
    headers = {
        **headers,
        "ETag": etag,
        "Cache-Control": "public, max-age=31536000, immutable" if asset.immutable else "no-cache",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    if asset.encoded:
        headers["Vary"] = "Accept-Encoding"
    if _matches(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    if coding:
        headers["Content-Encoding"] = coding
    headers["Content-Type"] = asset.mime
    body = asset.encoded[coding] if coding else asset.body
    return Response(body, headers=headers) if isinstance(body, bytes) else StoredFileResponse(body, headers)


def _accepted_codings(header: str) -> set[str]:
    """Those that are named, unless their quality is 0. Programs that send `*` get the file as it is."""
    accepted: set[str] = set()
    for part in header.split(","):
        coding, _, quality = part.replace(" ", "").lower().partition(";q=")
        if not quality or quality.strip("0."):
            accepted.add(coding)
    return accepted


def _matches(header: str, etag: str) -> bool:
    """RFC 9110 §13.1.2: If-None-Match compares weakly."""
    given = [part.strip().removeprefix("W/") for part in header.split(",")]
    return etag in given or "*" in given


def _add_address_page(app: FastAPI, assets: Assets) -> None:
    """The page that a person gets who opens the address of an MCP server in a browser; the same for every name."""

    async def address(path: str, request: Request) -> Response:
        # Other requests for such paths do not come here; one for a path of the relay itself finds nothing.
        if not request.scope.get("state", {}).get("is_page"):
            return await not_found(request, LookupError())
        found = file_response(await asyncio.to_thread(assets.lookup, "page/mcp.html"), request, PAGE_HEADERS)
        found.headers["Vary"] = "Accept, Accept-Encoding"  # the same address answers MCP clients
        found.headers["Cache-Control"] = "no-store"
        return found

    app.add_api_route("/{path:path}", address, methods=["GET"])


async def _method_not_allowed(request: Request, error: Exception) -> Response:
    headers = error.headers if isinstance(error, RoutingException) else None
    return problem_response(405, "method_not_allowed", f"This route has no method {request.method}.", headers)


async def _invalid_query(request: Request, error: Exception) -> Response:
    return problem_response(400, "invalid_request", "The query is not what this route expects.")


async def not_found(request: Request, error: Exception) -> Response:
    return problem_response(404, "not_found", "The relay has nothing here.")
