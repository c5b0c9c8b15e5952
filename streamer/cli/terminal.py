"""Prints results to stdout and messages to stderr, without control sequences from outside.

Texts from outside (records, brokers, untrusted files) are printed by these functions, which escape them.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from streamer.observe.shown import escaped, json_shown, masked, shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDE: Final = 200
"""Width of tables in columns where stdout is not a terminal."""
MAX_LINES: Final = 3
"""The most lines of an error."""
FAILED: Final = 1
"""The exit code of what failed while running."""
WRONG: Final = 2
"""The exit code for wrong use, or a wrong file."""

_json_lines = False


def output() -> Console:
    """A console on stdout, for results."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else WIDE)


def notes() -> Console:
    """A console on stderr, for progress and remarks."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else WIDE)


def cell(text: object, style: str = "") -> Text:
    """The text for a table or a line of `output()`, escaped."""
    from rich.text import Text

    return Text(shown(text), style)


def plain(text: str, style: str = "") -> None:
    """Print a line on stdout. Secrets of the service file are not masked: it is for contents of records."""
    from rich.text import Text

    output().print(Text(escaped(text), style), soft_wrap=True)


def say(text: object) -> None:
    """Print a line on stdout."""
    print(shown(text), flush=True)


def remark(text: object) -> None:
    """Print a line on stderr."""
    print(shown(text), file=sys.stderr, flush=True)


def say_json(value: Any, *, indent: int | None = None) -> None:
    """Print plain data on stdout for machines, in one line unless there is an `indent`."""
    print(json_shown(value, indent=indent), flush=True)


def say_json_of(
    head: Mapping[str, Any], name: str, items: Iterable[Any], tail: Callable[[], Mapping[str, Any]]
) -> None:
    """As `say_json`, an object with a list `name` whose items are printed as they come, between `head` and `tail`,
    which is asked for when all have come. Neither is empty."""
    print(f"{json_shown(head)[:-1]}, {json_shown(name)}: [", end="")
    for number, item in enumerate(items):
        print(f"{', ' if number else ''}{json_shown(item)}", end="")
    print(f"], {json_shown(tail())[1:]}", flush=True)


def complain(text: str, error: BaseException | None = None) -> None:
    """Print the error to stderr, in a few lines; with the traceback of `error` if it is given."""
    lines = [escaped(line) for line in masked(text).splitlines() if line.strip()] or ["unknown"]
    trace = None if error is None else "\n".join(_trace(error))
    if _json_lines:
        from streamer.observe.logs import logger

        logger().error("failed", error=" ".join(lines), **({} if trace is None else {"exception": trace}))
        return
    if trace is not None:
        print(trace, file=sys.stderr)
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"{lines[MAX_LINES - 1]} ... (--debug shows all)"]
    print("\n".join([f"error: {lines[0]}", *lines[1:]]), file=sys.stderr)


def fail(error: Exception, *, debug: bool) -> int:
    """Print any error to stderr, with `debug` with its traceback; returns the exit code that it ends a command with."""
    from pipelines.errors import DefinitionError, StreamerError

    trace = error if debug else None
    if isinstance(error, StreamerError):
        complain(str(error), trace)
        return WRONG if isinstance(error, DefinitionError) else FAILED
    hint = "" if debug else "\nThis should not happen; --debug shows where it did."
    complain(f"{type(error).__name__}: {error}{hint}", trace)
    return FAILED


def warn(text: object) -> None:
    """Print a warning to stderr."""
    if _json_lines:
        from streamer.observe.logs import logger

        logger().warning(masked(str(text)))
        return
    print(f"warning: {shown(text)}", file=sys.stderr)


def json_lines(on: bool) -> None:
    """From now on write errors and warnings to stderr as JSON lines; or as text again."""
    global _json_lines
    _json_lines = on


def _trace(error: BaseException) -> list[str]:
    return [escaped(line) for line in masked("".join(traceback.format_exception(error))).splitlines()]


def quiet() -> None:
    """Turn off logs of the Kafka client and of retries: errors say all that matters of them."""
    from stamina.instrumentation import set_on_retry_hooks

    logging.getLogger("connectors.kafka.client").setLevel(logging.CRITICAL)
    set_on_retry_hooks([])


def counted(number: int, what: str) -> str:
    """A number with its noun: `1 record`, `2,000 records`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
