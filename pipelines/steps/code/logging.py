"""LOGGING: write keys, or keys and values, to the log."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Spelling


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, AfterValidator(_compiles)]
"""A regular expression of Python."""


class Logging(Step):
    """Write the keys, or keys and values, of each record to the log; records are passed on unchanged."""

    type_name: ClassVar[str] = "LOGGING"
    run_by: ClassVar[RunBy | None] = RunBy("logging", "pipelines.runners.code.logging:LoggingRunner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    log_level: Literal["ERROR", "WARN", "INFO", "DEBUG", "TRACE"] = "INFO"
    """Level of the lines; `TRACE` is Python's level 5, below `DEBUG`."""
    log: Literal["KEYS", "KEYS_AND_VALUES"] = "KEYS"
    """`KEYS`: the keys of a record in one line; `KEYS_AND_VALUES`: a line for each key, with its value shortened."""
    key_filter_regex: Annotated[Pattern | None, Spelling(yaml="key_filter_regex", also=("keyfilterRegex",))] = None
    """Keys that match this regular expression as a whole are not logged. Konduit Serving does the same, although its
    documentation says the opposite."""
