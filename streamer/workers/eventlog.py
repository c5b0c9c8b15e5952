"""`EventLog`: the log of the parent of workers, on stderr, as text or JSON lines.

Workers log with structlog; the parent does without it, since it is to be small.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Final

from streamer.observe.logchoice import Level
from streamer.observe.shown import json_shown, masked, shown

_ORDER: Final[tuple[Level, ...]] = ("debug", "info", "warning", "error")


class EventLog:
    """Writes events of a level and above."""

    def __init__(self, level: Level, *, as_json: bool) -> None:
        self._lowest = _ORDER.index(level)
        self._as_json = as_json

    def info(self, event: str, **values: object) -> None:
        """An event that is as it should be."""
        self._write("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        """An event that somebody should know."""
        self._write("warning", event, values)

    def error(self, event: str, **values: object) -> None:
        """An event for which somebody has to do something."""
        self._write("error", event, values)

    def _write(self, level: Level, event: str, values: dict[str, object]) -> None:
        if _ORDER.index(level) < self._lowest:
            return
        if self._as_json:
            stamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            plain = {key: value if isinstance(value, (int, float)) else str(value) for key, value in values.items()}
            text = masked(json_shown({**plain, "event": event, "timestamp": stamp, "level": level}))
        else:
            pairs = "".join(f" {key}={shown(value)}" for key, value in values.items())
            text = f"{level}: {shown(event)}{pairs}"
        print(text, file=sys.stderr, flush=True)
