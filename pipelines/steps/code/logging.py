"""LOGGING: write keys, or keys and values, to the log."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Spelling


class Logging(Step):
    """Log each record and pass it on unchanged."""

    type_name: ClassVar[str] = "LOGGING"
    run_by: ClassVar[RunBy | None] = RunBy("logging", "pipelines.runners.code.logging:LoggingRunner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    log_level: Literal["ERROR", "WARN", "INFO", "DEBUG", "TRACE"] = "INFO"
    """At which level to log."""
    log: Literal["KEYS", "KEYS_AND_VALUES"] = "KEYS"
    """`KEYS`: one line a record; `KEYS_AND_VALUES`: one line a key."""
    key_filter_regex: Annotated[str | None, Spelling(yaml="key_filter_regex", also=("keyfilterRegex",))] = None
    """Regular expression on whole keys: those that match are not logged, as in Konduit (whose documentation says the
    opposite)."""
