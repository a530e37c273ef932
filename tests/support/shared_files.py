"""What is the same for every relay and client of a test process, made once: assets, root certificates, and what
FastAPI finds out about the parameters of each route.

A pytest plugin. To compress the assets takes 50 ms of CPU time, to load the certificates 30 ms, to inspect fifty routes
20 ms, and tests start a thousand relays with a client each. Assets are read again after a new snapshot was made.
Processes that tests start make their own.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import ssl
from collections.abc import Callable
from typing import Any

import fastapi.routing
import httpcore2
import pytest

from tabrelay.assets.files import Assets


@functools.lru_cache(maxsize=1)
def _assets(snapshot_ns: int) -> Assets:
    return Assets.find()


def shared_assets() -> Assets:
    """What `Assets.find` returns; stable names follow the files on disk there too."""
    try:
        snapshot_ns = (Assets.find().pyodide.parent / "snapshot" / "snapshot.json").stat().st_mtime_ns
    except OSError:  # not made yet
        snapshot_ns = 0
    return _assets(snapshot_ns)


def pytest_configure(config: pytest.Config) -> None:
    load = httpcore2.default_ssl_context

    @functools.lru_cache(maxsize=4)
    def loaded(trust_env: bool, file: str | None, folder: str | None) -> ssl.SSLContext:
        return load(_trust_env=trust_env)

    def shared(*, _trust_env: bool = True) -> ssl.SSLContext:
        return loaded(_trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

    httpcore2.default_ssl_context = shared
    routing: Any = fastapi.routing
    routing.get_dependant = _with_memory(routing.get_dependant)


def _with_memory(inspect: Callable[..., Any]) -> Callable[..., Any]:
    """Routes of two relays are different functions with the same code, and so the same parameters."""
    known: dict[object, Any] = {}

    def get_dependant(*, path: str, call: Callable[..., Any], **more: Any) -> Any:
        code = getattr(getattr(call, "__func__", call), "__code__", None)
        key = (path, code, *more.items())
        if code is None or key not in known:
            known[key] = inspect(path=path, call=call, **more)
        return dataclasses.replace(known[key], call=call)

    return get_dependant
