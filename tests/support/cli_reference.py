"""Reference of the command line, from its parser: every command, action, argument and flag, with its example."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tabrelay.cli.main import _parser


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield inner
                yield from parsers(inner)


def section(parser: argparse.ArgumentParser) -> str:
    level = "##" if parser.prog.count(" ") == 1 else "###"
    lines = [f"{level} `{parser.prog}`", "", parser.description or "", "", "```sh", *_examples(parser), "```", ""]
    rows = [_row(action) for action in parser._actions if not isinstance(action, argparse._SubParsersAction)]
    rows = [row for row in rows if row]
    if rows:
        lines += ["| | |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _examples(parser: argparse.ArgumentParser) -> list[str]:
    text = (parser.epilog or "").partition("Example:\n")[2]
    return [line.removeprefix("  ") for line in text.rstrip().splitlines()]


def _row(action: argparse.Action) -> str:
    if isinstance(action, argparse._HelpAction):
        return ""
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
    name = value or action.dest.upper()
    if action.option_strings:
        word = "" if action.nargs == 0 else f" {name if isinstance(name, str) else name[0]}"
        name = ", ".join(f"{option}{word}" for option in action.option_strings)
    elif action.nargs in ("*", "?"):
        name = f"[{name}]" + ("…" if action.nargs == "*" else "")
    about = (action.help or "").replace("|", "\\|")
    return f"| `{str(name).replace('|', chr(92) + '|')}` | {about} |"


def generated() -> str:
    return "\n".join(section(parser) for parser in parsers(_parser())) + "\n"
