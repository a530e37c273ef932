"""Access policy: hosts, origins and scopes, on plain values."""

from __future__ import annotations

import pytest

from tabrelay.admission.policy import Policy, allows, unauthorized
from tabrelay.calls.principal import Principal
from tabrelay.http.addresses import PolicyError, is_loopback, parse_origin

LOCAL = Policy.for_address("127.0.0.1", 4747)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:4747", "localhost:4747", "LOCALHOST:4747", "[::1]:4747", " 127.0.0.1:4747 "]
)
def test_the_loopback_names_with_the_relays_port_are_its_hosts(host: str) -> None:
    assert LOCAL.check_host([host]) is None


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["127.0.0.1"],
        ["127.0.0.1:80"],
        ["127.0.0.1:47470"],
        ["127.0.0.1:4747."],
        ["localhost.:4747"],
        ["localhost.evil.example:4747"],
        ["evil.example:4747"],
        ["evil-localhost:4747"],
        ["127.0.0.1:4747@evil.example"],
        ["evil.example#127.0.0.1:4747"],
        ["127.0.0.1:4747, evil.example"],
        ["127.0.0.1.nip.io:4747"],
        ["0.0.0.0:4747"],
        ["2130706433:4747"],
        ["0x7f000001:4747"],
        ["127.1:4747"],
        ["127.0.0.1:04747"],
        ["127.0.0.1:4747:4747"],
        ["[0:0:0:0:0:0:0:1]:4747"],
        ["[::ffff:127.0.0.1]:4747"],
        ["[::1%lo]:4747"],
        ["\uff4cocalhost:4747"],
        ["127.0.0.1:4747", "127.0.0.1:4747"],
        ["127.0.0.1:4747", "evil.example"],
    ],
)
def test_any_other_host_is_misdirected(values: list[str]) -> None:
    refusal = LOCAL.check_host(values)
    assert refusal is not None
    assert refusal.status == 421


def test_the_refusal_of_a_host_names_the_flag_that_admits_it() -> None:
    refusal = LOCAL.check_host(["box.example:4747"])
    assert refusal is not None
    assert "--allow-host box.example:4747" in refusal.message


def test_untrusted_text_is_repeated_only_as_short_ascii() -> None:
    refusal = LOCAL.check_host(["<b>\x1b[31m\u202e" + "x" * 5000])
    assert refusal is not None
    assert refusal.message.isascii()
    assert "<" not in refusal.message
    assert len(refusal.message) < 500


@pytest.mark.parametrize("origin", [None, "http://127.0.0.1:4747", "http://localhost:4747", "http://[::1]:4747"])
def test_programs_and_the_relays_own_pages_pass_the_origin_check(origin: str | None) -> None:
    assert LOCAL.check_origin(origin) is None


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "https://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:4748",
        "https://127.0.0.1:4747",
        "http://127.0.0.1:4747.evil.example",
        "http://127.0.0.1:47470",
        "http://localhost:4747@evil.example",
        "http://localhost.:4747",
        "http://evil.example/http://localhost:4747",
        "http://localhost:4747/",
        "http://localhost:4747, http://localhost:4747",
        "file://",
    ],
)
def test_any_other_origin_is_forbidden(origin: str) -> None:
    refusal = LOCAL.check_origin(origin)
    assert refusal is not None
    assert refusal.status == 403


def test_the_refusal_of_an_origin_names_the_flag_that_admits_it() -> None:
    refusal = LOCAL.check_origin("https://app.example")
    assert refusal is not None
    assert "--allow-origin https://app.example" in refusal.message


def test_an_allowed_origin_is_admitted_but_is_not_the_relays_own() -> None:
    policy = Policy.for_address("127.0.0.1", 4747, allow_origins=["https://App.example:443/"])
    assert policy.check_origin("https://app.example") is None
    assert not policy.is_own_origin("https://app.example")
    assert policy.is_own_origin("http://localhost:4747")
    assert not policy.is_own_origin(None)


def test_on_a_default_port_browsers_leave_the_port_out() -> None:
    policy = Policy.for_address("127.0.0.1", 80)
    assert policy.check_host(["localhost"]) is None
    assert policy.check_host(["localhost:80"]) is None
    assert policy.check_origin("http://localhost") is None
    assert policy.check_origin("http://localhost:80") is not None


def test_a_bare_allowed_host_works_behind_a_proxy_and_directly() -> None:
    policy = Policy.for_address("0.0.0.0", 4747, allow_hosts=["Box.example"])
    for host in ("box.example", "box.example:443", "box.example:4747"):
        assert policy.check_host([host]) is None
    assert policy.check_host(["box.example:9000"]) is not None
    assert policy.check_host(["x.box.example"]) is not None
    assert policy.is_own_origin("https://box.example")
    assert policy.is_own_origin("http://box.example:4747")


def test_an_allowed_host_with_a_port_admits_that_port_only() -> None:
    policy = Policy.for_address("127.0.0.1", 4747, allow_hosts=["localhost:9000"])
    assert policy.check_host(["localhost:9000"]) is None
    assert policy.check_host(["localhost"]) is not None


def test_a_relay_that_listens_everywhere_still_has_only_its_loopback_names() -> None:
    policy = Policy.for_address("0.0.0.0", 4747)
    assert policy.check_host(["127.0.0.1:4747"]) is None
    assert policy.check_host(["0.0.0.0:4747"]) is not None


def test_the_address_it_listens_on_is_one_of_its_names() -> None:
    assert Policy.for_address("192.168.1.5", 4747).check_host(["192.168.1.5:4747"]) is None
    assert Policy.for_address("fe80::1", 4747).check_host(["[fe80::1]:4747"]) is None


@pytest.mark.parametrize("value", ["*", "*.example", "http://box.example", "box.example/", "box example", "a:b", ""])
def test_a_host_that_is_no_exact_name_is_refused_at_the_start(value: str) -> None:
    with pytest.raises(PolicyError, match="--allow-host"):
        Policy.for_address("127.0.0.1", 4747, allow_hosts=[value])


@pytest.mark.parametrize(
    "value",
    ["*", "null", "app.example", "https://*.example", "https://a/b", "https://u@a", "http://a:x", "https://a?b"],
)
def test_an_origin_that_is_no_exact_origin_is_refused_at_the_start(value: str) -> None:
    with pytest.raises(PolicyError, match="--allow-origin"):
        Policy.for_address("127.0.0.1", 4747, allow_origins=[value])


def test_an_origin_is_brought_into_the_form_browsers_send() -> None:
    assert parse_origin("HTTPS://App.Example:443/") == "https://app.example"
    assert parse_origin("http://[::1]:3000") == "http://[::1]:3000"
    assert parse_origin("chrome-extension://abcdefgh") == "chrome-extension://abcdefgh"


def test_a_scope_that_is_missing_is_named() -> None:
    refusal = allows(Principal("token:1", frozenset({"serve"})), "call", "demo")
    assert refusal is not None
    assert refusal.status == 403
    assert 'scope="call"' in dict(refusal.headers)["WWW-Authenticate"]


def test_a_token_for_one_server_does_not_reach_another() -> None:
    principal = Principal("token:1", frozenset({"serve"}), servers=frozenset({"notes"}))
    assert allows(principal, "serve", "notes") is None
    assert allows(principal, None, None) is None
    refusal = allows(principal, "serve", "demo")
    assert refusal is not None
    assert refusal.status == 403


def test_only_a_token_that_was_sent_is_called_invalid() -> None:
    assert "invalid_token" not in dict(unauthorized("call", False).headers)["WWW-Authenticate"]
    assert "invalid_token" in dict(unauthorized("call", True).headers)["WWW-Authenticate"]
    assert "tabrelay token" in unauthorized("call", False).message
    assert "tabrelay pair" in unauthorized("serve", True).message


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("box", False)],
)
def test_loopback_addresses_are_recognised(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_the_origin_of_an_app_is_a_host_of_the_relay_and_none_of_its_own() -> None:
    policy = Policy.for_address("127.0.0.1", 4748).with_app("127.0.0.1", 4747, ["127.0.0.1"])
    assert policy.check_host(["localhost:4747"]) is None and policy.check_host(["localhost:4748"]) is None
    assert policy.check_host(["localhost:4749"]) is not None
    assert policy.app_origins == {f"http://{name}:4747" for name in ("127.0.0.1", "localhost", "[::1]")}
    assert not policy.is_own_origin("http://127.0.0.1:4747")
    assert policy.check_origin("http://127.0.0.1:4747") is not None
    assert "127.0.0.1:4747" in policy.authorities and "localhost:4747" not in policy.authorities
