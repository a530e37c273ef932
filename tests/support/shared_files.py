"""Files that are the same for every relay and client of a test process, read once: assets and root certificates.

A pytest plugin. To compress the assets takes 50 ms of CPU time, to load the certificates 30 ms, and tests start a
thousand relays with a client each. Assets are read again after a new snapshot was made. Processes that tests start
read their own.
"""

from __future__ import annotations

import functools
import os
import ssl

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
