"""docs/reference/threats.md: every row names existing tests, and every mutation has its marker."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.mutations import MUTATIONS, Mutation
from tests.mutations.mutation import marked

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "threats.md"
MODEL = ROOT / "docs" / "concepts" / "security.md"
# A row that is removed from the page would be a defence without a check.
ATTACKERS = {
    "a malicious page",
    "a route that is not listed",
    "a page that probes which servers exist",
    "DNS rebinding",
    "a program with a token that sends the relay's own routes",
    "a page with the embed widget of MCP-B, or a program that pretends",
    "a wheel that was replaced, or a page that reads the packages of another",
    "code of an app that `tabrelay dev` serves",
    "the port on which `tabrelay demo` serves its example",
    "a page, or code that got into one, that calls the tools of other servers",
    "a page on another port",
    "an MCP server that names another authorization server",
    "a page whose framework offers tools for debugging",
    "another user of this computer",
    "a program that takes the port",
    "a program that fills the disk or deletes the call log",
    "a browser's worker that reports wrong times",
    "a token with the scope `manage` that runs calls",
    "a console that holds calls and disappears",
    "a page or program that cuts or delays the links of others",
    "a page or program that reads what other clients call",
    "two relays that rotate one log file at once",
    "a malicious server (page or upstream): lists",
    "a malicious server: a description of itself",
    "ids, tokens and texts that are too long, or no Unicode",
    "a client or server whose messages have params of any type",
    "a malicious server: tools that change later",
    "a malicious server: reaching into another",
    "payload bombs",
    "many who come at once",
    "one message that takes long to parse",
    "an upstream server: messages that take long to parse",
    "many small messages in one read; large tables",
    "messages that take long to parse, in",
    "a client or browser that does not read",
    "a malicious client",
    "slow connections",
    "a page or client that makes state files large",
    "a client that opens sessions until",
    "a server that asks its clients without end",
    "a client or page that fills a table",
    "a client that looks for another's tasks",
    "a server whose lists are many small values",
    "a client without a token that takes all connections",
    "request smuggling",
    "a stop of the relay under load",
    "trailers, tiny chunks and pipelined requests without end",
    "a page or program that uses the approval of another origin",
    "a page that takes the name of a browser without tabs",
    "a refused page that writes into the terminal, the log or a command",
    "a stranger who opens server addresses in a browser",
    "a thief of tokens",
    "a thief of sessions",
    "a token that was given back",
    "a malicious server: text that models read and people do not see",
    "a guessed or forged pairing ticket",
    "a child process that outlives a relay that was killed",
    "a program that keeps other pages from being paired",
    "a full disk at the moment a page collects its token",
    "a client that takes the name of another to use its approval",
    "a page that takes another's approval",
    "a program that reads the bus's password",
    "a page that takes another's name",
    "a client that reads another's stream",
    "a program of the playground, or its author",
    "markup in the texts of tools",
    "an app that the console shows",
    "a page with the embed widget",
    "an agent that does what it should not",
    "a caller that relies on an earlier decision",
    "a forged or foreign access token",
}


def rows() -> list[tuple[str, str, str]]:
    table = PAGE.read_text(encoding="utf-8").partition("## Threats")[2].partition("\n## ")[0]
    cells = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return [(cell[0].strip(), cell[1].strip(), cell[2].strip()) for cell in cells[1:]]


@cache
def _names(path: str) -> frozenset[str]:
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE))


def test_every_attacker_has_a_row() -> None:
    missing = {name for name in ATTACKERS if not any(row[0].startswith(name) for row in rows())}
    assert missing == set()
    assert len(rows()) == len(ATTACKERS)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_defence_has_tests_that_exist(row: tuple[str, str, str]) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[2])
    assert row[1] and named
    gone = [f"{path}::{test}" for path, test in named if test not in _names(path)]
    assert gone == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_defence_that_can_be_removed_is_marked_once(mutation: Mutation) -> None:
    """`python -m tests.mutations` runs the tests without it, which takes too long for a test."""
    assert len(marked().get(mutation.name, [])) == 1
    files, _, words = mutation.tests.partition(" -k ")
    for test in files.split():
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file() and _names(path), test
        assert not name or name in _names(path), test
    # A word may also be part of the id of a parameter.
    texts = "".join((ROOT / path).read_text(encoding="utf-8") for path in re.findall(r"tests/[\w/]+\.py", files))
    assert len(words.split()) <= 1 and words in texts, words


def test_no_two_mutations_have_the_same_name() -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_every_marker_belongs_to_a_mutation() -> None:
    assert set(marked()) - {mutation.name for mutation in MUTATIONS} == set()


def test_mutations_are_programs_whose_names_are_all_defined(tmp_path: Path) -> None:
    """A mutant that fails for a misspelt name would prove nothing."""
    for number, mutation in enumerate(MUTATIONS):
        [file] = marked()[mutation.name]
        if file.endswith(".py"):
            text = mutation.apply((ROOT / file).read_text(encoding="utf-8"))
            (tmp_path / f"m{number}.py").write_text(text, encoding="utf-8")
    command = [
        str(Path(sys.executable).with_name("ruff")),
        "check",
        "--isolated",
        "--select",
        "F821,F822",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", [PAGE, MODEL], ids=lambda page: page.stem)
def test_links_of_the_pages_have_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
