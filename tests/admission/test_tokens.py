"""The token file, issued tokens, and pairing codes."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest

from tabrelay.admission.pairing_codes import MAX_PENDING, OPENER_TTL_S, PairingCodeError
from tabrelay.admission.token_store import MAX_NAMED, MAX_PAGES
from tabrelay.admission.tokens import Redeemed, StateError, Tokens, TokenStoreError
from tabrelay.system.program import command

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
        Tokens(home).issue_for_page(OWN, None, ["serve"])
    finally:
        os.umask(old)
    assert mode(home) == 0o700
    assert mode(home / "token") == 0o600
    assert mode(home / "tokens.json") == 0o600
    assert sorted(file.name for file in home.iterdir()) == [".lock", "token", "tokens.json"]


@posix
def test_a_token_file_that_others_could_read_is_closed_again(home: Path) -> None:
    Tokens(home).master()
    (home / "token").chmod(0o644)
    home.chmod(0o755)
    Tokens(home).master()
    assert mode(home / "token") == 0o600
    assert mode(home) == 0o700


OTHER_USER = 4242
root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")


@posix
@pytest.mark.parametrize("name", ["token", "session.key"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_in_place_of_a_secret_is_not_followed(home: Path, name: str, is_there: bool) -> None:
    tokens = Tokens(home)
    tokens.master()
    target = home.parent / "target"
    if is_there:
        target.write_text("tr_" + "A" * 43 + "\n")
        target.chmod(0o644)
    (home / name).unlink(missing_ok=True)
    (home / name).symlink_to(target)
    with pytest.raises(StateError, match="is a link"):
        Tokens(home).master() if name == "token" else Tokens(home).session_key()
    # The target of the link is neither created nor changed.
    assert target.exists() is is_there
    assert not is_there or mode(target) == 0o644
    assert name != "token" or tokens.identify("tr_" + "A" * 43, None) is None


@posix
def test_a_pipe_in_place_of_the_token_is_reported_and_not_waited_for(home: Path) -> None:
    home.mkdir(mode=0o700)
    os.mkfifo(home / "token", 0o600)
    with pytest.raises(StateError, match="not a regular file"):
        Tokens(home).master()


@root
def test_a_token_file_of_another_user_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = "tr_" + "A" * 43
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    (home / "token").write_text(known + "\n")
    os.chown(home / "token", OTHER_USER, OTHER_USER)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StateError, match="another user"):
        Tokens(home).master()
    assert Tokens(home).identify(known, None) is None
    assert mode(home) == 0o700


@root
def test_a_token_list_of_another_user_admits_no_client(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = Tokens(home).issue_named("ci", ["call"])
    assert Tokens(home).identify(token, None) is not None
    os.chown(home / "tokens.json", OTHER_USER, OTHER_USER)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Tokens(home).identify(token, None) is None


@root
def test_a_state_directory_of_another_user_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Tokens(home).master()
    os.chown(home, OTHER_USER, OTHER_USER)
    Tokens(home).master()  # root may use it, as is common in containers
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StateError, match="another user"):
        Tokens(home).master()


@posix
def test_a_token_file_that_is_swapped_while_it_is_read_is_the_one_that_was_checked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Tokens(home).master()
    looked = os.fstat

    def swap(handle: int) -> os.stat_result:
        found = looked(handle)
        other = home / "other"
        other.write_text("tr_" + "B" * 43 + "\n")
        other.chmod(0o666)
        other.replace(home / "token")
        return found

    tokens = Tokens(home, check_every_s=0)
    monkeypatch.setattr(os, "fstat", swap)
    assert tokens.master() == first
    monkeypatch.undo()
    assert tokens.master() == "tr_" + "B" * 43  # from the next check on
    assert mode(home / "token") == 0o600


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
    assert principal.scopes == {"call", "serve", "manage", "metrics", "admin"}
    assert tokens.master() not in principal.id


@pytest.mark.parametrize("token", ["", "x", "tr_" + "A" * 43, "\ud800", "ü"])
def test_a_token_that_was_not_issued_has_no_principal(home: Path, token: str) -> None:
    assert Tokens(home).identify(token, None) is None


def test_a_bound_token_is_unknown_to_other_origins(home: Path) -> None:
    tokens = Tokens(home)
    token = tokens.issue_for_page(OWN, "demo", ["serve"])
    principal = tokens.identify(token, OWN)
    assert principal is not None
    assert (principal.scopes, principal.origin, principal.servers) == (frozenset({"serve"}), OWN, frozenset({"demo"}))
    assert tokens.identify(token, "http://localhost:4747") is None
    assert tokens.identify(token, "null") is None


def test_a_same_origin_get_which_has_no_origin_header_still_counts(home: Path) -> None:
    tokens = Tokens(home)
    assert tokens.identify(tokens.issue_for_page(OWN, None, ["serve"]), None) is not None


def test_issued_tokens_are_kept_as_digests_only_and_survive_a_restart(home: Path) -> None:
    token = Tokens(home).issue_for_page(OWN, None, ["serve"])
    text = (home / "tokens.json").read_text()
    assert token not in text
    assert json.loads(text)["grants"][0]["origin"] == OWN
    assert Tokens(home).identify(token, OWN) is not None


def test_two_relays_with_one_state_directory_know_each_others_pages(home: Path) -> None:
    one, two = Tokens(home), Tokens(home)
    first = one.issue_for_page(OWN, None, ["serve"])
    second = two.issue_for_page(OWN, None, ["serve"])
    assert one.identify(second, OWN) is not None
    assert two.identify(first, OWN) is not None


def test_a_pair_that_was_removed_from_the_file_is_gone_at_once(home: Path) -> None:
    tokens = Tokens(home, check_every_s=0)
    token = tokens.issue_for_page(OWN, None, ["serve"])
    (home / "tokens.json").write_text('{"grants": []}')
    assert tokens.identify(token, OWN) is None


def test_only_the_newest_pairs_are_kept(home: Path) -> None:
    tokens = Tokens(home)
    issued = [tokens.issue_for_page(OWN, None, ["serve"]) for _ in range(MAX_PAGES + 1)]
    assert tokens.identify(issued[0], OWN) is None
    assert tokens.identify(issued[1], OWN) is not None
    assert len(tokens.issued()) == MAX_PAGES


DAMAGED = ["", "[]", "{}", '{"grants": [1]}', '{"grants": [{"sha256": "x"}]}', '{"grants": [{"sha256": 1}]}', "\x00"]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_list_admits_no_client_and_a_new_one_is_started(home: Path, text: str) -> None:
    home.mkdir()
    (home / "tokens.json").write_text(text)
    tokens = Tokens(home)
    assert tokens.identify("tr_" + "A" * 43, None) is None
    assert tokens.identify(tokens.issue_for_page(OWN, None, ["serve"]), OWN) is not None


def test_a_code_becomes_a_token_of_that_origin_which_may_not_call(home: Path) -> None:
    tokens = Tokens(home)
    got = tokens.redeem(tokens.mint("demo", OPENER_TTL_S, 100.0), OWN, 100.0)
    assert isinstance(got, Redeemed)
    assert got.server == "demo"
    principal = tokens.identify(got.token, OWN)
    assert principal is not None
    assert principal.scopes == frozenset({"serve", "manage"})
    assert (principal.origin, principal.servers) == (OWN, frozenset({"demo"}))


def test_a_code_works_once(home: Path) -> None:
    tokens = Tokens(home)
    code = tokens.mint(None, OPENER_TTL_S, 100.0)
    assert isinstance(tokens.redeem(code, OWN, 100.0), Redeemed)
    assert tokens.redeem(code, OWN, 100.0) is PairingCodeError.UNKNOWN


def test_an_expired_code_is_reported_as_expired(home: Path) -> None:
    tokens = Tokens(home)
    code = tokens.mint(None, OPENER_TTL_S, 100.0)
    assert tokens.redeem(code, OWN, 100.0 + OPENER_TTL_S) is PairingCodeError.EXPIRED
    assert not (home / "tokens.json").exists()


def test_a_code_has_128_bits_and_few_are_pending(home: Path) -> None:
    tokens = Tokens(home)
    codes = [tokens.mint(None, OPENER_TTL_S, 100.0) for _ in range(MAX_PENDING + 1)]
    assert all(len(code) == 22 for code in codes)
    assert tokens.redeem(codes[0], OWN, 100.0) is PairingCodeError.UNKNOWN
    assert isinstance(tokens.redeem(codes[1], OWN, 100.0), Redeemed)


# --- tokens with names


def test_a_named_token_is_for_its_scope_and_its_servers(home: Path) -> None:
    tokens = Tokens(home)
    principal = tokens.identify(tokens.issue_named("laptop", ["call"], ["notes", "maps"]), None)
    assert principal is not None
    assert (principal.id, principal.scopes, principal.servers) == (
        "token:laptop",
        frozenset({"call"}),
        frozenset({"notes", "maps"}),
    )
    everywhere = tokens.identify(tokens.issue_named("ci", ["call"]), None)
    assert everywhere is not None and everywhere.servers is None


def test_a_named_token_for_no_server_is_for_none_and_not_for_all(home: Path) -> None:
    tokens = Tokens(home)
    principal = tokens.identify(tokens.issue_named("nothing", ["call"], []), None)
    assert principal is not None
    assert not principal.may_see("notes")


@pytest.mark.parametrize("name", ["default", "", "a b", "-x", "ä", "x" * 65, "a\nb"])
def test_a_name_that_cannot_be_used_is_refused(home: Path, name: str) -> None:
    with pytest.raises(TokenStoreError):
        Tokens(home).issue_named(name, ["call"])


def test_two_tokens_cannot_have_one_name_until_the_first_is_revoked(home: Path) -> None:
    tokens = Tokens(home)
    first = tokens.issue_named("laptop", ["call"])
    with pytest.raises(TokenStoreError, match="already"):
        tokens.issue_named("laptop", ["call"])
    assert [grant.name for grant in tokens.revoke(lambda grant: grant.name == "laptop")] == ["laptop"]
    second = tokens.issue_named("laptop", ["call"])
    assert tokens.identify(first, None) is None
    assert tokens.identify(second, None) is not None


def test_named_tokens_are_bounded(home: Path) -> None:
    tokens = Tokens(home)
    rows = [{"sha256": f"{n:064x}", "scopes": [], "created": 0, "name": f"t{n}"} for n in range(MAX_NAMED)]
    rest = {"origin": None, "servers": None, "expires": None}
    home.mkdir()
    (home / "tokens.json").write_text(json.dumps({"grants": [row | rest for row in rows]}))
    with pytest.raises(TokenStoreError, match=re.escape(f"Revoke one first: {command()} token list")):
        tokens.issue_named("more", ["call"])


def test_a_token_ends_at_its_time(home: Path) -> None:
    now = [1000.0]
    tokens = Tokens(home, wall=lambda: now[0])
    token = tokens.issue_named("guest", ["call"], life_s=60)
    principal = tokens.identify(token, None)
    assert principal is not None and tokens.is_valid(principal)
    now[0] += 60
    assert tokens.identify(token, None) is None
    assert not tokens.is_valid(principal)


def test_pages_that_pair_again_and_again_push_out_no_named_token(home: Path) -> None:
    tokens = Tokens(home)
    token = tokens.issue_named("laptop", ["call"])
    for _ in range(MAX_PAGES + 1):
        tokens.issue_for_page(OWN, None, ["serve"])
    assert tokens.identify(token, None) is not None


def test_a_token_revoked_by_another_process_is_refused_at_once_and_reported(home: Path) -> None:
    here, there = Tokens(home, check_every_s=0), Tokens(home)
    token = here.issue_named("laptop", ["call"])
    principal = here.identify(token, None)
    told: list[set[str]] = []
    here.on_revoked.append(told.append)
    there.revoke(lambda grant: grant.name == "laptop")
    assert here.identify(token, None) is None
    assert principal is not None and not here.is_valid(principal)
    assert told == [{"token:laptop"}]


def test_a_page_that_was_paired_twice_is_gone_only_with_its_last_token(home: Path) -> None:
    tokens = Tokens(home)
    tokens.issue_for_page(OWN, "a", ["serve"])
    tokens.issue_for_page(OWN, "b", ["serve"])
    told: list[set[str]] = []
    tokens.on_revoked.append(told.append)
    tokens.revoke(lambda grant: grant.servers == ("a",))
    tokens.revoke(lambda grant: grant.servers == ("b",))
    assert told == [set(), {f"page:{OWN}"}]


@pytest.mark.parametrize("how", ["renewed", "deleted"])
def test_the_relays_own_token_can_be_replaced_while_the_relay_runs(home: Path, how: str) -> None:
    running, command = Tokens(home, check_every_s=0), Tokens(home)
    old = running.master()
    principal = running.identify(old, None)
    if how == "renewed":
        new = command.renew_master()
    else:
        (home / "token").unlink()
        new = command.master()
    assert new != old
    assert running.identify(old, None) is None
    assert running.identify(new, None) is not None
    assert principal is not None and not running.is_valid(principal)


def test_a_token_file_that_is_damaged_while_the_relay_runs_admits_no_client(home: Path) -> None:
    tokens = Tokens(home, check_every_s=0)
    old, named = tokens.master(), tokens.issue_named("laptop", ["call"])
    principal = tokens.identify(old, None)
    (home / "token").write_text("short")
    assert tokens.identify(old, None) is None
    assert principal is not None and not tokens.is_valid(principal)
    assert tokens.identify("short", None) is None
    assert tokens.identify(named, None) is not None
