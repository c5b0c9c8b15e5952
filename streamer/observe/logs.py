"""Logs: one event a line, for people on a terminal and as JSON elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure(level: str = "info", *, as_json: bool | None = None) -> None:
    """Send our events and those of libraries to stderr. `as_json` `None`: JSON unless stderr is a terminal."""
    if as_json is None:
        as_json = not sys.stderr.isatty()
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                last,
            ],
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def logger(**bound: Any) -> Any:
    """A logger whose events carry `bound`. Without `configure` it goes through the standard `logging` quietly."""
    return structlog.stdlib.get_logger("streamer").bind(**bound)
