"""`TimeConfig`: the value of a record that is its time."""

from __future__ import annotations

from pydantic import ConfigDict

from pipelines.data.times import Unit
from pipelines.steps.config import Config, Key


class TimeConfig(Config):
    """The value that is the time of a record, in place of the time that its bus knows."""

    model_config = ConfigDict(hide_input_in_errors=True)

    field: Key
    """The key of the value."""
    unit: Unit
    """The unit of numbers, which count since 1970: seconds, milliseconds, microseconds or nanoseconds. `rfc3339` is for texts like `2026-01-31T12:30:00.5Z`, with the offset from UTC."""  # noqa: E501
