"""Colour: on a terminal, unless the environment decides otherwise."""

from __future__ import annotations

from io import StringIO

import pytest

from tabrelay.cli import colours, status
from tabrelay.cli.output import table


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("env", "on_terminal", "in_pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"CLICOLOR_FORCE": "0"}, True, False),
        ({"CLICOLOR": "0"}, False, False),
        ({"TERM": "dumb"}, False, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
    ],
)
def test_the_environment_turns_colour_on_and_off(env: dict[str, str], on_terminal: bool, in_pipe: bool) -> None:
    assert colours.is_on(Terminal(), env) is on_terminal
    assert colours.is_on(StringIO(), env) is in_pipe


def test_colour_of_a_cell_takes_no_room() -> None:
    rows = [("a", "up"), ("bb", "down")]
    plain = table(("NAME", "STATE"), rows)
    coloured = table(("NAME", "STATE"), rows, lambda column, cell: f"\x1b[2m{cell}\x1b[0m" if column == 0 else cell)
    assert coloured.splitlines()[1] == "\x1b[2ma\x1b[0m     up"
    assert coloured.replace("\x1b[2m", "").replace("\x1b[0m", "") == plain


def test_the_state_of_a_server_has_its_colour_and_texts_of_servers_have_none() -> None:
    def row(name: str, state: str, **more: object) -> dict[str, object]:
        return {"name": name, "state": state, "tools": [], "mcp_url": f"http://x/{name}", "since_s": 3.0, **more}

    failed = {"connection": "failed", "attempts": 2, "next_retry_s": None, "error": "\x1b[2Jgone"}
    servers = [row("up", "online"), row("quiet", "idle"), row("away", "offline"), row("broken", "offline", **failed)]
    found = {"version": "1", "url": "http://x", "servers": servers}
    lines = status.text(found, colours.Colours(True)).splitlines()
    assert "\x1b[32monline for 3 s\x1b[0m" in lines[3]
    assert "\x1b[33midle for 3 s, no page is open\x1b[0m" in lines[4]
    assert "\x1b[2moffline for 3 s\x1b[0m" in lines[5]
    assert "\x1b[31moffline, failed, 2 attempts\x1b[0m" in lines[6]
    assert lines[-1] == "broken: \\x1b[2Jgone"
    assert "\x1b" not in status.text(found)


def test_without_colour_a_text_stays_as_it_is() -> None:
    assert colours.PLAIN("red", "text") == "text"
    assert colours.Colours(True)("red", "text") == "\x1b[31mtext\x1b[0m"
