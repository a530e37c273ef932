"""Fetcher of text files for the worker, which asks the server each time whether a file has changed.

The browser's HTTP cache asks with ETag or Last-Modified and returns its copy if the server answers 304. The text is
what is compared, so a server with neither costs only bytes. Last-Modified has seconds: a file that was saved shortly
before its last answer is fetched whole, because a second save in the same second has the same date.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import js
from pyodide.ffi import JsException

_DATE_STEP_MS: Final = 2_000
_MOST_RECENT: Final = 1_024


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """The answer to a request for a file. `is_page`: it is HTML."""

    status: int
    is_page: bool
    text: str


class FileFetcher:
    """Fetches files; raises OSError if there is no answer in time."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_ms = timeout_s * 1000
        # Files whose date can't show another change.
        self._recent: set[str] = set()

    async def __call__(self, url: str) -> FetchedFile:
        # defence: two saves of a file within one second
        cache = "reload" if url in self._recent else "no-cache"
        try:
            response = await js.fetch(url, cache=cache, signal=js.AbortSignal.timeout(self._timeout_ms))
            self._note_date(url, response.headers)
            is_page = str(response.headers.get("content-type") or "").lower().startswith("text/html")
            text = str(await response.text()) if response.ok and not is_page else ""
            return FetchedFile(int(response.status), is_page, text)
        except JsException as error:
            raise OSError(str(error)) from error

    def _note_date(self, url: str, headers: Any) -> None:
        changed = headers.get("last-modified")
        # A server on another origin does not show its Date and its ETag.
        now_ms = js.Date.parse(headers.get("date")) if headers.get("date") else js.Date.now()
        is_recent = changed and not headers.get("etag") and now_ms - js.Date.parse(changed) < _DATE_STEP_MS
        if not is_recent:
            self._recent.discard(url)
        elif len(self._recent) < _MOST_RECENT:
            self._recent.add(url)
