"""Argument parsers of the commands: errors of two lines with a suggestion, and the grouped help of the program.

The first line of an error says what is wrong, the second one what to write instead. Values are checked by the commands.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, NoReturn

from tabrelay.cli import colours
from tabrelay.cli.output import HELP, USAGE
from tabrelay.system.program import command

_CHOICE: Final = re.compile(r"argument (?P<name>.+?): invalid choice: (?P<given>.+?) \(choose from .*\)", re.DOTALL)
_MISSING: Final = "the following arguments are required: "
CLOSE: Final = 0.7


class Parser(argparse.ArgumentParser):
    """With `mixes`, flags may be between optional arguments; argparse alone would treat these as omitted.

    An unknown flag is reported with a similar one if there is one. So is a misspelt flag when an argument is missing
    too; argparse alone would report only the argument.
    """

    mixes = False
    advice = ""  # for flags that the command does not know
    _is_inside = False
    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._is_inside:  # parse_known_intermixed_args calls this again, with a part of the arguments
            return super().parse_known_args(args, namespace)
        self._is_inside = True
        self._given = sys.argv[1:] if args is None else args
        try:
            read = self.parse_known_intermixed_args if self.mixes else super().parse_known_args
            found, unknown = read(args, namespace)
        finally:
            self._is_inside = False
        if unknown:
            self._refuse(unknown)
        return found, unknown

    def error(self, message: str) -> NoReturn:
        if misspelt := self._misspelt():
            self._given = ()
            self._refuse(misspelt)
        if found := _CHOICE.fullmatch(message):
            given = found["given"].strip("'\"")
            action = next((one for one in self._actions if _name_of(one) == found["name"]), None)
            if isinstance(action, argparse._SubParsersAction):
                self.refuse_choice(given, action.choices)
            known = [str(choice) for choice in (action.choices if action is not None else None) or ()]
            meant = _meant([given], known)
            self._end(f"{found['name']}: {given!r} is not one of {', '.join(known)}.", meant or self._all())
        if message.startswith(_MISSING):
            names = message.removeprefix(_MISSING).split(", ")
            verb = "is" if len(names) == 1 else "are"
            self._end(f"{' and '.join(names)} {verb} missing.", f"Example: {self._example()}")
        if message.startswith("ambiguous option: ") and self.advice:
            self._refuse([message.removeprefix("ambiguous option: ").split()[0]])
        message = re.sub(r"invalid int value: (.*)", r"\1 is not a whole number", message)
        self._end(message.removeprefix("argument ") + ".", self._all())

    def refuse_choice(self, given: str, known: Mapping[str, Any]) -> NoReturn:
        """A word that is no command, or no action of this command."""
        what = "a command" if " " not in self.prog else f"an action of {self.prog}"
        actions = [name for name in known if not name.startswith("_")]
        listed = f"There are: {', '.join(actions)}" if " " in self.prog else f"All commands: {self.prog} --help"
        self._end(f"{given!r} is not {what}.", _meant([given], actions) or listed)

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        flags = [text.partition("=")[0] for text in unknown if text.startswith("--")]
        meant = _meant(flags, [name for name in self._option_string_actions if name.startswith("--")])
        self._end(f"unrecognized arguments: {' '.join(unknown)}", meant or self.advice or self._all())

    def _end(self, what: str, hint: str) -> NoReturn:
        colour = colours.for_stream(sys.stderr)
        hint = re.sub(r"(?<![\w/.-])tabrelay(?= )", lambda _: command(), hint)
        more = f"Help: {command()} help {HELP[USAGE]}"
        self.exit(USAGE, f"{colour('red', self.prog)}: {what}\n{hint}\n{more}\n")

    def _all(self) -> str:
        return f"All flags: {self.prog} --help"

    def _example(self) -> str:
        lines = (self.epilog or "").partition("Example:\n")[2].strip().splitlines()
        return lines[0].strip() if lines else f"{self.prog} --help"

    def _misspelt(self) -> list[str]:
        """Unknown flags. With subcommands, only those before the subcommand: it parses the rest."""
        own = self._given
        if any(isinstance(action, argparse._SubParsersAction) for action in self._actions):
            own = list(takewhile(lambda text: text.startswith("-"), own))
        flags = [text.partition("=")[0] for text in takewhile(lambda text: text != "--", own) if text.startswith("--")]
        known = self._option_string_actions  # argparse accepts unique prefixes
        return [flag for flag in flags if not any(name.startswith(flag) for name in known)]


class ProgramParser(Parser):
    """The parser of the whole program: its help lists the commands by purpose."""

    def __init__(self, groups: Mapping[str, Sequence[str]], examples: Sequence[tuple[str, str]], **more: Any) -> None:
        super().__init__(**more)
        self._groups = groups
        self._examples = examples

    def format_help(self) -> str:
        colour = colours.for_stream(sys.stdout)
        abouts = _abouts(self)
        width = max((len(name) for name in abouts), default=0)
        lines = [str(self.description), "", f"{colour('bold', 'Usage:')} {self.prog} COMMAND [ARGUMENTS]"]
        for title, names in self._groups.items():
            lines += ["", colour("bold", f"{title}:")]
            lines += [
                f"  {colour('cyan', name)}{' ' * (width - len(name))}  {abouts[name]}"
                for name in names
                if name in abouts
            ]
        wide = max((len(example) for example, _ in self._examples), default=0)
        lines += ["", colour("bold", "Examples:")]
        lines += [f"  {example:<{wide}}  {about}" for example, about in self._examples]
        lines += ["", f"All flags of a command: {self.prog} help COMMAND", f"The version: {self.prog} --version"]
        return "\n".join(lines) + "\n"


def add_command(commands: Any, name: str, about: str, example: str) -> Parser:
    parser: Parser = commands.add_parser(
        name,
        help=about,
        description=about,
        epilog=f"Example:\n  {example}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def choices_of(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    """The commands of a parser, or the actions of a command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _abouts(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Each command with the first sentence of its description."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {one.dest: (one.help or "").partition(". ")[0].rstrip(".") for one in action._choices_actions}
    return {}


def _name_of(action: argparse.Action) -> str | None:
    return "/".join(action.option_strings) or (action.metavar if isinstance(action.metavar, str) else action.dest)


def _meant(given: Sequence[str], known: Sequence[str]) -> str:
    from difflib import get_close_matches

    close = [match for text in given for match in get_close_matches(text, known, 1, CLOSE) if text not in known]
    return f"Did you mean {' and '.join(close)}?" if close else ""
