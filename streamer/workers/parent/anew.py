"""The process of `streamer run --workers`, once it knows what to do, begins anew as the parent of workers.

It is the same process for whoever started it, and its memory holds only what supervising needs. What the command line
needed, a quarter of all, would stay there for as long as workers run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from pipelines.errors import StreamerError
from streamer.agent.signals import stopping_signals
from streamer.observe.logchoice import Level
from streamer.workers.plan import Asked

# The search path is that of the process before, which may have been started by any of Python's ways.
_PROGRAM: Final = (
    "import json, sys; task = json.loads(sys.argv.pop(1)); sys.path[:] = task.pop('path'); "
    "from streamer.workers.parent.anew import main; main(**task)"
)


def begin_anew(
    asked: Asked, arguments: Sequence[str], level: Level, *, in_json: bool, summaries: bool, debug: bool
) -> NoReturn:
    """Have this process do nothing but `run_workers`, with these arguments, and end with its exit code. `debug`: errors
    have tracebacks.

    Raises `StreamerError` where a system has no such processes.
    """
    if os.name != "posix":
        raise StreamerError("--workers is not possible on this system: it needs POSIX signals; leave it out")
    task = {
        "path": sys.path,
        "asked": asked.to_json(),
        "arguments": list(arguments),
        "level": level,
        "in_json": in_json,
        "summaries": summaries,
        "debug": debug,
    }
    sys.stdout.flush()
    sys.stderr.flush()
    # Signals wait until there are handlers again.
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping_signals())
    # The command line as it was, behind the task, is for those who look for this process.
    words = [sys.executable, "-P", "-c", _PROGRAM, json.dumps(task), *sys.argv]
    os.execv(sys.executable, words)  # noqa: S606  the program is ours


def main(asked: str, arguments: list[str], level: Level, *, in_json: bool, summaries: bool, debug: bool) -> NoReturn:
    """The process from then on; the arguments are those of `begin_anew`."""
    from streamer.cli.signals import CUT_SHORT, ending_at_once

    ending_at_once()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stopping_signals())
    # Imported after the signal handlers are set: imports take time.
    from streamer.cli.terminal import fail
    from streamer.workers.parent.running import run_workers

    try:
        code = run_workers(Asked.from_json(asked), arguments, level, in_json=in_json, summaries=summaries)
    except KeyboardInterrupt:
        code = CUT_SHORT
    except Exception as error:  # noqa: BLE001 - every error is shown as a sentence, not as a traceback
        code = fail(error, debug=debug)
    sys.exit(code)
