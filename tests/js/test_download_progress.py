"""Progress of the download of Python: the bytes of the download and their sum, also for compressed files."""

from __future__ import annotations

import json

import pytest

from tests.support.nodejs import node
from tests.support.paths import SUPPORT


@pytest.mark.parametrize(
    ("encoding", "length", "total", "most"),
    [("", "2400", 2400, 2400), ("zstd", "800", 800, 800), ("zstd", "300", 300, 300), ("", "", None, 2400)],
)
async def test_progress_is_counted_in_bytes_of_the_download(
    encoding: str, length: str, total: int | None, most: int
) -> None:
    ended = await node(SUPPORT / "download_progress.mjs", encoding, length)
    assert ended.code == 0, ended.err
    reports = json.loads(ended.out)
    loaded = [report[0] for report in reports]
    assert reports and {report[1] for report in reports} == {total}
    assert loaded == sorted(loaded) and 0 < loaded[0] <= loaded[-1] <= most
