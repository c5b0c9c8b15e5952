"""The command line: `streamer run`, `check`, `demo`, ... One command a file; heavy imports inside the commands."""

from __future__ import annotations

import sys


def main() -> None:
    """What the installed command `streamer` runs."""
    from streamer.cli.app import invoke

    sys.exit(invoke(sys.argv[1:]))
