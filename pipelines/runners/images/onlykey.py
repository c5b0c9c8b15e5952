"""Finds the key of the only value of a type, for a step without a key in its configuration."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.errors import DataError


def only_key(keys: Sequence[str], what: str, kind: str | None = None, setting: str | None = None) -> str:
    """The only one of `keys`, those of a record that hold a value of the wanted type.

    Raises `DataError` if there are none or several, in Konduit Serving's words: `what` field name was not provided,
    and no, or several, `kind` fields exist. `setting` is the key of the configuration that would say which.
    """
    if len(keys) == 1:
        return keys[0]
    kind = kind or what
    why = f"multiple {kind} fields exist: {' and '.join(keys)}" if keys else f"no {kind} fields exist"
    hint = f'; "{setting}" says which' if setting is not None and keys else ""
    raise DataError(f"{what} field name was not provided and could not be inferred: {why}{hint}")
