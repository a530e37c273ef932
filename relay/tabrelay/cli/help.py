"""`tabrelay help`: prints the help of the program, of a command or of one of its actions.

The same text as with --help, which the parsers make.
"""

from __future__ import annotations

import argparse
from typing import Any

from tabrelay.cli import flags
from tabrelay.cli.output import OK


def add(commands: Any) -> None:
    parser = flags.add_command(commands, "help", "Explain the program or a command.", "tabrelay help call")
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="a command, and an action of it")
    parser.set_defaults(run=_help)


def _help(args: argparse.Namespace) -> int:
    parser = args.whole()
    for word in args.words:
        choices = flags.choices_of(parser)
        if word not in choices:
            parser.refuse_choice(word, choices)
        parser = choices[word]
    parser.print_help()
    return OK
