"""`tabrelay pair`: a fresh address that pairs a browser with the relay that runs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tabrelay.cli import flags, running_relay
from tabrelay.cli.outcome import OK


def add(verbs: Any) -> None:
    about = "Ask the running relay for a fresh address that pairs a browser."
    parser = flags.verb(verbs, "pair", about, "tabrelay pair --port 9000")
    flags.address_flags(parser)
    parser.add_argument("--json", action="store_true", default=None, help="print one JSON line")
    parser.set_defaults(run=_pair)


def _pair(args: argparse.Namespace) -> int:
    answer = running_relay.request(args, "/-/codes", method="POST")
    if args.json:
        print(json.dumps(answer))
    else:
        print(f"{answer['url']}\nOpen it in the browser within {answer['expires_s'] // 60} minutes; it works once.")
    return OK
