"""The rows that payloads of plain JSON hold, each as the texts of its values by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from pipelines.errors import WireError
from pipelines.wire.hints import encoded_twice
from pipelines.wire.jsontext import (
    Pointer,
    Text,
    brackets,
    check_size,
    described,
    documents,
    members,
    members_of_lines,
    parsed,
    with_null,
    without_nan,
)
from pipelines.wire.limits import DEFAULT_LIMITS, Limits
from pipelines.wire.stated.types import Stated

ReadNaN: TypeAlias = Literal["error", "missing"]
"""What NaN and infinite numbers are in a record that is read: an error, or missing values, as null is."""


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """How records are read."""

    limits: Limits = DEFAULT_LIMITS
    fields: tuple[tuple[str, Pointer], ...] = ()
    """Keys, each with the place of its value inside of the record. They hide keys of the record with the same name."""
    each: bool = False
    """Whether every element of an array, or every line, is a row."""
    read_nan: ReadNaN = "error"
    """What the bare words NaN and infinity are (`without_nan`)."""
    at: Pointer = Pointer("")  # noqa: RUF009 - it is frozen
    """The place in a payload of its record, with `each` of the array of its records."""
    outer: tuple[tuple[str, Pointer], ...] = ()
    """Keys that each record of a payload gets, each with the place of its value in the payload. They hide keys, too."""
    stated: tuple[Stated, ...] = ()
    """The types of the values of keys, also of those that `fields` name."""


def usual_records(payloads: Sequence[Any], options: JsonOptions) -> list[dict[str, Any]] | None:
    """The rows of payloads of which each is one object without null, cut out in one call; `None` for any others."""
    payloads = list(payloads)
    if options.each or options.fields or options.at.text or set(map(type, payloads)) != {bytes}:
        return None
    limits, longest = options.limits, max(map(len, payloads))
    # No text has more keys or elements than characters.
    if longest > min(limits.max_bytes, limits.max_keys, limits.max_elements):
        return None
    if {payload[:1] + payload[-1:] for payload in payloads} != {b"{}"}:
        return None
    lines = b"\n".join(payloads)
    if (lines.count(b"{") > len(payloads) or b"[" in lines) and max(map(brackets, payloads)) > limits.max_depth:
        return None
    return members_of_lines(lines, len(payloads))


def payload_records(text: bytes, options: JsonOptions) -> list[dict[str, Text | None]]:
    """The rows of a payload, which may have NaN if the options allow it."""
    try:
        return _records(text, options)
    except WireError:
        # Only a text that cannot be read is searched, so that NaN costs nothing where it is not.
        plain = text if options.read_nan == "error" else without_nan(text)
        if plain == text:
            raise
    return _records(plain, options)


def _records(text: bytes, options: JsonOptions) -> list[dict[str, Text | None]]:
    """The rows of a payload."""
    if options.at.text:
        return _enclosed(text, options)
    if options.each:
        return _each(text, options, {})
    check_size(text, options.limits)
    return [_record(text, options, {})]


def _enclosed(text: bytes, options: JsonOptions) -> list[dict[str, Text | None]]:
    """The rows of a payload that holds them at a place inside; none where that is null."""
    limits, at = options.limits, options.at.text
    if not options.each:
        check_size(text, limits)
    inner = options.at.value(text)
    if inner is None:
        raise nothing_at(options.at, parsed(text))
    if inner == _NULL:
        return []
    outer = {key: value for key, pointer in options.outer if (value := pointer.value(text)) is not None}
    if not options.each:
        if inner[:1] != b"{":
            raise no_record_at(at, parsed(inner))
        return [_record(inner, options, outer)]
    if inner[:1] != b"[":
        raise no_array_at(at, parsed(inner))
    for value in outer.values():
        check_size(value, limits)
    records = _each(inner, options, outer)
    check_outer(sum(map(len, outer.values())), len(records), limits)
    return records


def _each(text: bytes, options: JsonOptions, outer: Mapping[str, Text]) -> list[dict[str, Text | None]]:
    """The elements of an array, or the values of the lines, as rows."""
    records: list[dict[str, Text | None]] = []
    for plain, part in documents(text):
        if not isinstance(plain, dict):
            number = f"{options.at.text}/{len(records)}" if options.at.text else f"number {len(records)}"
            raise WireError(f"each row is a JSON object, but {number} is {described(plain)}{encoded_twice(plain)}")
        check_size(part, options.limits)
        options.limits.check_elements(len(records))
        records.append(_record(part, options, outer))
    return records


def _record(text: bytes, options: JsonOptions, outer: Mapping[str, Text]) -> dict[str, Text | None]:
    """The text of each value; `None` for null and for a field that is not there, as their keys have a place too.

    `outer` are the values that every record of the payload gets.
    """
    values = members(text)
    if with_null(text):
        values = {key: None if bytes(value) == _NULL else value for key, value in values.items()}
    # These come behind the record's own keys, also where they take the place of one.
    for key, pointer in options.fields:
        values.pop(key, None)
        value = pointer.value(text)
        values[key] = None if value == _NULL else value
    for key, _ in options.outer:
        values.pop(key, None)
        value = outer.get(key)
        values[key] = None if value == _NULL else value
    return values


def nothing_at(at: Pointer, payload: Any) -> WireError:
    """The error of a payload, parsed, that has no value at this place."""
    return WireError(f"there is nothing at {at.text} (at of the codec): {at.absence(payload)}")


def no_record_at(at: str, value: Any) -> WireError:
    """The error of a payload that has this value where its record has to be; `at`: what errors call the place."""
    several = "; each: true makes a row of every element" if isinstance(value, list) else ""
    return WireError(f"a record is an object, but {_place(at)} is {described(value)}{several}{encoded_twice(value)}")


def no_array_at(at: str, value: Any) -> WireError:
    """The error of a payload that has this value where its records have to be."""
    return WireError(
        f"each: true reads an array of records, but {_place(at)} is {described(value)}{encoded_twice(value)}"
    )


def check_outer(size: int, records: int, limits: Limits) -> None:
    """Raise `WireError` if values of `size` bytes are too much for each of so many records of a payload to have.

    A payload could be a large value and very many small records.
    """
    if size * records > limits.max_bytes:
        raise WireError(
            f"the values of outer, {size} bytes, once for each of {records} records, are more than {limits.max_bytes} "
            "bytes (max_bytes)"
        )


def _place(at: str) -> str:
    return f"{at} (at of the codec)" if at else "the payload"


_NULL: Final = b"null"
