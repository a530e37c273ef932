"""The token file, issued tokens, and pairing codes."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tabrelay.codes import MAX_PENDING, OPENER_TTL_S, CodeProblem
from tabrelay.tokens import MAX_PAIRS, Redeemed, StateError, Tokens

OWN = "http://127.0.0.1:4747"
posix = pytest.mark.skipif(os.name != "posix", reason="file modes")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "state"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@posix
def test_the_first_start_makes_a_token_that_only_its_user_can_read(home: Path) -> None:
    old = os.umask(0)
    try:
        Tokens(home).master()
        Tokens(home).issue(OWN, None, ["serve"])
    finally:
        os.umask(old)
    assert mode(home) == 0o700
    assert mode(home / "token") == 0o600
    assert mode(home / "pairs.json") == 0o600
    assert sorted(file.name for file in home.iterdir()) == ["pairs.json", "token"]


@posix
def test_a_token_file_that_others_could_read_is_closed_again(home: Path) -> None:
    Tokens(home).master()
    (home / "token").chmod(0o644)
    home.chmod(0o755)
    Tokens(home).master()
    assert mode(home / "token") == 0o600
    assert mode(home) == 0o700


def test_the_token_has_256_bits_and_stays_the_same(home: Path) -> None:
    first = Tokens(home).master()
    assert len(first.removeprefix("tr_")) == 43
    assert Tokens(home).master() == first


def test_a_damaged_token_file_is_reported_with_the_way_out(home: Path) -> None:
    home.mkdir()
    (home / "token").write_text("short\n")
    with pytest.raises(StateError, match="Delete it"):
        Tokens(home).master()


def test_a_state_directory_that_is_a_file_is_reported_with_the_way_out(home: Path) -> None:
    home.write_text("")
    with pytest.raises(StateError, match="--home"):
        Tokens(home).master()


def test_the_relays_own_token_may_do_everything_from_any_admitted_origin(home: Path) -> None:
    tokens = Tokens(home)
    principal = tokens.identify(tokens.master(), "https://app.example")
    assert principal is not None
    assert principal.scopes == {"call", "serve", "admin"}
    assert tokens.master() not in principal.id


@pytest.mark.parametrize("token", ["", "x", "tr_" + "A" * 43, "\ud800", "ü"])
def test_a_token_nobody_issued_is_nobodys(home: Path, token: str) -> None:
    assert Tokens(home).identify(token, None) is None


def test_a_bound_token_is_unknown_to_other_origins(home: Path) -> None:
    tokens = Tokens(home)
    token = tokens.issue(OWN, "demo", ["serve"])
    principal = tokens.identify(token, OWN)
    assert principal is not None
    assert (principal.scopes, principal.origin, principal.server) == (frozenset({"serve"}), OWN, "demo")
    assert tokens.identify(token, "http://localhost:4747") is None
    assert tokens.identify(token, "null") is None


def test_a_same_origin_get_which_has_no_origin_header_still_counts(home: Path) -> None:
    tokens = Tokens(home)
    assert tokens.identify(tokens.issue(OWN, None, ["serve"]), None) is not None


def test_issued_tokens_are_kept_as_digests_only_and_survive_a_restart(home: Path) -> None:
    token = Tokens(home).issue(OWN, None, ["serve"])
    text = (home / "pairs.json").read_text()
    assert token not in text
    assert json.loads(text)["pairs"][0]["origin"] == OWN
    assert Tokens(home).identify(token, OWN) is not None


def test_two_relays_with_one_state_directory_know_each_others_pages(home: Path) -> None:
    one, two = Tokens(home), Tokens(home)
    first = one.issue(OWN, None, ["serve"])
    second = two.issue(OWN, None, ["serve"])
    assert one.identify(second, OWN) is not None
    assert two.identify(first, OWN) is not None


def test_a_pair_that_was_removed_from_the_file_is_gone_at_once(home: Path) -> None:
    tokens = Tokens(home)
    token = tokens.issue(OWN, None, ["serve"])
    (home / "pairs.json").write_text('{"pairs": []}')
    assert tokens.identify(token, OWN) is None


def test_only_the_newest_pairs_are_kept(home: Path) -> None:
    tokens = Tokens(home)
    issued = [tokens.issue(OWN, None, ["serve"]) for _ in range(MAX_PAIRS + 1)]
    assert tokens.identify(issued[0], OWN) is None
    assert tokens.identify(issued[1], OWN) is not None
    assert len(tokens.pairs()) == MAX_PAIRS


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pairs": [1]}', '{"pairs": [{"sha256": "x"}]}', "\x00"])
def test_a_damaged_list_of_pairs_only_means_pairing_again(home: Path, text: str) -> None:
    home.mkdir()
    (home / "pairs.json").write_text(text)
    tokens = Tokens(home)
    assert tokens.identify("tr_" + "A" * 43, None) is None
    assert tokens.identify(tokens.issue(OWN, None, ["serve"]), OWN) is not None


def test_a_code_becomes_a_serve_token_of_that_origin(home: Path) -> None:
    tokens = Tokens(home)
    got = tokens.redeem(tokens.mint("demo", OPENER_TTL_S, 100.0), OWN, 100.0)
    assert isinstance(got, Redeemed)
    assert got.server == "demo"
    principal = tokens.identify(got.token, OWN)
    assert principal is not None
    assert (principal.scopes, principal.origin, principal.server) == (frozenset({"serve"}), OWN, "demo")


def test_a_code_works_once(home: Path) -> None:
    tokens = Tokens(home)
    code = tokens.mint(None, OPENER_TTL_S, 100.0)
    assert isinstance(tokens.redeem(code, OWN, 100.0), Redeemed)
    assert tokens.redeem(code, OWN, 100.0) is CodeProblem.UNKNOWN


def test_a_code_ends_and_says_so(home: Path) -> None:
    tokens = Tokens(home)
    code = tokens.mint(None, OPENER_TTL_S, 100.0)
    assert tokens.redeem(code, OWN, 100.0 + OPENER_TTL_S) is CodeProblem.EXPIRED
    assert not (home / "pairs.json").exists()


def test_a_code_has_128_bits_and_few_are_pending(home: Path) -> None:
    tokens = Tokens(home)
    codes = [tokens.mint(None, OPENER_TTL_S, 100.0) for _ in range(MAX_PENDING + 1)]
    assert all(len(code) == 22 for code in codes)
    assert tokens.redeem(codes[0], OWN, 100.0) is CodeProblem.UNKNOWN
    assert isinstance(tokens.redeem(codes[1], OWN, 100.0), Redeemed)
