"""The canary itself: it sings when a token is written, and only then."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

import pytest

from tabrelay import vault
from tests import canary


@pytest.fixture(autouse=True)
def _quiet_before() -> None:
    canary.leaks()


@pytest.mark.parametrize("form", ["{}", "Authorization: Bearer {}", '{{"token": "{}"}}', "x={}&y", "a{}"])
def test_a_token_is_found_wherever_it_stands(form: str) -> None:
    token = vault.new_secret()
    canary.saw("here", form.format(token))
    assert canary.leaks() == ["here"]


def test_a_token_is_found_as_a_websocket_carries_it() -> None:
    token = vault.new_secret()
    canary.saw("there", "bearer." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("="))
    assert canary.leaks() == ["there"]


def test_what_only_looks_like_one_is_none(tmp_path: Path) -> None:
    canary.saw("here", "tr_" + "x" * 43)
    (tmp_path / "token").write_text(vault.new_secret())
    canary.saw_files(tmp_path)
    assert canary.leaks() == []


def test_files_beside_the_token_are_searched(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "relay.log").write_text(vault.new_secret())
    canary.saw_files(tmp_path)
    assert canary.leaks() == ["relay.log"]


def test_what_a_logger_says_passes_the_products_own_formatter() -> None:
    token = vault.new_secret()
    logging.getLogger("tabrelay.somewhere").warning("Authorization: Bearer %s", token)
    assert canary.leaks() == []  # taken out
    encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    logging.getLogger("tabrelay.somewhere").warning("in another form: %s", encoded)
    assert canary.leaks() == ["log of tabrelay.somewhere"]  # the formatter does not know it; the canary does


def test_every_exemption_is_of_a_test_that_exists() -> None:
    tests = "\n".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    for prefixes in canary.SHOWN.values():
        for prefix in prefixes:
            assert f"def {prefix}" in tests, prefix
