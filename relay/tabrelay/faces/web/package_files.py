"""Routes of Python packages: the index, and wheels under addresses that contain their hash.

The gate requires a token that may serve, since packages of a private index may be among them. Files are found and
checked in `assets.package_index`.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from tabrelay.assets.package_index import PackageError, PackageIndex
from tabrelay.assets.stored_file import StoredFile
from tabrelay.faces.web.routes import StoredFileResponse
from tabrelay.http.problems import problem_response


class PackageRoutes:
    """Handlers of `/-/packages/`."""

    def __init__(self, home: Path) -> None:
        self._index = PackageIndex(home)

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route("/-/packages/index.json", self._list, methods=["GET"])
        app.add_api_route("/-/packages/{sha256}/{file}", self._wheel, methods=["GET"])

    async def _list(self) -> Response:
        try:
            packages = await asyncio.to_thread(self._index.read)
        except PackageError as problem:
            return problem_response(503, "packages_damaged", str(problem))
        return JSONResponse({"packages": [asdict(package) for package in packages.values()]})

    async def _wheel(self, sha256: str, file: str) -> Response:
        try:
            path = await asyncio.to_thread(self._index.find, sha256, file)
        except PackageError:
            path = None
        if path is None:
            return problem_response(404, "not_found", "The relay has no such package.")
        # The worker compares the hash: a file that was replaced on disk is not used.
        headers = {"Content-Type": "application/zip", "Cache-Control": "private, max-age=31536000, immutable"}
        return StoredFileResponse(await asyncio.to_thread(StoredFile, path), headers)
