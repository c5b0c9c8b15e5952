"""The client library's own log lines, without its repetitions."""

from __future__ import annotations

import logging
import re
import time
from collections import OrderedDict

from connectors.secrets import Scrubber

_QUIET = 30.0
_REMEMBERED = 100
_DIFFERENT_EACH_TIME = re.compile(r"\(after \d+ms in state \w+\)|\d+ms|\d+ identical")


def client_logger(label: str, scrub: Scrubber) -> logging.Logger:
    """A logger under `connectors.kafka.client` for one client; a line comes again after half a minute or more."""
    # Not by getLogger: clients of the same name would share a logger, but their secrets differ.
    logger = logging.Logger(f"connectors.kafka.client.{label}")
    logger.parent = logging.getLogger("connectors.kafka.client")
    logger.addFilter(_Repetitions(scrub))
    return logger


class _Repetitions(logging.Filter):
    """Drops repeated lines: a client that cannot connect logs that ten times a second."""

    def __init__(self, scrub: Scrubber) -> None:
        super().__init__()
        self._scrub = scrub
        self._said: OrderedDict[str, float] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._scrub(record.getMessage()), None
        text = _DIFFERENT_EACH_TIME.sub("", record.msg)
        now = time.monotonic()
        if now - self._said.get(text, -_QUIET) < _QUIET:
            return False
        self._said[text] = now
        self._said.move_to_end(text)
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        return True
