"""Runs LOGGING."""

from __future__ import annotations

import logging
import re
from typing import Any, ClassVar

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.code.logging import Logging

LOGGER = "pipelines.logging"
"""Name of the logger that LOGGING writes to."""

TRACE = 5
"""TRACE as a level of Python's logging, below DEBUG."""

_LEVELS = {
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}


class LoggingRunner(Runner):
    """Logs each record to the logger `pipelines.logging` and passes the batch on as it is.

    Long arrays and values are shortened. Where the level is not enabled nothing is decoded. Keys that match the whole
    regular expression are left out, as in Konduit Serving.
    """

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    keeps_keys: ClassVar[bool] = True

    def __init__(self, step: Logging, context: OpenContext) -> None:
        self._logger = logging.getLogger(LOGGER)
        self._level = _LEVELS[step.log_level]
        self._with_values = step.log == "KEYS_AND_VALUES"
        self._filter = re.compile(step.key_filter_regex) if step.key_filter_regex is not None else None

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._with_values and self._logger.isEnabledFor(self._level) else frozenset()

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset()

    def run_batch(self, batch: Batch) -> Result:
        if self._logger.isEnabledFor(self._level):
            keys = [key for key in batch.columns if self._filter is None or not self._filter.fullmatch(key)]
            if self._with_values:
                self._log_values(batch, keys)
            else:
                self._log_keys(batch, keys)
        return Result(batch)

    def _log_keys(self, batch: Batch, keys: list[str]) -> None:
        lines: list[list[str]] = [[] for _ in range(batch.size)]
        for key in keys:
            for row in batch.column(key).positions():
                lines[row].append(f'"{key}"')
        for line in lines:
            self._logger.log(self._level, "%s", ", ".join(line))

    def _log_values(self, batch: Batch, keys: list[str]) -> None:
        for row in batch.select({key: batch.column(key) for key in keys}).all_values():
            for key, value in row.items():
                self._logger.log(self._level, '"%s": %s', key, _shown(value))


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {np.array2string(value, threshold=20, max_line_width=1000)}"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 1000 else f"{text[:1000]}... ({len(text)} characters)"
