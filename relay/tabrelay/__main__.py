"""`python -m tabrelay`: the same as the `tabrelay` command, for systems where scripts are not on PATH."""

from tabrelay.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
