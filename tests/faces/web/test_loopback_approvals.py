"""One approval covers localhost, 127.0.0.1 and [::1] on a port; each origin has a separate token."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from typing import Any

import pytest

from tabrelay.admission.token_store import IssuedToken
from tabrelay.http.addresses import loopback_siblings
from tabrelay.system.connection_user import users_of_connection
from tests.support.web_routes import JSON, WebRoutes, bearer

LOCALHOST = "http://localhost:5173"
NUMBER = "http://127.0.0.1:5173"
IPV6 = "http://[::1]:5173"


async def ask(web: WebRoutes, origin: str, server: str = "notes") -> dict[str, Any]:
    body = json.dumps({"server": server}).encode()
    answer = await web.post("/-/ask", body, ("Origin", origin), JSON)
    assert answer.status == 200
    return dict(answer.json())


async def collect(web: WebRoutes, origin: str, request: str) -> Any:
    body = json.dumps({"request": request}).encode()
    return await web.post("/-/ask/answer", body, ("Origin", origin), JSON)


async def approve(web: WebRoutes, origin: str, server: str = "notes") -> str:
    ticket = await ask(web, origin, server)
    decided = json.dumps({"approve": ticket["code"]}).encode()
    assert (await web.post("/-/pairs", decided, JSON, bearer(web.tokens.master()))).status == 200
    return str((await collect(web, origin, ticket["request"])).json()["token"])


def origins(web: WebRoutes) -> list[str | None]:
    return sorted(issued.origin or "" for issued in web.tokens.issued())  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("origin", "siblings"),
    [
        (LOCALHOST, {NUMBER, IPV6}),
        (IPV6, {NUMBER, LOCALHOST}),
        ("https://localhost", {"https://127.0.0.1", "https://[::1]"}),
        ("http://localhost.example:5173", set()),
        ("http://localhost:5173.example", set()),
        ("http://127.0.0.2:5173", set()),
        ("http://127.0.0.1:5173/x", set()),
        ("ws://localhost:5173", set()),
        ("null", set()),
        ("https://app.example", set()),
    ],
)
def test_only_three_names_of_this_computer_belong_together(origin: str, siblings: set[str]) -> None:
    assert loopback_siblings(origin) == siblings


async def test_a_page_under_another_loopback_name_is_approved_without_a_question(web: WebRoutes) -> None:
    first = await approve(web, LOCALHOST)
    web.asked.clear()
    ticket = await ask(web, NUMBER)
    assert ticket["approved"] is True and web.asked == []
    answer = await collect(web, NUMBER, ticket["request"])
    token = answer.json()["token"]
    # The token is for its own origin and for the same server, and the first one still works only under its name.
    principal = web.tokens.identify(token, NUMBER)
    assert principal is not None and principal.servers == frozenset({"notes"}) and "call" not in principal.scopes
    assert web.tokens.identify(token, LOCALHOST) is None
    assert web.tokens.identify(first, NUMBER) is None and web.tokens.identify(first, LOCALHOST) is not None
    # Both are in the list, and the ticket works once.
    assert origins(web) == [NUMBER, LOCALHOST]
    assert (await collect(web, NUMBER, ticket["request"])).status == 404


@pytest.mark.parametrize(
    ("origin", "server"),
    [
        ("http://127.0.0.1:5174", "notes"),
        ("https://127.0.0.1:5173", "notes"),
        ("http://127.0.0.2:5173", "notes"),
        ("http://localhost.example:5173", "notes"),
        (NUMBER, "other"),
        (LOCALHOST, "notes"),  # another browser of the same origin is approved by its own code
    ],
)
async def test_another_port_scheme_name_or_server_needs_an_approval(web: WebRoutes, origin: str, server: str) -> None:
    await approve(web, LOCALHOST)
    web.asked.clear()
    ticket = await ask(web, origin, server)
    assert "approved" not in ticket and len(web.asked) == 1
    web.clock.now += 200
    assert (await collect(web, origin, ticket["request"])).status == 410


@pytest.mark.parametrize("users", [frozenset(), frozenset({os.getuid() + 1}), frozenset({os.getuid(), 12345})])
async def test_a_program_of_another_user_needs_an_approval(web: WebRoutes, users: frozenset[int]) -> None:
    await approve(web, LOCALHOST)
    web.users = users
    assert "approved" not in await ask(web, NUMBER)
    web.users = None  # a system that does not report the user
    assert (await ask(web, NUMBER))["approved"] is True


async def test_an_approval_adds_few_tokens_by_itself(web: WebRoutes) -> None:
    await approve(web, LOCALHOST)
    found = [(await ask(web, NUMBER)).get("approved") for _ in range(8)]
    assert found == [True] * 6 + [None] * 2
    web.clock.now += 601
    assert (await ask(web, NUMBER))["approved"] is True


async def test_an_unused_ticket_expires_and_is_of_one_origin(web: WebRoutes) -> None:
    await approve(web, LOCALHOST)
    ticket = await ask(web, NUMBER)
    assert (await collect(web, IPV6, ticket["request"])).status == 404
    web.clock.now += 121
    assert (await collect(web, NUMBER, ticket["request"])).status == 410


@pytest.mark.parametrize("by", ["id", "origin"])
async def test_revoking_one_name_revokes_the_others_and_they_must_ask(web: WebRoutes, by: str) -> None:
    await approve(web, LOCALHOST)
    await approve(web, "http://localhost:9999")
    ticket = await ask(web, NUMBER)
    await collect(web, NUMBER, ticket["request"])
    issued: IssuedToken = next(one for one in web.tokens.issued() if one.origin == LOCALHOST)
    if by == "id":
        revoke = json.dumps({"revoke": issued.id}).encode()
        answer = await web.post("/-/pairs", revoke, JSON, bearer(web.tokens.master()))
        assert sorted(answer.json()["revoked"]) == [NUMBER, LOCALHOST]
    else:
        web.tokens.revoke_pages(LOCALHOST)
    assert origins(web) == ["http://localhost:9999"]
    assert "approved" not in await ask(web, NUMBER)
    assert "approved" not in await ask(web, LOCALHOST)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not tell")
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
async def test_the_user_of_a_connection_is_known(family: socket.AddressFamily, host: str) -> None:
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        with socket.create_connection((host, port)) as client:
            mine = client.getsockname()[1]
            users = await asyncio.to_thread(users_of_connection, mine, port)
            assert users == frozenset({os.getuid()})
            assert users_of_connection(port, mine) is not None  # the relay's own end has the ports reversed
        assert users_of_connection(1, port) == frozenset()
