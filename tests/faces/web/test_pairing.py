"""The routes of pairing behind the real gate: one-time codes, pages that ask, and the user's decisions."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tabrelay.admission.pairing_codes import PERSON_TTL_S
from tabrelay.admission.tokens import StateError
from tabrelay.calls.principal import SERVE
from tabrelay.faces.web.loopback_approvals import APP_BURST
from tabrelay.system import private_files
from tests.support.asgi_client import Answer
from tests.support.web_routes import APP, JSON, OWN, WebRoutes, bearer


async def test_a_page_trades_its_code_for_a_token_that_serves(web: WebRoutes) -> None:
    answer = await web.pair(web.tokens.mint("demo", 60, web.clock.now))
    assert answer.status == 200
    assert answer.header("cache-control") == "no-store"
    got = answer.json()
    assert got["server"] == "demo"
    principal = web.tokens.identify(got["token"], OWN)
    assert principal is not None
    assert principal.scopes == frozenset({"serve", "manage"})
    status = await web.get("/-/status", bearer(got["token"]))
    assert status.json() == {"servers": [], "for": principal.id}


async def test_a_used_or_invented_code_is_unknown_and_an_old_one_expired(web: WebRoutes) -> None:
    code = web.tokens.mint(None, 60, web.clock.now)
    await web.pair(code)
    old = web.tokens.mint(None, 60, web.clock.now)
    web.clock.now += 60
    for given, error in ((code, "unknown"), ("invented", "unknown"), (old, "expired")):
        answer = await web.pair(given)
        assert (answer.status, answer.json()["error"]) == (403, error)
        assert "tabrelay pair" in answer.json()["message"]


@pytest.mark.parametrize("origin", [None, APP])
async def test_only_the_relays_own_pages_pair_with_a_code(web: WebRoutes, origin: str | None) -> None:
    code = web.tokens.mint(None, 60, web.clock.now)
    assert (await web.pair(code, origin)).status == 403
    assert (await web.pair(code)).status == 200


async def test_a_pairing_request_must_be_small_json(web: WebRoutes) -> None:
    own = ("Origin", OWN)
    assert (await web.post("/-/pair", b"code=x", own, ("Content-Type", "text/plain"))).status == 415
    assert (await web.post("/-/pair", b"{}", own)).status == 415
    for body in (b"", b"{", b"[]", b"{}", b'{"code": 1}', b"\xff"):
        assert (await web.post("/-/pair", body, own, JSON)).status == 400
    assert (await web.post("/-/pair", b'{"code": "' + b"x" * 5000 + b'"}', own, JSON)).status == 413


async def test_the_command_line_gets_a_fresh_address_that_pairs(web: WebRoutes) -> None:
    answer = await web.post("/-/codes", b"", bearer(web.tokens.master()))
    assert answer.status == 200
    body = answer.json()
    assert body["expires_s"] == PERSON_TTL_S
    base, _, code = body["url"].partition("/#pair=")
    assert base == OWN
    web.clock.now += PERSON_TTL_S - 1
    assert (await web.pair(code)).status == 200


# --- pages of other origins

STRANGER = "https://stranger.example"


class OtherOriginPage:
    """A page of another origin that asks to be paired."""

    def __init__(self, web: WebRoutes, origin: str = STRANGER) -> None:
        self._web = web
        self._origin = ("Origin", origin)

    async def ask(self, server: Any = "notes") -> Answer:
        body = json.dumps({"server": server}).encode()
        return await self._web.post("/-/ask", body, self._origin, JSON)

    async def answer(self, request: str) -> Answer:
        body = json.dumps({"request": request}).encode()
        return await self._web.post("/-/ask/answer", body, self._origin, JSON)


async def decide(web: WebRoutes, **body: str) -> Answer:
    token = bearer(web.tokens.master())
    return await web.post("/-/pairs", json.dumps(body).encode(), JSON, token)


async def test_a_page_asks_is_approved_by_its_code_and_gets_a_token_for_its_origin_and_name(web: WebRoutes) -> None:
    page = OtherOriginPage(web)
    asked = await page.ask()
    assert asked.status == 200
    assert asked.header("access-control-allow-origin") == STRANGER
    assert asked.header("cache-control") == "no-store"
    ticket = asked.json()
    assert web.asked == [(STRANGER, "notes", ticket["code"], [])]
    waiting = asyncio.create_task(page.answer(ticket["request"]))
    await asyncio.sleep(0)
    assert (await decide(web, approve=ticket["code"])).json()["state"] == "approved"
    assert web.paired == ["notes"]
    async with asyncio.timeout(60):
        got = (await waiting).json()
    principal = web.tokens.identify(got["token"], STRANGER)
    assert principal is not None
    assert (principal.scopes, principal.origin, principal.servers) == (
        frozenset({"serve"}),
        STRANGER,
        frozenset({"notes"}),
    )
    assert (await page.answer(ticket["request"])).status == 404
    assert web.tokens.identify(got["token"], APP) is None


async def test_a_refused_page_gets_the_refusal_and_no_token(web: WebRoutes) -> None:
    page = OtherOriginPage(web)
    ticket = (await page.ask()).json()
    waiting = asyncio.create_task(page.answer(ticket["request"]))
    await asyncio.sleep(0)
    await decide(web, refuse=ticket["code"])
    async with asyncio.timeout(60):
        answer = await waiting
    assert (answer.status, answer.json()["error"]) == (403, "refused")
    assert (await page.ask()).status == 200
    assert len(web.asked) == 1  # the user is not asked again so soon
    assert web.tokens.issued() == []


async def test_a_request_without_a_decision_expires(web: WebRoutes) -> None:
    page = OtherOriginPage(web)
    ticket = (await page.ask()).json()
    web.clock.now += 120
    answer = await page.answer(ticket["request"])
    assert (answer.status, answer.json()["error"]) == (410, "expired")
    assert (await decide(web, approve=ticket["code"])).status == 404


async def test_a_program_without_a_token_keeps_no_page_from_being_paired(web: WebRoutes) -> None:
    """It can forge an Origin: its requests in the name of another origin must not count against that one."""
    page, forger = OtherOriginPage(web), OtherOriginPage(web)
    for _ in range(10):
        assert (await forger.answer("guess")).status == 404
    await decide(web, refuse=(await forger.ask()).json()["code"])
    others = [OtherOriginPage(web, f"https://{number}.example") for number in range(20)]
    await asyncio.gather(*(other.ask() for other in others))
    asked = await page.ask()
    assert asked.status == 200
    await asyncio.gather(*(other.ask() for other in (*others, forger)))
    ticket = asked.json()
    waiting = asyncio.create_task(page.answer(ticket["request"]))
    await asyncio.sleep(0)
    approved = await decide(web, approve=ticket["code"])
    assert (approved.status, approved.json()["origin"]) == (200, STRANGER)
    async with asyncio.timeout(25):
        assert (await waiting).json()["state"] == "approved"


async def test_the_approval_of_a_code_that_no_page_has_is_taken_back(
    web: WebRoutes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabrelay.faces.web.pairing.HOLD_S", 0.05)
    page = OtherOriginPage(web)
    first, second = (await page.ask()).json(), (await page.ask()).json()
    refused = await decide(web, approve=first["code"])  # it is not in the list, and its page is gone
    assert (refused.status, refused.json()["error"]) == (404, "unknown")
    assert "token" not in (await page.answer(first["request"])).json()
    assert (await decide(web, refuse=second["code"])).status == 200
    web.clock.now += 120
    assert (await page.answer(first["request"])).status == 410
    assert web.tokens.issued() == []


@pytest.mark.parametrize("problem", [OSError(errno.ENOSPC, "No space left on device"), StateError("gone")])
async def test_a_token_that_can_not_be_stored_does_not_use_up_the_approval(
    web: WebRoutes, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    def full(*_: object, **__: object) -> None:
        raise problem

    page, code = OtherOriginPage(web), web.tokens.mint(None, 60, web.clock.now)
    ticket = (await page.ask()).json()
    await decide(web, approve=ticket["code"])
    with monkeypatch.context() as disk:
        disk.setattr(private_files, "write", full)
        for answer in (await page.answer(ticket["request"]), await web.pair(code)):
            assert (answer.status, answer.json()["error"], answer.header("retry-after")) == (507, "not_stored", "5")
    assert web.tokens.issued() == []
    assert (await page.answer(ticket["request"])).status == 200
    assert (await web.pair(code)).status == 200


@pytest.mark.parametrize("server", ["", "-x", "a b", "favicon.ico", None, 1.5, ["a"], "a\nb", "x" * 65])
async def test_a_page_asks_for_a_name_that_can_be_one(web: WebRoutes, server: Any) -> None:
    assert (await OtherOriginPage(web).ask(server)).status == 400
    assert web.asked == []


ODD = ["null", "", "https://A.example", "https://a.example/", "https://a.example:443", "https://*.example", "x"]


@pytest.mark.parametrize("origin", ODD)
async def test_only_a_browsers_own_origin_can_ask(web: WebRoutes, origin: str) -> None:
    answer = await OtherOriginPage(web, origin).ask()
    assert answer.status in (400, 403)
    assert web.asked == []


@pytest.mark.parametrize("other", [STRANGER, "https://other.example", "null", ""])
async def test_who_names_two_origins_has_none(web: WebRoutes, other: str) -> None:
    for origins in ((STRANGER, other), (other, STRANGER)):
        headers = [("Origin", origin) for origin in origins]
        assert (await web.post("/-/ask", b'{"server": "notes"}', *headers, JSON)).status in (400, 403)
    assert web.asked == []
    ticket = (await OtherOriginPage(web).ask()).json()
    await decide(web, approve=ticket["code"])
    body = json.dumps({"request": ticket["request"]}).encode()
    answer = await web.post("/-/ask/answer", body, ("Origin", STRANGER), ("Origin", other), JSON)
    assert answer.status in (403, 404)
    assert (await OtherOriginPage(web).answer(ticket["request"])).status == 200


async def test_of_all_that_ask_at_once_the_user_is_shown_three(web: WebRoutes) -> None:
    pages = [f"https://app{port}.example:{port}" for port in range(8001, 8006)]
    answers = await asyncio.gather(*(OtherOriginPage(web, origin).ask() for origin in pages * 4))
    assert [answer.status for answer in answers] == [200] * 20
    assert len({origin for origin, *_ in web.asked}) == len(web.asked) == 3
    assert len((await web.get("/-/pairs", bearer(web.tokens.master()))).json()["asking"]) == 3


async def test_of_all_that_pick_a_token_up_at_once_one_gets_it(web: WebRoutes) -> None:
    page = OtherOriginPage(web)
    ticket = (await page.ask()).json()
    waiting = [asyncio.create_task(page.answer(ticket["request"])) for _ in range(5)]
    await asyncio.sleep(0)
    decided = await asyncio.gather(*(decide(web, approve=ticket["code"]) for _ in range(3)))
    assert sorted(answer.status for answer in decided) == [200, 404, 404]
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*waiting)
    assert sorted(answer.status for answer in answers) == [200, 404, 404, 404, 404]
    assert len(web.tokens.issued()) == 1


async def test_origins_that_differ_by_their_port_share_nothing(web: WebRoutes) -> None:
    one, other = OtherOriginPage(web, "https://a.example:8443"), OtherOriginPage(web, "https://a.example")
    ticket = (await one.ask()).json()
    await decide(web, approve=ticket["code"])
    assert (await other.answer(ticket["request"])).status == 404
    token = (await one.answer(ticket["request"])).json()["token"]
    assert web.tokens.identify(token, "https://a.example") is None
    assert web.tokens.identify(token, "https://A.example:8443") is None
    assert web.tokens.identify(token, "https://a.example:8443") is not None


async def test_an_approval_that_is_not_collected_expires(web: WebRoutes) -> None:
    page = OtherOriginPage(web)
    ticket = (await page.ask()).json()
    await decide(web, approve=ticket["code"])
    web.clock.now += 3600
    answer = await page.answer(ticket["request"])
    assert (answer.status, answer.json()["error"]) == (410, "expired")
    assert web.tokens.issued() == []


async def test_a_program_without_an_origin_cannot_ask(web: WebRoutes) -> None:
    assert (await web.post("/-/ask", b'{"server": "notes"}', JSON)).status == 400


async def test_a_form_cannot_ask(web: WebRoutes) -> None:
    origin = ("Origin", STRANGER)
    assert (await web.post("/-/ask", b'{"server": "notes"}', origin, ("Content-Type", "text/plain"))).status == 415
    assert (await web.post("/-/ask", b"[" * 4000, origin, JSON)).status == 400


async def test_the_relays_own_page_sees_who_asks_and_decides(web: WebRoutes) -> None:
    got = (await web.pair(web.tokens.mint(None, 60, web.clock.now))).json()
    own = [bearer(got["token"]), ("Origin", OWN)]
    other = OtherOriginPage(web, "https://other.example")
    first = (await other.ask()).json()
    await decide(web, approve=first["code"])
    await other.answer(first["request"])
    ticket = (await OtherOriginPage(web).ask()).json()
    assert web.asked[-1][3] == ["https://other.example"]
    listed = (await web.get("/-/pairs", *own)).json()
    assert [(row["origin"], row["code"], row["others"]) for row in listed["asking"]] == [
        (STRANGER, ticket["code"], ["https://other.example"])
    ]
    assert [(row["origin"], row["servers"], row["own"]) for row in listed["paired"]] == [
        (OWN, None, True),
        ("https://other.example", ["notes"], False),
    ]
    body = json.dumps({"approve": ticket["code"]}).encode()
    assert (await web.post("/-/pairs", body, JSON, *own)).status == 200
    body = json.dumps({"revoke": listed["paired"][1]["id"]}).encode()
    assert (await web.post("/-/pairs", body, JSON, *own)).json() == {"revoked": ["https://other.example"]}


async def test_only_the_user_and_own_pages_see_and_decide_who_is_paired(web: WebRoutes) -> None:
    ticket = (await OtherOriginPage(web).ask()).json()
    body = json.dumps({"approve": ticket["code"]}).encode()
    paired = web.tokens.issue_for_page(STRANGER, "notes", ["serve"])
    for token, origin, status in (
        (None, OWN, 401),
        (None, STRANGER, 403),
        (paired, STRANGER, 403),
        (paired, OWN, 403),
        (web.tokens.issue_named("laptop", ["call", "serve"]), OWN, 403),
    ):
        headers = [("Origin", origin), *([bearer(token)] if token else [])]
        assert (await web.get("/-/pairs", *headers)).status == status
        assert (await web.post("/-/pairs", body, JSON, *headers)).status == status
    assert (await decide(web, approve=ticket["code"])).status == 200


@pytest.mark.parametrize("body", ["{}", '{"approve": 1}', '{"revoke": null}', "[]"])
async def test_a_decision_that_is_none_is_refused(web: WebRoutes, body: str) -> None:
    assert (await web.post("/-/pairs", body.encode(), JSON, bearer(web.tokens.master()))).status == 400


async def test_revoking_takes_no_named_token(web: WebRoutes) -> None:
    web.tokens.issue_named("laptop", ["call"])
    [grant] = web.tokens.issued()
    assert (await decide(web, revoke=grant.id)).status == 404


async def ask_as(web: WebRoutes, origin: str, server: str) -> dict[str, Any]:
    answer = await web.post("/-/ask", json.dumps({"server": server}).encode(), JSON, ("Origin", origin))
    assert answer.status == 200
    asked: dict[str, Any] = answer.json()
    return asked


async def test_the_app_that_the_relay_serves_is_paired_without_a_question(tmp_path: Path) -> None:
    web = WebRoutes(tmp_path, app_port=4750, declared=("notes",))
    here = "http://localhost:4750"
    asked = await ask_as(web, here, "anything")
    assert asked["approved"] is True and web.asked == [] and web.paired == ["anything"]
    body = json.dumps({"request": asked["request"]}).encode()
    collected = (await web.post("/-/ask/answer", body, JSON, ("Origin", here))).json()
    principal = web.tokens.identify(collected["token"], here)
    assert principal is not None and principal.scopes == {SERVE} and principal.servers == frozenset({"anything"})
    # Exactly this origin: not another port, not another scheme.
    for origin in ("http://localhost:4751", "https://localhost:4750", "http://localhost:47500", APP):
        assert "approved" not in await ask_as(web, origin, "anything")


async def test_an_app_gets_no_name_of_another_site_without_a_question(tmp_path: Path) -> None:
    web = WebRoutes(tmp_path, app_port=4750, declared=("notes",))
    for name in ("shop", "notes"):
        web.tokens.issue_for_page("https://shop.example", name, (SERVE,))
    assert "approved" not in await ask_as(web, "http://127.0.0.1:4750", "shop")
    # The user has configured this name.
    assert (await ask_as(web, "http://127.0.0.1:4750", "notes"))["approved"] is True


async def test_another_user_of_this_computer_is_not_taken_for_the_app(tmp_path: Path) -> None:
    web = WebRoutes(tmp_path, app_port=4750, declared=("notes",))
    web.users = frozenset({os.getuid() + 1})
    assert "approved" not in await ask_as(web, "http://127.0.0.1:4750", "notes")
    web.users = frozenset({os.getuid()})
    assert (await ask_as(web, "http://127.0.0.1:4750", "notes"))["approved"] is True


async def test_the_number_of_approvals_of_the_app_is_bounded(tmp_path: Path) -> None:
    web = WebRoutes(tmp_path, app_port=4750)
    for _ in range(APP_BURST):
        assert (await ask_as(web, "http://127.0.0.1:4750", "notes"))["approved"] is True
    assert "approved" not in await ask_as(web, "http://127.0.0.1:4750", "notes")
