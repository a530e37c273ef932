"""`python -m tabrelay`: the same door as the `tabrelay` command, for when scripts are not on PATH."""

from tabrelay.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
