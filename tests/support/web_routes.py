"""The relay's pages and routes behind the real gate, with a small set of files, called in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from tabrelay.admission.gate import Gate
from tabrelay.admission.pairing import PairingRequest
from tabrelay.admission.policy import Policy, Refuse
from tabrelay.admission.tokens import Tokens
from tabrelay.assets.files import Assets
from tabrelay.calls.principal import Principal
from tabrelay.faces.web.csp_reports import CspReports
from tabrelay.faces.web.loopback_approvals import LoopbackApprovals
from tabrelay.faces.web.pairing import PairingRoutes
from tabrelay.faces.web.routes import RouteGroup, web_app
from tests.support.asgi_client import Answer, request

OWN = "http://127.0.0.1:4747"
APP = "https://app.example"
HOST = ("Host", "127.0.0.1:4747")
FAR = "relay.example"
JSON = ("Content-Type", "application/json")


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class WebRoutes:
    """The pages of a small set of files, behind the gate."""

    def __init__(
        self,
        root: Path,
        probe: Callable[[Principal, str], Refuse | None] | None = None,
        app_port: int | None = None,
        declared: tuple[str, ...] = (),
        groups: Callable[[Assets], list[RouteGroup]] = lambda assets: [],
    ) -> None:
        """`groups`: more routes.

        `app_port`: of an app that the relay serves; `declared`: the server names that the user has configured."""
        for name, text in {
            "tabserver/__init__.py": "",
            "tabserver/js/app_view.js": "",
            "tabserver/js/worker.js": "export {};\n" * 50,
            "tabserver/js/tabrelay.js": 'export const RELAY = "http://127.0.0.1:4747";\n',
            "page/index.html": "<!doctype html>\n" * 50,
            "page/page.css": "body {}\n",
            "page/favicon.svg": "<svg/>",
            "demo/index.html": "<!doctype html><title>Demo</title>\n",
            "pyodide/pyodide.mjs": "export {};\n",
            "pyodide/pyodide.asm.wasm": "\0asm",
            "pyscript/core.js": "export {};\n",
            "micropython/micropython.mjs": "export {};\n",
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        names = ("tabserver", "page", "demo", "pyodide", "pyscript", "micropython", "snapshot", "editor", "docs")
        folders = {name: root / name for name in names}
        self.assets = Assets(**folders, fix="Do this.")
        self.tokens = Tokens(root / "state")
        self.clock = Clock()
        policy = Policy.for_address("127.0.0.1", 4747, allow_origins=[APP], allow_hosts=[FAR])
        if app_port is not None:
            policy = policy.with_app("127.0.0.1", app_port, ["127.0.0.1", "localhost"])
        self.asked: list[tuple[str, str, str, list[str]]] = []
        self.paired: list[str] = []
        # The users that own the client's end of a connection; None: the system does not report them.
        self.users: frozenset[int] | None = frozenset({os.getuid()})
        self.pairs = PairingRoutes(
            self.tokens,
            policy,
            on_ask=self._on_ask,
            on_paired=self.paired.append,
            clock=self.clock,
            collect_s=0.5,
            loopback=LoopbackApprovals(
                self.tokens, is_direct=True, users=lambda client, server: self.users, clock=self.clock
            ),
            declared=declared,
        )
        more: tuple[RouteGroup, ...] = (self.pairs, CspReports(policy, self.clock), *groups(self.assets))
        inner = web_app(self.assets, self.status, groups=more, probe=probe)
        self.gate = Gate(inner, policy, self.tokens)

    def _on_ask(self, asking: PairingRequest, others: list[str]) -> None:
        self.asked.append((asking.origin, asking.server, asking.code, others))

    async def status(self, principal: Principal) -> bytes:
        return json.dumps({"servers": [], "for": principal.id}).encode()

    async def get(self, path: str, *headers: tuple[str, str], method: str = "GET") -> Answer:
        return await request(self.gate, method, path, [HOST, *headers])

    async def post(self, path: str, body: bytes, *headers: tuple[str, str]) -> Answer:
        return await request(self.gate, "POST", path, [HOST, *headers], body)

    async def pair(self, code: str, origin: str | None = OWN) -> Answer:
        headers = [JSON, ("Origin", origin)] if origin else [JSON]
        return await self.post("/-/pair", json.dumps({"code": code}).encode(), *headers)


def bearer(token: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {token}"
