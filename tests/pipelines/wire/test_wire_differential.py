"""Both hot paths and protobuf itself on the same messages, made and mutilated: equal rows, values, errors and bytes."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from pipelines import hotpath
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, RaggedColumn
from pipelines.data.data import Data
from pipelines.data.spans import Spans
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import RowsFailed, WireError
from pipelines.hotpath import choosing
from pipelines.values import BoundingBox, ByteBuffer, Image, Point
from pipelines.wire.columns import decode_columns, encode_columns
from pipelines.wire.limits import DEFAULT_LIMITS, Limits
from pipelines.wire.protobuf import decode, encode, encode_entry
from pipelines.wire.protodata import ReadColumns
from protos import data_pb2 as pb

CORPUS = Path(__file__).parents[3] / "native" / "fuzz" / "corpus" / "messages"
DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]
SHAPES = [(), (1,), (3,), (2, 2), (0,), (4, 0), (40,), (1, 2, 3)]
NUMBERS = [0, 1, 127, 128, -1, 2**40, -(2**63), 2**63 - 1]
TEXTS = ["", "a", "sensor-17", "häuser", "x" * 130, "\U0001f600"]
KEYS = ["x", "ts", "id", "", "é", "k" * 130]
WANTED = [frozenset[str](), frozenset(["x"]), frozenset(["ts", "id"]), frozenset([*KEYS, "@type"])]
LIMITS = [DEFAULT_LIMITS] * 6 + [Limits(max_bytes=50), Limits(max_elements=4), Limits(max_depth=1)]

pytestmark = pytest.mark.skipif(hotpath.why_not() is not None, reason=f"the compiled hot path: {hotpath.why_not()}")


@pytest.fixture(autouse=True)
def no_choice_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hotpath.VARIABLE, raising=False)


class Maker:
    """Messages as producers send them, and what goes wrong on the way. The same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def block(self, rows: int) -> list[bytes | None]:
        """Messages of one producer, or of several, some of them mutilated."""
        rng = self.rng
        kinds = [(key, rng.randrange(_KINDS)) for key in rng.sample(KEYS, rng.randrange(1, 5))]
        dtype, shape = rng.choice(DTYPES), rng.choice(SHAPES)
        chaos = rng.choice([0.0, 0.02, 0.2, 0.6])
        messages: list[bytes | None] = []
        for _ in range(rows):
            entries = [encode_entry(key, self.value(kind, dtype, shape)) for key, kind in kinds]
            if rng.random() < chaos:
                rng.shuffle(entries)
            if rng.random() < chaos / 2:
                entries[rng.randrange(len(entries))] = self.entry()
            if rng.random() < chaos / 4:
                entries.append(self.entry())
            if rng.random() < chaos / 8:
                entries.append(encode(Data({}, metadata={"m": self.value(rng.randrange(_KINDS), "f4", (1,))})))
            message: bytes | None = b"".join(entries)
            if rng.random() < chaos:
                message = self.mutilated(message or b"", messages)
            if rng.random() < chaos / 16:
                message = None
            messages.append(message)
        return messages

    def entry(self) -> bytes:
        rng = self.rng
        return encode_entry(rng.choice(KEYS), self.value(rng.randrange(_KINDS), rng.choice(DTYPES), rng.choice(SHAPES)))

    def value(self, kind: int, dtype: str, shape: tuple[int, ...]) -> Any:
        rng = self.rng
        if kind <= 3:
            if not rng.randrange(40):
                dtype = rng.choice(DTYPES)
            if shape and not rng.randrange(20 if kind else 2):
                shape = (rng.randrange(4), *shape[1:])
            raw = rng.randbytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)
            array = np.frombuffer(raw, np.uint8).astype("?") if dtype == "?" else np.frombuffer(raw, dtype)
            return array.reshape(shape)
        if kind <= 5:
            return rng.choice(NUMBERS) if rng.random() < 0.3 else rng.getrandbits(63) >> rng.randrange(63)
        if kind <= 7:
            return rng.choice(TEXTS) if rng.random() < 0.3 else f"sensor-{rng.getrandbits(20)}"
        if kind == 8:
            return rng.uniform(-1e9, 1e9)
        if kind == 9:
            return bool(rng.randrange(2))
        if kind == 10:
            return rng.randbytes(rng.randrange(6))
        return rng.choice(_OTHERS)

    def mutilated(self, message: bytes, others: Sequence[bytes | None]) -> bytes:
        rng = self.rng
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(message) + 1)
            way = rng.randrange(10)
            if way == 0:
                message = message[:at]
            elif way <= 3 and at < len(message):
                message = message[:at] + bytes([message[at] ^ 1 << rng.randrange(8)]) + message[at + 1 :]
            elif way == 4:
                message = message[:at] + rng.randbytes(rng.randrange(1, 3)) + message[at:]
            elif way == 5:
                message = message[:at] + message[at + 1 :]
            elif way == 6 and at < len(message):
                # Off by one: lengths, types and tags are found out.
                message = message[:at] + bytes([(message[at] + rng.choice([1, 255])) % 256]) + message[at + 1 :]
            elif way == 7:
                message += message
            elif way == 8 and others:
                other = rng.choice(others) or b""
                message = message[:at] + other[rng.randrange(len(other) + 1) :]
            else:
                message = message[:at] + rng.choice(_ODDITIES) + message[at:]
        return message


def check(messages: Sequence[bytes | None], wanted: frozenset[str], limits: Limits) -> None:
    """All that has to be equal, is."""
    compiled = choosing("native")(decode_columns)(messages, wanted, limits)
    spans = choosing("native")(decode_columns)(Spans.of(messages), wanted, limits)
    plain = choosing("python")(decode_columns)(messages, wanted, limits)
    for found in (compiled, spans):
        assert found.rows.tolist() == plain.rows.tolist()
        assert set(found.failed) == set(plain.failed)
        for row, error in found.failed.items():
            if str(error) != str(plain.failed[row]):
                # Of several things that are wrong any may be named.
                assert {str(error), str(plain.failed[row])} <= wrong_values(messages[row] or b"", wanted, limits)
        # A key whose values are all of types that are not known may be there or not.
        for key in set(found.columns) | set(plain.columns):
            empty = Column.absent(len(found.rows))
            column, other = found.columns.get(key, empty), plain.columns.get(key, empty)
            check_column(column, other, same_form=not plain.failed)
        assert rows_of(found.metadata) == rows_of(plain.metadata)
    check_written(compiled, plain)
    check_protobuf(messages, plain)


def wrong_values(message: bytes, wanted: frozenset[str], limits: Limits) -> set[str]:
    """What is wrong with a message, and with each of the wanted values."""
    found = [choosing("python")(decode_columns)([message], frozenset([key]), limits) for key in wanted]
    errors = {str(error) for one in found for error in one.failed.values()}
    try:
        decode(message, limits)
    except WireError as error:
        errors.add(str(error))
    return errors


def check_column(found: Column, expected: Column, same_form: bool) -> None:
    assert mask(found) == mask(expected)
    if found.empty:
        return
    assert isinstance(found, WireColumn) == isinstance(expected, WireColumn)
    if isinstance(found, WireColumn) and isinstance(expected, WireColumn):
        assert list(found.entries) == list(expected.entries)
    (decoded, failures), (other, others) = late(found), late(expected)
    assert failures == others
    if decoded is None or other is None:
        return
    # A row that failed for another key may have kept its column from being of one type.
    if same_form:
        assert decoded.type == other.type
        for form in (DenseColumn, RaggedColumn):
            assert isinstance(decoded, form) == isinstance(other, form)
    assert list(map(exact, decoded.values())) == list(map(exact, other.values()))


def check_written(compiled: ReadColumns, plain: ReadColumns) -> None:
    batch = batch_of(compiled)
    written = choosing("native")(encode_columns)(batch)
    again = choosing("python")(encode_columns)(batch)
    assert isinstance(written.messages, Spans)
    assert list(written.messages) == list(again.messages)
    assert {row: str(error) for row, error in written.failed.items()} == {
        row: str(error) for row, error in again.failed.items()
    }
    # Of what came in in another framing protobuf itself chooses the order of the entries.
    absent = Column.absent(batch.size)
    other = Batch({key: plain.columns.get(key, absent) for key in batch.columns}, batch.size, metadata=plain.metadata)
    assert list(choosing("python")(encode_columns)(other).messages) == list(written.messages)


def check_protobuf(messages: Sequence[bytes | None], found: ReadColumns) -> None:
    good = set(found.rows.tolist())
    for row, message in enumerate(messages):
        if message is None:
            assert row not in good
            assert row not in found.failed
            continue
        try:
            pb.DataMap.FromString(message)
        except DecodeError:
            assert row in found.failed


def check_one_by_one(messages: Sequence[bytes | None], wanted: frozenset[str]) -> None:
    """Each row is what the reader of single messages makes of it."""
    found = choosing("native")(decode_columns)(messages, wanted)
    batch = batch_of(found)
    positions = {row: position for position, row in enumerate(found.rows.tolist())}
    for row, message in enumerate(messages):
        if message is None:
            continue
        try:
            expected = decode(message)
        except WireError:
            assert row in found.failed or not set(batch.columns) <= wanted
            continue
        data = batch.row(positions[row])
        assert encode(Data(dict(data))) == encode(Data(dict(expected)))


def late(column: Column) -> tuple[Column | None, dict[int, str]]:
    try:
        return column.decoded(), {}
    except RowsFailed as error:
        return None, {row: str(reason) for row, reason in error.failures.items()}


def mask(column: Column) -> list[bool]:
    return [True] * len(column) if column.mask is None else column.mask.tolist()


def exact(value: Any) -> Any:
    """What tells values apart that `==` does not, such as NaNs and types."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value if value is MISSING else encode_entry("k", value)


def rows_of(metadata: Sequence[Data | None] | None) -> list[bytes] | None:
    listed = [b"" if one is None else encode(one) for one in metadata or []]
    return listed if any(listed) else None


def batch_of(found: ReadColumns) -> Batch:
    return Batch(found.columns, len(found.rows), rows=found.rows, metadata=found.metadata)


def blocks(seed: int, messages: int, rows: int = 24) -> Iterator[tuple[list[bytes | None], frozenset[str], Limits]]:
    maker = Maker(seed)
    for _ in range(0, messages, rows):
        yield maker.block(rows), maker.rng.choice(WANTED), maker.rng.choice(LIMITS)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_made_and_mutilated_messages_come_out_alike(seed: int) -> None:
    for messages, wanted, limits in blocks(seed, 1000):
        check(messages, wanted, limits)
        if limits is DEFAULT_LIMITS:
            check_one_by_one(messages, wanted)


@pytest.mark.parametrize("wanted", WANTED, ids=[",".join(sorted(keys))[:20] or "none" for keys in WANTED])
@pytest.mark.slow
def test_messages_of_the_corpus_come_out_alike(wanted: frozenset[str]) -> None:
    messages = [file.read_bytes() for file in sorted(CORPUS.iterdir())]
    assert len(messages) > 30
    for limits in (DEFAULT_LIMITS, Limits(max_bytes=50), Limits(max_elements=4)):
        check(messages, wanted, limits)
        for message in messages:
            check([message], wanted, limits)
    check_one_by_one(messages, wanted)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_made_and_mutilated_messages_come_out_alike() -> None:
    began, total = time.monotonic(), 1_000_000
    for number, (messages, wanted, limits) in enumerate(blocks(99, total)):
        check(messages, wanted, limits)
        if number % 500 == 0:
            done = min(total, number * 24)
            print(f"\r{done:,} of {total:,} messages, {time.monotonic() - began:.0f} s", end="", file=sys.stderr)
    print(f"\r{total:,} messages in {time.monotonic() - began:.0f} s: no difference", file=sys.stderr)


_KINDS = 13
_OTHERS: list[Any] = [
    BoundingBox.corners(1, 2, 3, 4, "cat", 0.5),
    Point([1.0, 2.0], "nose"),
    Image(b"\x89PNG\r\n\x1a\nnot really"),
    Data({"in": 5, "deep": Data({"x": np.zeros(2, "f4")}, metadata={"m": 1})}),
    [1, 2, 300],
    ["a", "bc"],
    [np.zeros(2, "f4"), np.ones((1, 2))],
    [True, False],
    [0.5, float("nan")],
    [[1], [2, 3]],
    ByteBuffer(b"raw"),
]
# Unknown fields and groups, long varints and lengths, reserved keys, entries without a key, a value or either.
_ODDITIES = [
    b"\x3a\x01a",
    b"\x3b\x08\x01\x3c",
    b"\x48\x07",
    b"\x0a\x00",
    b"\x12\x00",
    b"\x0a\x81\x00\x00",
    b"\x0a\x05\x0a\x01x\x12\x00",
    b"\x0a\x04\x12\x02\x68\x05",
    b"\x8a\x00\x00",
    b"\x80",
    b"\xff" * 10,
    encode_entry("@type", 1),
    encode_entry("@other", 1),
    encode_entry("x", 5),
]
