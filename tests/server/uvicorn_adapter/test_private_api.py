"""The check of the libraries' private API, and the relay's fallback when it fails."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import Protocol

from tabrelay.config.settings import Settings
from tabrelay.server.uvicorn_adapter import private_api
from tabrelay.server.uvicorn_adapter.configuration import configure
from tabrelay.server.uvicorn_adapter.guarded_http import GuardedHttp
from tabrelay.server.uvicorn_adapter.guarded_websocket import GuardedWebSocket
from tabrelay.server.uvicorn_adapter.http_protocol import HttpProtocol
from tabrelay.server.uvicorn_adapter.websocket_protocol import WebSocketProtocol


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise NotImplementedError


def classes(home: Path) -> tuple[type, type]:
    config = configure(app, Settings(home=home))
    config.load()
    http: Any = config.http_protocol_class
    websocket: Any = config.ws_protocol_class
    return http.__mro__[1], websocket


def test_the_installed_libraries_fit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert private_api.http_misfit() is None
    assert private_api.websocket_misfit() is None
    assert classes(tmp_path) == (HttpProtocol, WebSocketProtocol)
    assert not [record for record in caplog.records if record.name.startswith("tabrelay")]


@pytest.mark.parametrize("name", [*private_api.HTTP_METHODS, "RequestResponseCycle"])
def test_a_method_of_uvicorns_http_that_is_gone_or_takes_something_else_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(self: Any, something_else: Any = None) -> None: ...

    if name == "RequestResponseCycle":
        monkeypatch.setattr(RequestResponseCycle, "__init__", other)
        assert private_api.http_misfit() == "RequestResponseCycle.__init__ takes (something_else)"
    else:
        monkeypatch.setattr(HttpToolsProtocol, name, other)
        assert private_api.http_misfit() == f"HttpToolsProtocol.{name} takes (something_else)"
    assert private_api.websocket_misfit() is None


@pytest.mark.parametrize("name", private_api.WEBSOCKET_METHODS)
def test_a_method_of_uvicorns_websockets_that_takes_something_else_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WebSocketsSansIOProtocol, name, lambda self, something_else: None)
    assert private_api.websocket_misfit() == f"WebSocketsSansIOProtocol.{name} takes (something_else)"
    assert private_api.http_misfit() is None


def test_a_method_of_the_websockets_library_that_is_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Protocol, "fail")
    assert private_api.websocket_misfit() == "ServerProtocol has no fail"


def without(monkeypatch: pytest.MonkeyPatch, kind: Any, name: str) -> None:
    """Removes this attribute from objects of this class."""
    make = kind.__init__

    def made(self: Any, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        make(self, config, server_state, app_state, _loop)
        vars(self).pop(name, None)

    monkeypatch.setattr(kind, "__init__", made)


@pytest.mark.parametrize("name", sorted(set(private_api.HTTP_ATTRIBUTES) - {"headers", "scope", "url"}))
def test_an_attribute_of_uvicorns_http_that_is_gone_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, HttpToolsProtocol, name)
    found = private_api.http_misfit()
    # The first request sets one of them again.
    assert found is None if name == "expect_100_continue" else found is not None and name in found


@pytest.mark.parametrize("name", private_api.WEBSOCKET_ATTRIBUTES)
def test_an_attribute_of_uvicorns_websockets_that_is_gone_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, WebSocketsSansIOProtocol, name)
    assert name in str(private_api.websocket_misfit())


def test_a_module_that_is_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_api, "WEBSOCKET_MODULE", "uvicorn.protocols.websockets.another_module")
    assert "another_module" in str(private_api.websocket_misfit())


def test_each_side_falls_back_alone_and_logs_that_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with monkeypatch.context() as changed:
        changed.delattr(HttpToolsProtocol, "_start_asgi_task")
        assert classes(tmp_path) == (GuardedHttp, WebSocketProtocol)
    [line] = [record.getMessage() for record in caplog.records if record.name.startswith("tabrelay")]
    assert "(HttpToolsProtocol has no _start_asgi_task)" in line and "HTTP connections" in line and "limits" in line
    caplog.clear()
    with monkeypatch.context() as changed:
        changed.delattr(WebSocketsSansIOProtocol, "keepalive_timeout")
        assert classes(tmp_path) == (HttpProtocol, GuardedWebSocket)
    [line] = [record.getMessage() for record in caplog.records if record.name.startswith("tabrelay")]
    assert "(WebSocketsSansIOProtocol has no keepalive_timeout)" in line and "WebSockets" in line and "limits" in line
