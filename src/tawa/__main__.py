"""`python -m tawa`: the command line, as `tawa`."""

from tawa.tools.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
