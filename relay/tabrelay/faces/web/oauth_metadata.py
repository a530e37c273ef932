"""OAuth protected resource metadata (RFC 9728): `/.well-known/oauth-protected-resource…`.

Tells clients which authorization server issues tokens for a server of this relay. Without OAuth the routes answer 404.
Tokens are verified in `admission.oauth`, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, RedirectResponse

from tabrelay.admission.routes import MCP, WELL_KNOWN
from tabrelay.http.problems import problem_response

if TYPE_CHECKING:
    from tabrelay.admission.oauth import TokenVerifier


class OAuthMetadata:
    """Metadata of the relay and of each of its servers."""

    def __init__(self, resource: TokenVerifier | None) -> None:
        """None: this relay accepts its own tokens only, and has no metadata."""
        self._resource = resource

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route(WELL_KNOWN, self._relay, methods=["GET"])
        app.add_api_route(WELL_KNOWN + "/{server}", self._server, methods=["GET"])
        app.add_api_route(WELL_KNOWN + "/{server}/" + MCP, self._server_mcp, methods=["GET"])
        # Clients of 2025-03-26 do not use RFC 9728: they request the authorization server's metadata from the resource
        # server.
        app.add_api_route("/.well-known/oauth-authorization-server", self._redirect_to_issuer, methods=["GET"])

    async def _relay(self) -> Response:
        return self._answer(None)

    async def _server(self, server: str) -> Response:
        return self._answer(server)

    async def _server_mcp(self, server: str) -> Response:
        return self._answer(server, MCP)

    def _answer(self, server: str | None, place: str = "") -> Response:
        about = self._resource.metadata(server, place) if self._resource is not None else None
        if about is None:
            return problem_response(404, "not_found", "The relay has nothing here.")
        return JSONResponse(about, headers={"Cache-Control": "max-age=300"})

    async def _redirect_to_issuer(self) -> Response:
        if self._resource is None:
            return self._answer(None)
        parts = urlsplit(self._resource.issuer)
        path = f"/.well-known/oauth-authorization-server{parts.path.rstrip('/')}"
        return RedirectResponse(f"{parts.scheme}://{parts.netloc}{path}", 307)
