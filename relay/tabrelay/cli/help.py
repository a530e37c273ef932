"""`tabrelay help`: prints the help of the program, of a command or one of its actions, or of the code of an error.

For commands, the same text as with --help, which the parsers make. For codes, the entry of the reference, which is part
of the program: no relay and no network is needed.
"""

from __future__ import annotations

import argparse
from typing import Any

from tabrelay.cli import error_entries, flags
from tabrelay.cli.output import OK


def add(commands: Any) -> None:
    parser = flags.add_command(
        commands, "help", "Explain the program, a command or the code of an error.", "tabrelay help TR302"
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="a command, and an action of it; or the code of an error, such as TR302",
    )
    parser.set_defaults(run=_help)


def _help(args: argparse.Namespace) -> int:
    if len(args.words) == 1 and error_entries.CODE.fullmatch(args.words[0]):
        print(error_entries.text_of(args.words[0].upper()))
        return OK
    parser = args.whole()
    for word in args.words:
        choices = flags.choices_of(parser)
        if word not in choices:
            parser.refuse_choice(word, choices)
        parser = choices[word]
    parser.print_help()
    return OK
