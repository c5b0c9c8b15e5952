"""`Joining`: a log line for a source whose consumer group keeps it waiting for partitions."""

from __future__ import annotations

import logging
import time
from typing import Final

_AFTER: Final = 5.0
"""Seconds without an assignment before the log line. An empty group assigns after 3 s
(`group.initial.rebalance.delay.ms` of the brokers)."""

_log = logging.getLogger(__name__)


class Joining:
    """Logs once that a group has not assigned partitions to a member that has joined."""

    def __init__(self, name: str, group: str, instance: str | None) -> None:
        """`name` is the source's; `instance` its static membership, if it has one."""
        self._name = name
        self._group = group
        self._instance = instance
        self._say_at: float | None = None

    def begin(self) -> None:
        """The source has asked to become a member."""
        self._say_at = time.monotonic() + _AFTER

    def assigned(self) -> None:
        """The group has assigned partitions, or none."""
        self._say_at = None

    def check(self, *, answering: bool) -> None:
        """Log it when it is time. `answering`: the brokers can be reached, as far as known."""
        if self._say_at is None or not answering or time.monotonic() < self._say_at:
            return
        self._say_at = None
        hint = "" if self._instance is not None else "; with an `instance` of its own a process takes its place at once"
        _log.warning(
            "source %s: the group %s has not assigned partitions for %d s. It probably waits for a member that was "
            "killed and could not leave the group, until its session.timeout.ms is over (45 s by default)%s",
            self._name,
            self._group,
            _AFTER,
            hint,
        )
