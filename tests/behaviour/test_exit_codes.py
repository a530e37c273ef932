"""Exit codes of all commands: the table of docs/reference/cli.md, and a command for each code."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tabrelay.cli import output
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"
BLOCK = re.compile(r"(?<=<!-- codes -->\n).*?(?=<!-- /codes -->)", re.DOTALL)
WAIT_S = 60.0


def generated() -> str:
    rows = "\n".join(f"| {code} | {about} |" for code, about in output.CODES.items())
    return f"| code | meaning |\n|---|---|\n{rows}\n"


def test_the_page_has_the_table_of_the_program() -> None:
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        text = BLOCK.sub(lambda _: generated(), text)
        PAGE.write_text(text, encoding="utf-8")
    assert BLOCK.findall(text) == [generated()]


def ended(home: Path, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tabrelay", *words, "--home", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


def test_every_command_has_an_exit_code_for_its_result(tmp_path: Path, free_port: str) -> None:
    assert ended(tmp_path, "token")[0] == output.OK
    assert ended(tmp_path, "pairs", "revoke", "nothing")[0] == output.FAILED
    assert ended(tmp_path, "forget", "nothing")[0] == output.FAILED
    assert ended(tmp_path, "token", "new")[0] == output.USAGE
    for words in (["status"], ["pair"], ["stop"], ["restart"], ["reconnect", "x"], ["tools", "x"], ["call", "x", "y"]):
        code, err = ended(tmp_path, *words, "--port", free_port)
        assert code == output.UNREACHABLE, (words, err)
        *lines, more = err.splitlines()
        assert 1 <= len(lines) <= 2 and more.endswith((" help TR302", " help TR501")), (words, err)


def test_a_reader_that_closes_the_pipe_gets_no_traceback(tmp_path: Path) -> None:
    log = tmp_path / "relay.log"
    log.write_text('{"message": "one"}\n' * 20_000)
    command = [sys.executable, "-m", "tabrelay", "logs", "-n", "0", "--file", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(WAIT_S) == output.CLOSED_PIPE


def test_ctrl_c_ends_a_command_without_a_traceback(tmp_path: Path) -> None:
    log = tmp_path / "relay.log"
    log.write_text('{"message": "begun"}\n')
    command = [sys.executable, "-m", "tabrelay", "logs", "-f", "--file", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert b"begun" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
        assert process.wait(WAIT_S) == output.INTERRUPTED
