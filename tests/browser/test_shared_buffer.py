"""Texts that JavaScript writes into Python's memory: the same characters arrive, also if they do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tabserver.browser.shared_buffer import SIZE, SharedBuffer
from tests.support.nodejs import node
from tests.support.paths import SUPPORT

SCRIPT = SUPPORT / "shared_buffer.mjs"


@pytest.mark.parametrize("text", ["", '{"t":"ack","a":1}', "header\npayload", "äöü 👍", "x" * SIZE])
def test_python_reads_what_is_in_the_shared_buffer(text: str) -> None:
    buffer, written = SharedBuffer(), text.encode()
    buffer.memory[:5] = b"older"
    buffer.memory[: len(written)] = written
    assert buffer.read(len(written)) == text


async def test_what_fits_is_written_and_what_does_not_is_handed_over(tmp_path: Path) -> None:
    fits = ["short", "exactly 16 bytes", "", "ä" * 8, "👍" * 4]
    too_long = ["exactly 17 bytes!", "ä" * 9, "👍" * 4 + "!", "x" * 1000]
    file = tmp_path / "frames.json"
    file.write_text(json.dumps([*fits, *too_long]))
    ended = await node(SCRIPT, file)
    assert ended.code == 0, ended.err
    said = json.loads(ended.out)
    assert said["received"] == [[len(text.encode()), text] for text in fits] + [[text, None] for text in too_long]
    assert said["released"] == 1, "the view of memory that has moved was not released"
