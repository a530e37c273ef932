"""Pages that the relay refused lately: origin, server, reason and the command that admits them.

A browser shows a page only that its WebSocket failed, so the relay tells its user: one log line, on the terminal too,
for each origin, server and kind in a minute, and a short list for the status. Origins and names come from programs that
were not admitted: they are made printable, shortened, counted together and evicted. A command is shown only for an
origin in the form that browsers send, quoted for a shell.

Does not refuse anything: the gate and the browsers' endpoint do, and call `record`.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tabrelay.admission.policy import Refuse
from tabrelay.admission.rate_limiter import RateLimiter
from tabrelay.admission.routes import Route
from tabrelay.calls.principal import SERVE
from tabrelay.config.settings import DEFAULT_PORT, Settings
from tabrelay.http.addresses import PolicyError, parse_origin
from tabrelay.http.headers import RequestHeaders
from tabrelay.payloads.printable_text import printable
from tabrelay.system.program import command
from tabserver.wire.errors import ServerNameError
from tabserver.wire.frames import BEARER_PREFIX
from tabserver.wire.names import check_server_name

log = logging.getLogger(__name__)

MAX_KEPT: Final = 32  # pages in the list; the one that was refused longest ago is dropped first
MAX_TEXT: Final = 300  # characters of a reason
MAX_COUNT: Final = 1_000_000
LOG_EVERY_S: Final = 60.0  # for one page
LOG_BURST: Final = 10  # for all pages, then one line in six seconds
LOG_PER_S: Final = 1 / 6
# A page that is refused for these is not told apart from others, or gets in by itself.
TEMPORARY: Final = frozenset({"draining", "busy", "rate_limited"})
KINDS: Final = {
    "forbidden": "origin",
    "unauthorized": "token",
    "taken": "name",
    "reserved": "name",
    "configured": "name",
    "bad_name": "name",
}


@dataclass(slots=True)
class RefusedPage:
    """Refusals of one origin for one server and one kind. `command`: what admits its pages; empty if nothing does."""

    origin: str
    server: str
    kind: str
    message: str
    command: str
    count: int = 0
    last: float = 0.0
    logged: float | None = None


class PageRefusals:
    """The refused pages of one relay process."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._pages: OrderedDict[tuple[str, str, str], RefusedPage] = OrderedDict()
        self._lines = RateLimiter(LOG_PER_S, LOG_BURST)

    def record_request(self, refusal: Refuse, asked: Route, kind: str, request: RequestHeaders) -> None:
        """The gate refused a request; not every one is of a page that wants to be admitted."""
        origin, is_socket = request.first.get(b"origin"), kind == "websocket"
        if origin is None or asked.server is None or (asked.needs == SERVE and not is_socket):
            return  # a program, a page of the relay, or a page that asks why its WebSocket was refused
        has_token = is_socket and BEARER_PREFIX in (request.first.get(b"sec-websocket-protocol") or "")
        self.record(origin, asked.server, refusal, is_socket=is_socket, has_token=has_token)

    def record(self, origin: str, server: str, refusal: Refuse, *, is_socket: bool, has_token: bool = False) -> None:
        """A page was refused. `has_token`: it sent one, so it is a page that was paired or uses the client."""
        if refusal.reason in TEMPORARY:
            return
        # defence: text of refused pages
        shown, name, now = printable(origin), printable(server), self._clock()
        kind = KINDS.get(refusal.reason, "protocol")
        key = (shown, name, kind)
        page = self._pages.pop(key, None)
        if page is None:
            admits = self._command(origin, server, kind, is_socket=is_socket, has_token=has_token)
            page = RefusedPage(shown, name, kind, "", admits)
        self._pages[key] = page
        page.count, page.last = min(page.count + 1, MAX_COUNT), now
        page.message = _printable_text(refusal.message)
        # defence: pages that the list of refusals keeps
        if len(self._pages) > MAX_KEPT:
            self._pages.popitem(last=False)
        self._log(page, now)

    def admitted(self, origin: str, server: str) -> None:
        """A page of this origin offers the server now."""
        for key in [key for key in self._pages if key[:2] == (printable(origin), printable(server))]:
            del self._pages[key]

    def recent(self, may_see: Callable[[str], bool]) -> list[dict[str, Any]]:
        """Rows for the status, the latest first."""
        now = self._clock()
        return [
            {
                "origin": page.origin,
                "server": page.server,
                "kind": page.kind,
                "message": page.message,
                "command": page.command,
                "count": page.count,
                "last_s": round(now - page.last, 1),
            }
            for page in reversed(self._pages.values())
            if may_see(page.server)
        ]

    def _log(self, page: RefusedPage, now: float) -> None:
        is_repeated = page.logged is not None and now - page.logged < LOG_EVERY_S
        # defence: log lines about refused pages
        if is_repeated or self._lines.take("", now):
            return
        page.logged = now
        fix = f" To admit it: {page.command}" if page.command else ""
        log.warning("Refused a page of %s (server %s): %s%s", page.origin, page.server, page.message, fix)

    def _command(self, origin: str, server: str, kind: str, *, is_socket: bool, has_token: bool) -> str:
        """The command that admits pages of this origin. A relay that runs is started again with it."""
        try:
            # defence: commands with the text of refused pages
            if parse_origin(origin) != origin or kind == "name":
                return ""
            check_server_name(server)
        except (PolicyError, ServerNameError):
            return ""
        if has_token:
            return f"{command()} pairs"  # the page asks for an approval
        settings = self._settings
        plain = [*settings.plain, *([server] if is_socket and server not in settings.plain else [])]
        words = [*shlex.split(command()), "serve", *(name for name in settings.servers if name not in plain)]
        for name in plain:
            words += ["--plain", name]
        for allowed in dict.fromkeys((*settings.allow_origins, origin)):
            words += ["--allow-origin", allowed]
        if settings.port != DEFAULT_PORT:
            words += ["--port", str(settings.port)]
        for path in settings.config:
            words += ["--config", str(path)]
        return shlex.join(words)


def _printable_text(text: str) -> str:
    """The relay's own sentence, which repeats the page's texts in quotes."""
    return "".join(c if c.isprintable() else "?" for c in text[:MAX_TEXT])
