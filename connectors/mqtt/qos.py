"""`Qos`: a quality of service in a service file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator


def _of_text(value: object) -> object:
    # Variables of the environment, and options of commands, are texts.
    return int(value) if isinstance(value, str) and value.strip() in ("0", "1", "2") else value


Qos = Annotated[Literal[0, 1, 2], BeforeValidator(_of_text, json_schema_input_type=Literal[0, 1, 2])]
"""0: at most once; 1: at least once; 2: as 1, with one more round trip."""
