"""The command line: `streamer run`, `check`, `demo`, ... One command a file; heavy imports inside the commands."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the installed command `streamer`."""
    if next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "") == "run":
        # The imports take a second or so, and a signal during that time has to stop the service too.
        from streamer.cli.signals import ending_at_once

        ending_at_once()
    # Imported after the signal handlers are set: imports take time.
    from streamer.hiding import hiding

    error = hiding()
    if error is not None:
        sys.exit(f"error: {error}")
    from pipelines.telemetry import disable_telemetry

    # Here and not at a model's step only, because functions of users may import onnxruntime too.
    disable_telemetry()
    from streamer.cli.app import invoke

    sys.exit(invoke(sys.argv[1:]))
