"""The command line: `streamer run`, `check`, `demo`, ... One command a file; heavy imports inside the commands."""

from __future__ import annotations

import sys


def main() -> None:
    """What the installed command `streamer` runs."""
    if next((one for one in sys.argv[1:] if not one.startswith("-")), "") == "run":
        # The imports take a second or so, and who stops a service in it stops a service.
        from streamer.cli.signals import ending_at_once

        ending_at_once()
    from streamer.cli.app import invoke

    sys.exit(invoke(sys.argv[1:]))
