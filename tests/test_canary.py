"""The canary: it reports every token that is written, and nothing else."""

from __future__ import annotations

import base64
import logging
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tabrelay.admission.pairing_codes import PairingCodes
from tabrelay.system import private_files
from tests import canary
from tests.support.demo import Demo


@pytest.fixture(autouse=True)
def _quiet_before() -> None:
    canary.leaks()


@pytest.mark.parametrize("form", ["{}", "Authorization: Bearer {}", '{{"token": "{}"}}', "x={}&y", "a{}"])
def test_a_token_is_found_at_any_place(form: str) -> None:
    token = private_files.new_secret()
    canary.saw("here", form.format(token))
    assert canary.leaks() == ["here"]


def test_a_token_is_found_as_a_websocket_carries_it() -> None:
    token = private_files.new_secret()
    canary.saw("there", "bearer." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("="))
    assert canary.leaks() == ["there"]


def test_codes_and_signed_tokens_are_secrets_too() -> None:
    code = PairingCodes().mint(None, 60.0, 0.0)
    canary.saw("here", f"http://127.0.0.1/#pair={code}&x")
    assert canary.leaks() == ["here"]
    canary.register("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlLW9mLWl0")
    canary.saw("there", "its end was c2lnbmF0dXJlLW9mLWl0.")
    assert canary.leaks() == ["there"]


async def test_a_token_that_a_relay_in_another_process_made_is_known(tmp_path: Path) -> None:
    async with Demo(tmp_path / "home") as demo:
        parts = urlsplit(demo.url)
        origin = f"{parts.scheme}://{parts.netloc}"
        async with httpx2.AsyncClient(trust_env=False) as http:
            asked = {"code": parts.fragment.removeprefix("pair=")}
            token = (await http.post(f"{origin}/-/pair", json=asked, headers={"Origin": origin})).json()["token"]
    assert canary.leaks() == []
    canary.saw("here", f"the page has {token}")
    assert canary.leaks() == ["here"]


def test_a_token_on_a_command_line_is_found() -> None:
    program = [sys.executable, "-c", "print(flush=True); input()", private_files.new_secret()]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # for a moment after its start, a process has no command line yet
        canary.saw_processes()
        process.communicate(b"\n")
    assert canary.leaks() == ["a command line"]


def test_what_only_looks_like_one_is_none(tmp_path: Path) -> None:
    canary.saw("here", "tr_" + "x" * 43)
    (tmp_path / "token").write_text(private_files.new_secret())
    canary.saw_files(tmp_path)
    assert canary.leaks() == []


def test_files_beside_the_token_are_searched(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "relay.log").write_text(private_files.new_secret())
    canary.saw_files(tmp_path)
    assert canary.leaks() == ["relay.log"]


def test_messages_of_a_logger_pass_the_products_own_formatter() -> None:
    token = private_files.new_secret()
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
