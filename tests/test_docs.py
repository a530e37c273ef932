"""docs/reference/settings.md has every setting with its default and every limit with its effect;
docs/reference/config.md has every key of a server."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from tabrelay.cli.main import _parser
from tabrelay.config.formats import ROOTS
from tabrelay.config.reader import load
from tabrelay.config.server_entry import BROWSER_KEYS, HTTP_KEYS, KINDS, STDIO_KEYS, UPSTREAM_KEYS
from tabrelay.config.settings import Settings
from tests.support.cli_reference import generated, parsers

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"
CONFIG = PAGE.with_name("config.md")
COMMANDS = PAGE.with_name("cli.md")
COMMAND_BLOCK = re.compile(r"(?<=<!-- cli -->\n).*?(?=<!-- /cli -->)", re.DOTALL)
BLOCK = re.compile(r"(?<=<!-- settings -->\n).*?(?=<!-- /settings -->)", re.DOTALL)
SIZES = {
    "max_hello",
    "max_message",
    "max_part",
    "max_header",
    "max_body",
    "log_max",
    "replay_bytes",
    "replay_budget",
    "send_queue",
    "body_budget",
    "call_budget",
    "max_list",
    "max_description",
    "max_subscribed",
    "question_budget",
    "catalogue_budget",
}
# Intervals: no request can exceed them.
NO_LIMITS = {"heartbeat_s", "workers", "keepalive_s", "drain_s", "drain_pause_s", "drain_spread_s", "max_part"}
# Limits of pages that use plain MCP: described in plain-peers.md.
PLAIN = {"greet_s", "park_s", "park_caller"}


def flags() -> dict[str, str]:
    """The flag of each setting that has one, from the commands that start a relay."""
    found: dict[str, str] = {}
    verbs = next(action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    for verb in ("demo", "serve"):
        for action in verbs.choices[verb]._actions:
            name = action.option_strings[-1] if action.option_strings else "NAME…"
            found.setdefault(action.dest, name)
    return found


def shown(item: Field[Any]) -> str:
    default = item.default
    if default is MISSING:
        return "the user's config directory"
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple):
        return "none"
    if item.name in SIZES:
        return next(
            f"{default // size} {unit}" for size, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")) if default >= size
        )
    if item.name.endswith("_s"):
        return f"{default:g} s"
    return f"{default:,}" if isinstance(default, int) and item.name != "port" else str(default)


def table() -> str:
    by_flag = flags()
    rows = ["| setting | flag | environment | default | meaning |", "|---|---|---|---|---|"]
    for item in fields(Settings):
        flag = f"`{by_flag[item.name]}`" if item.name in by_flag else ""
        environment = f"`TABRELAY_{item.name.upper()}`"
        rows.append(f"| `{item.name}` | {flag} | {environment} | {shown(item)} | {item.metadata['help']} |")
    return "\n".join(rows) + "\n"


def test_the_table_of_settings_is_the_programs() -> None:
    """Run with TABRELAY_WRITE_DOCS=1 to write it again."""
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        text = BLOCK.sub(lambda _: table(), text)
        PAGE.write_text(text, encoding="utf-8")
    assert BLOCK.findall(text) == [table()]


def test_every_limit_has_a_description_of_what_happens_at_it() -> None:
    told = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8").partition("## What happens at a limit")[2]))
    limits = {item.name for item in fields(Settings) if isinstance(item.default, int | float)}
    limits -= (
        {"port", "no_auth", "open_browser", "json", "watch", "call_log_arguments", "metrics", "traces", "fast_lane"}
        | {"inspect", "faults"}
        | NO_LIMITS
        | PLAIN
    )
    assert limits - told == set()


def test_every_setting_is_used() -> None:
    relay = PAGE.parents[2] / "relay" / "tabrelay"
    code = "\n".join(path.read_text() for path in relay.rglob("*.py") if path.name != "config.py")
    unused = [item.name for item in fields(Settings) if not re.search(rf"settings\.{item.name}\b", code)]
    assert unused == []


def test_every_key_of_a_server_is_documented_with_the_kinds_that_have_it() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \|", CONFIG.read_text(encoding="utf-8"), re.MULTILINE))
    rows = ((("type", "enabled"), "all"), (BROWSER_KEYS, "browser"), (STDIO_KEYS, "stdio"), (HTTP_KEYS, "http, sse"))
    expected = {key: kinds for keys, kinds in rows for key in keys} | dict.fromkeys(UPSTREAM_KEYS, "stdio, http, sse")
    assert told == expected


def test_every_kind_and_form_that_is_read_is_documented() -> None:
    text = CONFIG.read_text(encoding="utf-8")
    assert {kind for kind in ("browser", "plain", "stdio", "http", "sse") if f"`{kind}`" not in text} == set()
    assert set(KINDS.values()) == {"browser", "stdio", "http", "sse", "auto"}
    assert [root for root, _program, _change in ROOTS if root not in text] == []


def test_the_example_configuration_has_no_mistakes(tmp_path: Path) -> None:
    [example] = re.findall(r"```toml\n(.*?)```", CONFIG.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "tabrelay.toml"
    path.write_text(example)
    servers = load([path], env={"HOME": "/somewhere", "SEARCH_TOKEN": "x"}).servers
    assert [(name, spec.kind) for name, spec in servers.items()] == [
        ("notes", "browser"),
        ("files", "stdio"),
        ("search", "http"),
    ]


def test_the_page_of_commands_is_the_parsers() -> None:
    """Run with TABRELAY_WRITE_DOCS=1 to write it again."""
    text = COMMANDS.read_text(encoding="utf-8")
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        text = COMMAND_BLOCK.sub(lambda _: generated(), text)
        COMMANDS.write_text(text, encoding="utf-8")
    assert COMMAND_BLOCK.findall(text) == [generated()]


def test_every_flag_has_a_description() -> None:
    silent = [
        f"{parser.prog} {action.dest}"
        for parser in parsers(_parser())
        for action in parser._actions
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert silent == []


def test_each_decision_has_a_number_of_its_own_that_is_also_in_its_title() -> None:
    pages = sorted((PAGE.parents[1] / "adr").glob("*.md"))
    titled = {page.name: page.read_text(encoding="utf-8").partition(".")[0] for page in pages}
    assert titled == {name: f"# {int(name[:4])}" for name in titled}
    assert len({name[:4] for name in titled}) == len(titled)
