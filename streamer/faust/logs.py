"""`spare_records`: aiokafka makes no log records that no handler takes."""

from __future__ import annotations

import logging

from faust.utils.terminal import SpinnerHandler


def spare_records() -> None:
    """Raise aiokafka's log level, where none was set, to the lowest that a handler of the root logger takes.

    To have its progress line move with each record, Faust's worker sets the root logger to DEBUG, for good: aiokafka
    then makes a record of each message that is sent, which only the progress line gets.
    """
    log = logging.getLogger("aiokafka")
    levels = [handler.level for handler in logging.getLogger().handlers if not isinstance(handler, SpinnerHandler)]
    if log.level == logging.NOTSET and not log.handlers and levels:
        log.setLevel(min(levels))
