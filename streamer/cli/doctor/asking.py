"""Looks at things that may fail or hang: the page of `streamer doctor` is printed all the same."""

from __future__ import annotations

from collections.abc import Callable

from connectors.daemonpool import DaemonPool
from pipelines.errors import StreamerError
from streamer.cli.doctor.line import Line


def asked(part: str, look: Callable[[], list[Line]], seconds: float) -> list[Line]:
    """The lines of `look`; one line about `part` if it raises, or does not end in time.

    Args:
        part: What is looked at, for the line that says what went wrong.
        look: Called on a thread of its own, which is left behind if it does not end.
        seconds: How long it may take.
    """
    pool = DaemonPool(1, "doctor")
    looking = pool.submit(look)
    pool.shutdown(wait=False)
    try:
        return looking.result(seconds)
    except TimeoutError as error:
        if looking.done():
            return [_failed(part, error)]
        advice = "see what it waits for: a server that accepts connections and says nothing, or code of your own"
        return [Line(part, "wrong", f"no answer within {seconds:g} s; the rest of this was not checked", advice)]
    except Exception as error:  # noqa: BLE001 - whatever is broken here, the other lines are shown
        return [_failed(part, error)]


def _failed(part: str, error: Exception) -> Line:
    if isinstance(error, StreamerError):
        return Line(part, "wrong", str(error))
    return Line(part, "wrong", f"{type(error).__name__}: {error}", "this check itself failed: please report it")
