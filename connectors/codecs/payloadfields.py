"""`PayloadFields`: the fields that a schema gives payloads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PayloadFields:
    """The fields of payloads, as far as a schema or a list of columns states them."""

    names: frozenset[str]
    required: frozenset[str] = frozenset()
    """Those without which no payload can be written."""
    others: bool = False
    """Whether a payload may have further fields."""
