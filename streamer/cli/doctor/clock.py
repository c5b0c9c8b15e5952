"""Whether this machine's clock is right, as far as the kernel and records can tell."""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Final

from connectors.browser import Browser
from streamer.cli.doctor.line import Line

_TIME_ERROR: Final = 5
"""What Linux's adjtimex(2) returns while nothing keeps the clock synchronized."""
_STRUCTURE: Final = 1024
"""Bytes of the structure that adjtimex takes, and more; all zero it means: change nothing."""
_AHEAD: Final = 5.0
"""Seconds by which a record may be dated later than now: clocks are not that exact."""
_WAIT: Final = 3.0
"""Seconds to wait for the newest records of a topic."""
_PARTITIONS: Final = 100
"""Partitions of a topic that are read at most."""


def clock() -> Line:
    """The state of the clock, as Linux's kernel has it from chrony, ntpd or systemd-timesyncd."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state = _kernel_state()
    if state is None:
        return Line("clock", "ok", f"{now}; not checked whether it is right: this system does not say")
    if state == _TIME_ERROR:
        text = f"{now}; the kernel knows of no time service that keeps it right"
        return Line("clock", "warning", text, "start chrony or systemd-timesyncd, unless the host sets this clock")
    return Line("clock", "ok", f"{now}; synchronized, says the kernel")


def _kernel_state() -> int | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        state = int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_STRUCTURE)))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state


def newest_record(browser: Browser, topic: str) -> Line | None:
    """Compare this clock with the time of the newest records of a topic: none should be later than now.

    It is the time at which their producer made them, or, for a topic of Kafka with LogAppendTime, the broker received
    them. `None` if the topic has no records with a time.

    Raises:
        ConnectorError: The bus does not answer.
    """
    newest = _newest(browser, topic)
    if newest is None:
        return None
    age = time.time() - newest / 1000
    part = f"clock, {topic}"
    if age < -_AHEAD:
        text = (
            f"the newest record is dated {-age:.0f} s later than now: the clock of its producer, or this one, is wrong"
        )
        return Line(part, "warning", text, "synchronize both by NTP; latencies and times to begin at are wrong")
    return Line(part, "ok", f"the newest record is {_duration(age)} old by its own time, so not later than now")


def _newest(browser: Browser, topic: str) -> int | None:
    with browser.reader(topic, "streamer-doctor") as reader:
        first, last = reader.range()
        starts = {number: stop - 1 for number, stop in last.items() if stop > first.get(number, stop)}
        reader.begin(starts := dict(list(starts.items())[:_PARTITIONS]))
        newest = -1
        deadline = time.monotonic() + _WAIT
        while not starts.keys() <= reader.ended and (left := deadline - time.monotonic()) > 0:
            records = reader.poll(min(left, 0.5))
            if len(records):
                newest = max(newest, int(records.timestamp_column().max()))
    return newest if newest >= 0 else None


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
