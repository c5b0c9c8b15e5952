"""The types of keys and headers: what Java's serializers write is read, and nothing else."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.metadata.bytetypes import ByteType, Entries, read_bytes
from pipelines.data.columns import MISSING
from pipelines.data.spans import Spans
from pipelines.errors import WireError
from pipelines.values import ValueType
from pipelines.wire.stated.types import Stated

FORMS: list[Callable[[Sequence[bytes | None]], Entries]] = [list, Spans.of]
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)


def read(entries: Sequence[bytes | None], of: ByteType, form: Callable[..., Entries] = list) -> list[Any]:
    """The value of each entry, `MISSING`, or the error's text."""
    failed: dict[int, WireError] = {}
    values = read_bytes(form(entries), of, "the key", failed).values()
    assert all(values[row] is MISSING for row in failed)
    return [str(failed[row]) if row in failed else value for row, value in enumerate(values)]


def java(of: ByteType, value: Any) -> bytes:
    """As Kafka's serializers for Java write it."""
    if of in ("long", "int", "double"):
        return struct.pack({"long": ">q", "int": ">i", "double": ">d"}[of], value)
    return (
        value if isinstance(value, bytes) else str(value).lower().encode() if of == "boolean" else str(value).encode()
    )


OF_TYPE: dict[ByteType, st.SearchStrategy[Any]] = {
    "long": LONGS,
    "int": INTS,
    "double": st.floats(allow_nan=False),
    "uuid": st.uuids().map(str),
    "text": st.text(),
    "bytes": st.binary(),
    "integer": LONGS,
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
}


@given(data=st.data(), of=st.sampled_from(get_args(ByteType)), form=st.sampled_from(FORMS))
def test_every_value_that_java_writes_is_read(data: st.DataObject, of: ByteType, form: Callable[..., Entries]) -> None:
    values = data.draw(st.lists(st.none() | OF_TYPE[of]))
    entries = [None if value is None else java(of, value) for value in values]
    assert read(entries, of, form) == [MISSING if value is None else value for value in values]


def by_hand(entry: bytes, of: ByteType) -> Any:
    """The value, or `None`: the bytes are not of the type."""
    try:
        if of in ("long", "int", "double"):
            (value,) = struct.unpack({"long": ">q", "int": ">i", "double": ">d"}[of], entry)
            return value
        if of == "uuid":
            if len(entry) == 16:
                return str(uuid.UUID(bytes=entry))
            made = str(uuid.UUID(entry.decode("ascii")))
            return made if made == entry.decode("ascii").lower() else None
        if of in ("integer", "number", "boolean"):
            value = Stated("", of).converted(entry.decode())
            return MISSING if value is None else value
        return entry if of == "bytes" else entry.decode()
    except (ValueError, struct.error):
        return None


SOME_BYTES = st.one_of(
    st.binary(max_size=40),
    *(st.binary(min_size=size, max_size=size) for size in (4, 8, 16, 36)),
    st.text("0123456789abcdefABCDEF-{}urn:", min_size=36, max_size=36).map(str.encode),
    st.uuids().map(lambda one: str(one).upper().encode()),
)


@given(entries=st.lists(st.none() | SOME_BYTES), of=st.sampled_from(get_args(ByteType)))
def test_any_bytes_are_a_value_of_the_type_or_fail_alone(entries: list[bytes | None], of: ByteType) -> None:
    expected = [MISSING if entry is None else by_hand(entry, of) for entry in entries]
    for form in FORMS:
        values = read(entries, of, form)
        for value, wanted in zip(values, expected, strict=True):
            if wanted is None:
                assert str(value).startswith("the key")
                assert f" no {of}" in value or "is no text (UTF-8)" in value
            else:
                # NaN is not equal to itself.
                assert value == wanted or (value != value and wanted != wanted)


@pytest.mark.parametrize("form", FORMS)
def test_entries_that_are_rows_of_a_larger_block_are_read(form: Callable[..., Entries]) -> None:
    entries = [struct.pack(">q", number) for number in range(100)]
    taken = form(entries)[50:]
    assert read_bytes(taken, "long", "the key", {}).values() == list(range(50, 100))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("of", "type"), [("long", "INT64"), ("int", "INT64"), ("double", "DOUBLE"), ("uuid", "STRING")]
)
def test_a_column_has_its_type_even_if_no_row_has_a_value(
    of: ByteType, type: str, form: Callable[..., Entries]
) -> None:
    assert read_bytes(form([None, None]), of, "the key", {}).type is ValueType[type]


def test_an_error_shows_the_beginning_of_long_bytes_only() -> None:
    (error,) = read([b"\x00" * 1000], "long")
    assert len(error) < 300
    assert "it has 1000 bytes" in error


@pytest.mark.parametrize(
    ("of", "entry", "value"),
    [
        ("integer", b" 17 ", 17),
        ("integer", b"1.5", 'the key: "1.5" is no integer'),
        ("number", b"23.5", 23.5),
        ("number", b"NaN", MISSING),
        ("number", b"21,5", 'the key: "21,5" is no number'),
        ("number", b"\xff", "the key is no text (UTF-8): it has 1 bytes, '\\xff'"),
        ("boolean", b"true", True),
        ("boolean", b"", 'the key: "" is no boolean: true, false, 1 or 0'),
    ],
)
def test_numbers_and_booleans_may_be_texts(of: ByteType, entry: bytes, value: Any) -> None:
    for form in FORMS:
        assert read([None, entry], of, form) == [MISSING, value]
