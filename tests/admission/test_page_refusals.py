"""Refused pages: a bounded list with commands that can be pasted, and few lines in the log."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

import pytest

from tabrelay.admission import page_refusals
from tabrelay.admission.page_refusals import LOG_BURST, MAX_KEPT, MAX_TEXT, PageRefusals
from tabrelay.admission.policy import Refuse
from tabrelay.config.settings import Settings
from tests.support.web_routes import Clock

APP = "http://localhost:5173"
FOREIGN = Refuse(403, "forbidden", f"Pages of {APP} may not use this relay.")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pages(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> PageRefusals:
    monkeypatch.setattr(page_refusals, "command", lambda: "tabrelay")
    return PageRefusals(Settings(home=tmp_path, servers=("notes",)), clock)


def everything(server: str) -> bool:
    return True


def test_a_plain_page_is_shown_with_the_command_that_admits_it(pages: PageRefusals, clock: Clock) -> None:
    pages.record(APP, "other", FOREIGN, is_socket=True)
    clock.now += 2
    [page] = pages.recent(everything)
    assert page == {
        "origin": APP,
        "server": "other",
        "kind": "origin",
        "message": FOREIGN.message,
        "command": f"tabrelay serve notes --plain other --allow-origin {APP}",
        "count": 1,
        "last_s": 2.0,
    }
    assert pages.recent(lambda server: server == "notes") == []
    pages.admitted(APP, "other")
    assert pages.recent(everything) == []


def test_a_command_repeats_what_the_relay_was_started_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_refusals, "command", lambda: shlex.quote("/opt/my tools/tabrelay"))
    origins = ("https://app.example",)
    settings = Settings(home=tmp_path, servers=("notes", "old"), plain=("old",), allow_origins=origins, port=9000)
    pages = PageRefusals(settings)
    pages.record("http://[::1]:5173", "notes", FOREIGN, is_socket=False)
    words = shlex.split(pages.recent(everything)[0]["command"])
    assert words == [
        *("/opt/my tools/tabrelay", "serve", "notes", "--plain", "old"),
        *("--allow-origin", "https://app.example", "--allow-origin", "http://[::1]:5173", "--port", "9000"),
    ]


@pytest.mark.parametrize(
    ("reason", "kind", "has_token", "command"),
    [
        ("unauthorized", "token", True, "tabrelay pairs"),
        ("taken", "name", True, ""),
        ("bad_name", "name", False, ""),
        ("hello", "protocol", True, "tabrelay pairs"),
    ],
)
def test_each_kind_of_refusal_has_its_advice(
    pages: PageRefusals, reason: str, kind: str, has_token: bool, command: str
) -> None:
    pages.record(APP, "notes", Refuse(403, reason, "No."), is_socket=True, has_token=has_token)
    [page] = pages.recent(everything)
    assert (page["kind"], page["command"]) == (kind, command)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://x; rm -rf ~",
        "http://evil.example/$(id)",
        "HTTP://LOCALHOST:1",
        "http://a\x1b[31m",
        "http://\u202e",
    ],
)
def test_an_origin_that_no_browser_sends_gets_no_command_and_is_printable(pages: PageRefusals, origin: str) -> None:
    pages.record(origin, "notes", FOREIGN, is_socket=True)
    assert [page["command"] for page in pages.recent(everything)] == [""]
    pages.admitted(origin, "notes")
    pages.record(origin, "notes\x1b[2J", Refuse(403, "forbidden", f"Pages of {origin} {'x' * 9999}"), is_socket=True)
    [page] = pages.recent(everything)
    assert page["command"] == ""
    assert page["origin"].isprintable() and page["server"].isprintable() and page["message"].isprintable()
    assert page["origin"].isascii() and len(page["message"]) == MAX_TEXT


def test_the_list_is_bounded_and_the_latest_come_first(pages: PageRefusals) -> None:
    for number in range(MAX_KEPT + 10):
        pages.record(f"http://localhost:{number + 1}", "notes", FOREIGN, is_socket=True)
    pages.record(f"http://localhost:{MAX_KEPT}", "notes", FOREIGN, is_socket=True)
    shown = pages.recent(everything)
    assert len(shown) == MAX_KEPT
    assert (shown[0]["origin"], shown[0]["count"]) == (f"http://localhost:{MAX_KEPT}", 2)
    pages.record("http://" + "x" * 5000, "n" * 5000, FOREIGN, is_socket=True)
    assert len(pages.recent(everything)[0]["origin"]) == len(pages.recent(everything)[0]["server"]) == 100


def test_the_log_names_the_origin_and_the_command_and_is_not_filled(
    pages: PageRefusals, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(100):
        pages.record(APP, "notes", FOREIGN, is_socket=True)
    [line] = caplog.messages
    assert APP in line and f"To admit it: tabrelay serve --plain notes --allow-origin {APP}" in line
    for number in range(100):
        pages.record(f"http://localhost:{number + 1}", "notes", FOREIGN, is_socket=True)
    assert len(caplog.messages) == LOG_BURST
    clock.now += 61
    pages.record(APP, "notes", FOREIGN, is_socket=True)
    assert len(caplog.messages) == LOG_BURST + 1


@pytest.mark.parametrize("reason", ["draining", "busy", "rate_limited"])
def test_what_passes_by_itself_is_not_in_the_list(pages: PageRefusals, reason: str) -> None:
    pages.record(APP, "notes", Refuse(503, reason, "Later."), is_socket=True)
    assert pages.recent(everything) == []
