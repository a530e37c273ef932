"""One target under atheris, in this process: `python -m tests.fuzz.runner TARGET [libFuzzer's flags]`."""

from __future__ import annotations

import logging
import sys

import atheris

from tests.fuzz.targets import target


def main() -> None:
    name = sys.argv.pop(1)
    logging.disable(logging.CRITICAL)  # a relay logs what it refuses
    with atheris.instrument_imports(include=["tabrelay", "tabserver", "tests.fuzz"]):
        check = target(name)
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
