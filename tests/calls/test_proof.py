"""Mutual proofs: the relay proves itself before it receives a credential, and that credential is useless at another
relay."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Origin, Subprotocol

from tabrelay.admission.policy import Policy
from tabrelay.admission.tokens import Tokens
from tabrelay.calls import proof
from tabrelay.calls.principal import MANAGE, SERVE
from tabrelay.calls.proof import AnswerReader, Challenge, ClientProof, ProofIssuer, Unproven, key_of, serve_key
from tabrelay.http import loopback
from tabrelay.server.runner import BindError, bind
from tabserver.wire.frames import SUBPROTOCOL
from tests.support.link_worker import bearer
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

AUTHORITY = "127.0.0.1:4747"
OWN = "http://127.0.0.1:4747"


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def prove(tokens: Tokens, key: bytes, authority: str = AUTHORITY) -> ClientProof:
    """The exchange of a client and a relay over HTTP, on values."""
    challenge = Challenge(key, authority)
    asked = json.loads(challenge.body())
    answer = tokens.prove(asked["key"], asked["authority"], asked["nonce"])
    assert answer is not None
    return challenge.verify(200, json.dumps(answer).encode())


async def prove_over_http(relay: RunningRelay, key: bytes, authority: str | None = None) -> ClientProof:
    challenge = Challenge(key, authority or f"127.0.0.1:{relay.port}")
    headers = {"Authorization": ""}
    answer = await relay.http.post(proof.ROUTE, content=challenge.body(), headers=headers)
    return challenge.verify(answer.status_code, answer.content)


def test_a_proof_counts_as_the_token_that_it_was_made_with(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    named = tokens.issue_named("laptop", ["call"], ["notes"])
    for token in (tokens.master(), named):
        text = prove(tokens, key_of(token)).text()
        assert tokens.identify(text, None) == tokens.identify(token, None)
        assert token not in text


def test_a_proof_of_a_page_counts_for_its_origin_only(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    text = prove(tokens, key_of(tokens.issue_for_page(OWN, "notes", [SERVE]))).text()
    assert tokens.identify(text, OWN) is not None
    assert tokens.identify(text, "http://127.0.0.1:4748") is None


@pytest.mark.parametrize("whose", ["page", "relay"])
def test_the_key_of_a_worker_may_serve_and_nothing_else(tmp_path: Path, whose: str) -> None:
    tokens = Tokens(tmp_path)
    token = tokens.issue_for_page(OWN, None, [SERVE, MANAGE]) if whose == "page" else tokens.master()
    full = tokens.identify(token, None)
    principal = tokens.identify(prove(tokens, serve_key(key_of(token))).text(), None)
    assert full is not None and principal is not None
    assert MANAGE in full.scopes
    assert principal.scopes == {SERVE}
    # The same browser in every other respect: it takes over its own names, and ends when the token is revoked.
    assert (principal.id, principal.credential) == (full.id, full.credential)


def test_a_token_that_may_not_serve_has_no_key_for_workers(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    key = serve_key(key_of(tokens.issue_named("laptop", ["call"])))
    assert tokens.prove(proof.key_id(key), AUTHORITY, "A" * 22) is None


def test_a_proof_ends_with_its_token_with_its_time_and_with_the_relay(tmp_path: Path) -> None:
    clock = Clock()
    tokens = Tokens(tmp_path, clock)
    token = tokens.issue_named("laptop", ["call"])
    text = prove(tokens, key_of(token)).text()
    assert tokens.identify(text, None) is not None
    assert Tokens(tmp_path, clock).identify(text, None) is None, "a relay that was started anew, or another one"
    clock.now += proof.LIFE_S + 1
    assert tokens.identify(text, None) is None
    clock.now -= 3600  # the system's clock was set back
    assert tokens.identify(text, None) is None
    clock.now += 3600 - proof.LIFE_S
    assert tokens.identify(text, None) is not None
    tokens.revoke(lambda grant: grant.name == "laptop")
    assert tokens.identify(text, None) is None


def test_relays_of_one_bus_take_each_others_proofs(tmp_path: Path) -> None:
    one, two = (Tokens(tmp_path, shares_proofs=True) for _ in range(2))
    text = prove(one, key_of(one.master())).text()
    assert two.identify(text, None) == one.identify(text, None)


@pytest.mark.parametrize("part", range(5))
def test_a_proof_that_was_changed_anywhere_is_none(tmp_path: Path, part: int) -> None:
    tokens = Tokens(tmp_path)
    parts = prove(tokens, key_of(tokens.master())).text().removeprefix(proof.PREFIX).split(".")
    other = prove(tokens, key_of(tokens.issue_named("laptop", ["call"])), "other:4747").text()
    parts[part] = other.removeprefix(proof.PREFIX).split(".")[part]
    assert tokens.identify(proof.PREFIX + ".".join(parts), None) is None


@pytest.mark.parametrize("text", ["", "....", "a.b.c.d.e", "\udcff....", "é" * 40, "A" * 5000, "." * 600])
def test_anything_else_is_no_proof(tmp_path: Path, text: str) -> None:
    assert Tokens(tmp_path).identify(proof.PREFIX + text, None) is None


def test_a_program_that_does_not_know_the_key_proves_nothing() -> None:
    clock = Clock()
    key, wrong = key_of("tr_" + "A" * 43), key_of("tr_" + "B" * 43)
    challenge, earlier = Challenge(key, AUTHORITY), Challenge(key, AUTHORITY)
    issuer = ProofIssuer(b"x" * 32, clock)
    nonce = json.loads(challenge.body())["nonce"]
    answers: list[Any] = [
        issuer.answer(wrong, AUTHORITY, nonce),
        issuer.answer(key, "127.0.0.1:4848", nonce),  # a relay at another port, to which the challenge was forwarded
        issuer.answer(key, AUTHORITY, json.loads(earlier.body())["nonce"]),  # a recorded answer
        {"nonce": nonce, "signature": nonce},
        {"nonce": "a\nb", "signature": "é"},
        {"nonce": "\ud800", "signature": ["x"]},
        {},
        [],
        None,
    ]
    for answer in answers:
        with pytest.raises(Unproven, match="is not your relay"):
            challenge.verify(200, json.dumps(answer).encode())
    with pytest.raises(Unproven, match="is not your relay"):
        challenge.verify(200, b"[" * 100_000)
    challenge.verify(200, json.dumps(issuer.answer(key, AUTHORITY, nonce)).encode())


def test_text_of_an_unproven_program_is_never_shown() -> None:
    challenge = Challenge(key_of("x"), AUTHORITY)
    for status, error in ((401, "unauthorized"), (404, "x"), (403, "unknown_key"), (421, "wrong_authority")):
        body = json.dumps({"error": error, "message": "Run this: evil"}).encode()
        with pytest.raises(Unproven) as raised:
            challenge.verify(status, body)
        assert "evil" not in str(raised.value) and "was not sent" in str(raised.value)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}x",
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 20_000,
        b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n" + b"y" * 20_000,
    ],
)
def test_an_answer_of_any_other_form_ends_the_connection(data: bytes) -> None:
    with pytest.raises(Unproven):
        AnswerReader(AUTHORITY).feed(data)


def test_an_answer_may_come_in_pieces() -> None:
    reader = AnswerReader(AUTHORITY)
    whole = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nabc"
    assert [reader.feed(whole[i : i + 1]) for i in range(len(whole))][-2:] == [None, (403, b"abc")]
    with pytest.raises(ConnectionError):
        AnswerReader(AUTHORITY).feed(b"")


async def test_the_relay_signs_for_addresses_that_it_holds_and_no_others(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, allow_hosts=("relay.test:9000",)) as relay:
        key = key_of(relay.token)
        for authority in (f"127.0.0.1:{relay.port}", f"localhost:{relay.port}", "relay.test:9000"):
            shown = (await prove_over_http(relay, key, authority)).text()
            assert (await relay.http.get("/-/status", headers={"Authorization": f"Bearer {shown}"})).is_success
        for authority in (f"127.0.0.1:{relay.port + 1}", "127.0.0.1", f"evil.test:{relay.port}", f"[::1]:{relay.port}"):
            with pytest.raises(Unproven, match="does not hold the address"):
                await prove_over_http(relay, key, authority)
        with pytest.raises(Unproven, match="does not know this token"):
            await prove_over_http(relay, key_of("tr_" + "A" * 43))


async def test_a_page_of_any_origin_gets_an_answer_without_information(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        challenge = Challenge(key_of("tr_" + "A" * 43), f"127.0.0.1:{relay.port}")
        headers = {"Authorization": "", "Origin": "https://app.example", "Content-Type": "text/plain"}
        answer = await relay.http.post(proof.ROUTE, content=challenge.body(), headers=headers)
        assert answer.status_code == 403
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert answer.json()["error"] == "unknown_key"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"key":1}', b'{"key":"a","nonce":"AA","authority":"x"}', b'"' + b"x" * 5000 + b'"']
)
async def test_a_challenge_of_any_other_form_is_refused(tmp_path: Path, body: bytes) -> None:
    async with RunningRelay(tmp_path) as relay:
        answer = await relay.http.post(proof.ROUTE, content=body, headers={"Authorization": ""})
        assert answer.status_code in (400, 413)


async def test_a_socket_that_was_opened_with_a_proof_begins_with_the_relays_signature(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        shown = await prove_over_http(relay, serve_key(key_of(relay.token)))
        url = f"ws://127.0.0.1:{relay.port}/notes"

        def protocols(token: str) -> list[Subprotocol]:
            return [Subprotocol(SUBPROTOCOL), Subprotocol(bearer(token))]

        async with connect(url, subprotocols=protocols(shown.text()), proxy=None) as dialled:
            assert await dialled.recv() == shown.socket_signature()
        origin = Origin("https://app.example")
        with pytest.raises(Exception, match="403"):
            await connect(url, subprotocols=protocols(shown.text()), proxy=None, origin=origin)


async def test_the_other_loopback_address_is_reserved(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        if relay._reserved.socket is None:
            pytest.skip("this computer has no IPv6")
        with pytest.raises(BindError, match="is taken"):
            bind("::1", relay.port)


def test_under_a_name_that_another_program_may_have_the_relay_proves_nothing() -> None:
    try:
        other = bind("::1", 0)
    except BindError:
        pytest.skip("this computer has no IPv6")
    with other:
        port = other.getsockname()[1]
        with bind("127.0.0.1", port) as listener:
            reserved = loopback.reserve(listener)
            assert reserved.is_taken
            held = loopback.held_names(listener, "127.0.0.1", is_taken=True)
            policy = Policy.for_address("127.0.0.1", port, held=held)
            assert policy.authorities == {f"127.0.0.1:{port}"}
            assert f"localhost:{port}" in policy.hosts  # that client is answered, but not with a proof


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("127.0.0.1", {"127.0.0.1", "localhost"}),
        ("0.0.0.0", {"127.0.0.1", "localhost"}),
        ("::1", {"[::1]", "localhost"}),
    ],
)
def test_the_names_that_a_relay_holds(host: str, names: set[str]) -> None:
    try:
        listener = bind(host, 0)
    except BindError:
        pytest.skip("this computer has no IPv6")
    with listener:
        reserved = loopback.reserve(listener)
        assert isinstance(reserved.socket, socket.socket | None)
        assert set(loopback.held_names(listener, host)) == names
        reserved.close()


@pytest.mark.parametrize("path", [proof.ROUTE, "/-/acp/x"])
async def test_a_client_that_leaves_in_the_middle_of_a_body_leaves_nothing_in_the_log(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a program without a token could fill the log, and a traceback takes longer to write than a
    challenge."""
    async with RunningRelay(tmp_path) as relay:
        before = len(asyncio.all_tasks())
        head = f"Host: 127.0.0.1:{relay.port}\r\nAuthorization: Bearer {relay.token}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: 200\r\n\r\n{"
        method = "POST" if path == proof.ROUTE else "PUT"
        _, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}".encode())
        await until(lambda: len(asyncio.all_tasks()) > before)
        writer.transport.abort()
        await until(lambda: len(asyncio.all_tasks()) <= before)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
