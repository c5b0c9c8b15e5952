"""The command line: `streamer run`, `check`, `demo`, ... One command a file; heavy imports inside the commands."""

from __future__ import annotations

import sys

_OURS = ("pipelines", "connectors", "protos")


def _refuse_hidden_packages() -> None:
    """End with one sentence if a package of the user's hides one of ours of the same name.

    It would be imported instead, and fail with errors that are hard to understand.
    """
    # Here, as `main` has to set the handlers of signals before anything that takes time.
    from importlib.util import find_spec
    from pathlib import Path

    here = Path(__file__).resolve().parents[2]
    for name in _OURS:
        found = find_spec(name)
        origin = None if found is None or found.origin is None else Path(found.origin).resolve()
        if origin is not None and origin.parents[1] != here:
            sys.exit(f"error: {origin.parent} hides the package {name} of streamer: rename it, or start elsewhere")


def main() -> None:
    """The entry point of the installed command `streamer`."""
    if next((one for one in sys.argv[1:] if not one.startswith("-")), "") == "run":
        # The imports take a second or so, and a signal during that time has to stop the service too.
        from streamer.cli.signals import ending_at_once

        ending_at_once()
    _refuse_hidden_packages()
    from streamer.cli.app import invoke

    sys.exit(invoke(sys.argv[1:]))
