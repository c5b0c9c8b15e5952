"""Messages in columns: the same values, and the same refusals, as one message at a time."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, ObjectColumn, RaggedColumn
from pipelines.data.data import Data
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import RowsFailed, WireError
from pipelines.values import BoundingBox, ByteBuffer, Image, Point, ValueType
from pipelines.wire.columns import decode_columns, encode_columns
from pipelines.wire.limits import DEFAULT_LIMITS, Limits
from pipelines.wire.protobuf import decode, encode, encode_entry, fill
from pipelines.wire.protodata import ReadColumns
from protos import data_pb2 as pb

pytestmark = pytest.mark.usefixtures("hot_path")

DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]
KEYS = ["x", "ts", "id", "", "é", "k" * 130]
INT64 = st.integers(-(2**63), 2**63 - 1)


def varint(number: int, padding: int = 0) -> bytes:
    """A varint, with `padding` bytes more than it needs."""
    number &= 2**64 - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    for _ in range(padding):
        found[-1] |= 0x80
        found.append(0)
    return bytes(found)


def field(number: int, body: bytes, padding: int = 0) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(body), padding) + body


def scheme(value: Any) -> bytes:
    """A value without a key, as protobuf writes it."""
    message = pb.DataScheme()
    fill(message, value)
    return message.SerializeToString()


def assembled(key: str, body: bytes, padding: int = 0) -> bytes:
    """An entry put together by hand."""
    return field(1, field(1, key.encode()) + field(2, body), padding)


@st.composite
def arrays(draw: st.DrawFn) -> npt.NDArray[Any]:
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,), (4, 0), (40,)]))
    seed = draw(st.integers(0, 5))
    return np.random.default_rng(seed).integers(0, 100, shape).astype(draw(st.sampled_from(DTYPES)))


FLAT = st.one_of(
    st.text(max_size=5),
    INT64,
    st.floats(),
    st.booleans(),
    st.binary(max_size=4),
    st.binary(max_size=4).map(ByteBuffer),
    arrays(),
)
VALUES = st.one_of(
    FLAT,
    FLAT,
    st.just(BoundingBox.corners(1, 2, 3, 4, "cat", 0.5)),
    st.just(Point([1.0, 2.0], "nose")),
    st.just(Image(b"\x89PNG\r\n\x1a\nnot really")),
    FLAT.map(lambda value: Data({"in": value})),
    st.lists(INT64, max_size=3),
    st.lists(arrays(), max_size=2),
)


@st.composite
def odd_entries(draw: st.DrawFn, key: str, value: Any) -> bytes:
    """The entry as some other producer might write it, or an attacker."""
    parts = [field(1, key.encode(), draw(st.integers(0, 1))), field(2, scheme(value), draw(st.integers(0, 1)))]
    way = draw(st.integers(0, 9))
    if way == 0:
        parts.reverse()
    elif way == 1:
        parts.pop(draw(st.integers(0, 1)))
    elif way == 2:
        parts.append(field(1, draw(st.sampled_from(KEYS)).encode()))
    elif way == 3:
        parts.append(field(2, scheme(draw(VALUES))))
    elif way == 4:
        parts.append(draw(st.sampled_from([field(9, b"unknown"), b"\x4b\x08\x01\x4c", b"\x48\x07", b"\x4b\x08"])))
    elif way == 5:
        parts.insert(0, field(1, b"\xff\xfe"))
    elif way == 6:
        parts[1] = field(2, b"".join(draw(st.permutations(split(scheme(value))))))
    elif way == 7:
        parts[1] = field(2, scheme(value) + field(15, b"unknown"))
    return field(1, b"".join(parts), draw(st.sampled_from([0, 0, 1, 2, 5])))


def split(message: bytes) -> list[bytes]:
    """The fields of a message, each with its tag, as `scheme` writes them."""
    parts = []
    at = 0
    while at < len(message):
        start, wire_type = at, message[at] & 7
        at += 1
        if wire_type == 0:
            while message[at] > 0x7F:
                at += 1
            at += 1
        elif wire_type == 1:
            at += 8
        else:
            size = shift = 0
            while message[at] > 0x7F:
                size |= (message[at] & 0x7F) << shift
                shift += 7
                at += 1
            at += 1 + (size | message[at] << shift)
        parts.append(message[start:at])
    return parts


@st.composite
def odd_messages(draw: st.DrawFn) -> bytes:
    parts = []
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=4)):
        value = draw(VALUES)
        parts.append(draw(odd_entries(key, value)) if draw(st.booleans()) else encode_entry(key, value))
    extra = draw(st.integers(0, 9))
    if extra == 0:
        parts.append(field(2, field(1, b"m") + field(2, scheme(draw(VALUES)))))
    elif extra == 1:
        parts.append(field(7, b"unknown"))
    elif extra == 2:
        parts.append(b"\x3b\x08\x01\x3c")
    elif extra == 3:
        parts.append(encode_entry("@type", 1))
    elif extra == 4:
        parts.append(b"\x8a\x00" + field(1, b"")[1:])
    return b"".join(draw(st.permutations(parts)))


@st.composite
def alike_messages(draw: st.DrawFn) -> list[bytes]:
    """Messages as one producer sends them: the same keys and types, mostly the same shapes."""
    kinds = {
        "x": arrays(),
        "ts": INT64 | st.integers(0, 300),
        "id": st.text(max_size=3),
        "p": st.floats(),
        "b": st.booleans(),
        "box": st.just(BoundingBox.corners(1, 2, 3, 4)),
    }
    keys = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=4, unique=True))
    like = draw(arrays())
    messages = []
    for _ in range(draw(st.integers(1, 12))):
        parts = []
        for key in keys:
            value = draw(kinds[key])
            if key == "x" and draw(st.integers(0, 9)):
                value = np.random.default_rng(draw(st.integers(0, 9))).integers(0, 9, like.shape).astype(like.dtype)
            parts.append(encode_entry(key, value))
        messages.append(b"".join(parts if draw(st.integers(0, 9)) else draw(st.permutations(parts))))
    return messages


@st.composite
def damaged(draw: st.DrawFn, message: bytes) -> bytes:
    if not message:
        return draw(st.binary(max_size=6))
    place = draw(st.integers(0, len(message) - 1))
    way = draw(st.integers(0, 3))
    if way == 0:
        return message[:place]
    if way == 1:
        return message[:place] + bytes([message[place] ^ 1 << draw(st.integers(0, 7))]) + message[place + 1 :]
    if way == 2:
        return message[:place] + draw(st.binary(min_size=1, max_size=2)) + message[place:]
    return message[:place] + message[place + 1 :]


@st.composite
def blocks(draw: st.DrawFn) -> list[bytes | None]:
    messages: list[bytes | None] = list(draw(alike_messages() | st.lists(odd_messages(), max_size=6)))
    for row in range(len(messages)):
        message = messages[row]
        chance = draw(st.integers(0, 11))
        if chance == 0:
            messages[row] = None
        elif chance == 1:
            messages[row] = draw(damaged(message or b""))
        elif chance == 2:
            messages[row] = draw(odd_messages())
    return messages


WANTED = st.sampled_from(
    [None, frozenset[str](), frozenset(["x"]), frozenset(["ts", "id", "p"]), frozenset([*KEYS, "b"])]
)
LIMITS = st.sampled_from([DEFAULT_LIMITS] * 4 + [Limits(max_bytes=50), Limits(max_elements=4), Limits(max_depth=0)])


def one_by_one(message: bytes, limits: Limits) -> Data | WireError:
    try:
        return decode(message, limits)
    except WireError as error:
        return error


def late_failures(columns: dict[str, Column]) -> dict[int, Exception]:
    found: dict[int, Exception] = {}
    for column in columns.values():
        try:
            column.decoded()
        except RowsFailed as error:
            found.update(error.failures)
    return found


def batch_of(found: ReadColumns) -> Batch:
    return Batch(found.columns, len(found.rows), rows=found.rows, metadata=found.metadata)


def content(data: Data) -> tuple[bytes, bytes]:
    """What a `Data` holds, as bytes: they tell NaN from NaN and types from each other, where `==` would not."""
    return encode(Data(dict(data))), encode(data.metadata) if data.metadata else b""


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(blocks(), WANTED, LIMITS)
def test_columns_hold_what_reading_one_by_one_gives(
    messages: list[bytes | None], wanted: frozenset[str] | None, limits: Limits
) -> None:
    found = decode_columns(messages, wanted, limits)
    rows = found.rows.tolist()
    assert sorted([*rows, *found.failed]) == [row for row, message in enumerate(messages) if message is not None]
    assert rows == sorted(rows)
    batch = batch_of(found)
    passed = encode_columns(batch).messages
    late = late_failures(found.columns)
    for row, message in enumerate(messages):
        if message is None:
            continue
        expected = one_by_one(message, limits)
        if row in found.failed:
            assert isinstance(expected, WireError)
            continue
        pb.DataMap.FromString(message)
        position = rows.index(row)
        if isinstance(expected, WireError):
            assert position in late
        else:
            assert position not in late
            assert content(batch.row(position)) == content(expected)
            assert content(decode(passed[position] or b"")) == content(expected)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4), max_size=6))
def test_written_columns_read_like_messages_written_one_by_one(dicts: list[dict[str, Any]]) -> None:
    datas = [Data(values) for values in dicts]
    written = encode_columns(Batch.of(datas))
    assert not written.failed
    assert [content(decode(message or b"")) for message in written.messages] == [content(data) for data in datas]


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(alike_messages())
def test_unread_keys_pass_through_byte_for_byte(messages: list[bytes]) -> None:
    found = decode_columns(messages, frozenset())
    assert not found.failed
    for before, after in zip(messages, encode_columns(batch_of(found)).messages, strict=True):
        assert sorted(split(before)) == sorted(split(after or b""))


def messages_of(count: int, make: Callable[[int], dict[str, Any]]) -> list[bytes]:
    return [encode(Data(make(row))) for row in range(count)]


def decoded(messages: Sequence[bytes | None], *wanted: str) -> ReadColumns:
    return decode_columns(messages, frozenset(wanted))


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_one_shape_make_one_dense_array(dtype: str) -> None:
    rows = [np.random.default_rng(row).integers(0, 2, (2, 3)).astype(dtype) for row in range(9)]
    column = decoded(messages_of(9, lambda row: {"x": rows[row], "id": "d" * row}), "x").columns["x"]
    assert isinstance(column, DenseColumn)
    assert column.array.dtype == np.dtype(dtype)
    assert np.array_equal(column.array, np.stack(rows))
    assert not column.array.flags.writeable
    assert column.array.flags.aligned


def test_bfloat16_arrays_are_widened_like_those_read_one_by_one() -> None:
    array = field(1, b"\x02") + b"\x10\x03" + field(3, b"\x80\x3f\x00\x40")
    message = assembled("x", field(8, array))
    column = decoded([message] * 3, "x").columns["x"]
    assert column[1].tolist() == decode(message)["x"].tolist() == [1.0, 2.0]


def test_only_the_bytes_that_the_shape_needs_are_read() -> None:
    # Konduit Serving writes int32 arrays made from Java arrays with eight times the bytes.
    def long(row: int) -> bytes:
        array = field(1, b"\x02") + b"\x10\x05" + field(3, np.array([row, -row], "<i4").tobytes() + b"\xee" * 56)
        return assembled("x", field(8, array))

    column = decoded([long(row) for row in range(5)], "x").columns["x"]
    assert isinstance(column, DenseColumn)
    assert column.array.tolist() == [[row, -row] for row in range(5)]


def test_arrays_that_differ_in_the_first_axis_are_ragged() -> None:
    found = decoded(messages_of(4, lambda row: {"x": np.full((row, 2), row, np.float32)}), "x")
    column = found.columns["x"]
    assert isinstance(column, RaggedColumn)
    assert column.splits.tolist() == [0, 0, 1, 3, 6]


@pytest.mark.parametrize("inner", [(), (2,), (0,)])
def test_ragged_rows_keep_their_order_and_values_whatever_their_sizes(inner: tuple[int, ...]) -> None:
    sizes = [2, 0, 2, 3, 2, 0, 1, 3, 1]
    arrays = [np.full((size, *inner), row, np.float32) for row, size in enumerate(sizes)]
    column = decoded(messages_of(len(arrays), lambda row: {"x": arrays[row]}), "x").columns["x"]
    assert isinstance(column, RaggedColumn)
    assert all(np.array_equal(found, array) for found, array in zip(column.values(), arrays, strict=True))


def test_arrays_of_several_dtypes_are_objects() -> None:
    found = decoded(messages_of(4, lambda row: {"x": np.zeros(2, "f4" if row % 2 else "i4")}), "x")
    assert isinstance(found.columns["x"], ObjectColumn)
    assert [value.dtype.str for value in found.columns["x"]] == ["<i4", "<f4"] * 2


def test_numbers_make_a_dense_column_whatever_their_length_on_the_wire() -> None:
    numbers = [0, 1, 127, 128, -1, 2**40, -(2**63), 2**63 - 1] * 3
    found = decoded(messages_of(24, lambda row: {"n": numbers[row], "p": row / 7, "b": row % 3 == 0}), "n", "p", "b")
    n, p, b = (found.columns[key] for key in "npb")
    assert isinstance(n, DenseColumn)
    assert (n.type, n.array.dtype, n.array.tolist()) == (ValueType.INT64, np.dtype(np.int64), numbers)
    assert isinstance(p, DenseColumn)
    assert (p.type, p.array.tolist()) == (ValueType.DOUBLE, [row / 7 for row in range(24)])
    assert isinstance(b, DenseColumn)
    assert (b.type, b.array.dtype, b.array.tolist()) == (
        ValueType.BOOLEAN,
        np.dtype(np.bool_),
        [row % 3 == 0 for row in range(24)],
    )


def test_strings_make_a_list_of_strings() -> None:
    texts = ["", "a", "häuser", "x" * 200, "a"]
    column = decoded(messages_of(5, lambda row: {"s": texts[row]}), "s").columns["s"]
    assert isinstance(column, (ObjectColumn, SpansColumn))
    assert (column.type, column.objects) == (ValueType.STRING, texts)


def test_a_key_that_some_rows_lack_has_a_mask() -> None:
    found = decoded(messages_of(6, lambda row: {"x": np.zeros(2)} if row % 2 else {"id": "a"}), "x")
    column = found.columns["x"]
    assert isinstance(column, DenseColumn)
    assert column.mask is not None
    assert column.mask.tolist() == [False, True] * 3
    assert found.columns["id"].mask is not None


def test_keys_in_any_order_make_the_same_columns() -> None:
    def shuffled(row: int) -> bytes:
        parts = [encode_entry("x", np.full(3, row, np.float32)), encode_entry("ts", row), encode_entry("id", f"d{row}")]
        return b"".join(parts[row % 3 :] + parts[: row % 3])

    found = decoded([shuffled(row) for row in range(30)], "x", "ts")
    assert isinstance(found.columns["x"], DenseColumn)
    assert found.columns["x"].values()[7].tolist() == [7.0] * 3
    assert found.columns["ts"].values() == list(range(30))
    assert found.columns["id"].values() == [f"d{row}" for row in range(30)]


@pytest.mark.parametrize("turned", [1, 11, 29])
def test_one_message_with_its_keys_the_other_way_round_passes_through_all_the_same(turned: int) -> None:
    # Type before value: legal, and protobuf would turn it round if it wrote the entry anew.
    messages = [assembled("n", b"\x68\x05\x20" + varint(row)) + encode_entry("id", f"d{row}") for row in range(30)]
    messages[turned] = b"".join(reversed(split(messages[turned])))
    found = decode_columns(messages)
    passed = encode_columns(batch_of(found)).messages
    assert [sorted(split(message or b"")) for message in passed] == [sorted(split(message)) for message in messages]
    assert found.columns["n"].values() == list(range(30))


def test_several_producers_share_a_batch() -> None:
    # Each has its own order of fields within the value; all are legal.
    def produced(row: int) -> bytes:
        array = [field(1, b"\x02"), b"\x10\x01", field(3, np.array([row, 1], "<f4").tobytes())]
        return assembled("x", field(8, b"".join(array[row % 3 :] + array[: row % 3])))

    column = decoded([produced(row) for row in range(30)], "x").columns["x"]
    assert isinstance(column, DenseColumn)
    assert column.array[:, 0].tolist() == list(range(30))


def test_values_whose_bytes_stand_in_the_entry_more_than_once_are_read_right() -> None:
    # The number's one byte is also its type's number, the array's are those of its shape.
    rows = [{"n": 5, "x": np.full(1, row % 3, np.uint8), "b": bool(row % 2), "s": "s"} for row in range(20)]
    found = decoded(messages_of(20, lambda row: rows[row]), "n", "x", "b", "s")
    assert [Data(values) for values in rows] == batch_of(found).to_list()


def test_a_broken_message_harms_no_other() -> None:
    messages: list[bytes | None] = list(
        messages_of(40, lambda row: {"x": np.full(3, row, np.float32), "id": f"é{row}"})
    )
    whole = messages[0] or b""
    messages[3] = whole[:-3]
    messages[4] = b"\xff" * 20
    messages[5] = None
    messages[6] = whole.replace("é".encode(), b"\xc3\x28")
    messages[7] = whole.replace(b"\x0a\x01x", b"\x0a\x09x")
    found = decoded(messages, "x")
    assert sorted(found.failed) == [3, 4, 6, 7]
    assert found.rows.tolist() == [row for row in range(40) if row not in (3, 4, 5, 6, 7)]
    assert found.columns["id"].values() == [f"é{row}" for row in found.rows]
    assert all("ProtoData" in str(error) for error in found.failed.values())


def test_a_wrong_value_fails_its_row_if_wanted_and_else_when_it_is_decoded() -> None:
    messages = messages_of(5, lambda row: {"x": np.full(3, row, np.float32)})
    messages[2] = messages[2].replace(b"\x0a\x01\x03", b"\x0a\x01\x04")
    found = decoded(messages, "x")
    assert list(found.failed) == [2]
    assert 'key "x"' in str(found.failed[2])
    assert "needs 16 bytes" in str(found.failed[2])
    unread = decode_columns(messages)
    assert not unread.failed
    with pytest.raises(RowsFailed) as raised:
        unread.columns["x"].decoded()
    assert list(raised.value.failures) == [2]
    assert encode_columns(batch_of(unread)).messages == messages


def test_the_last_of_two_entries_of_a_key_counts() -> None:
    double = encode_entry("n", 1) + encode_entry("n", 2)
    found = decoded([encode_entry("n", 7), double, double], "n")
    assert found.columns["n"].values() == [7, 2, 2]
    unread = decode_columns([double])
    assert unread.columns["n"].values() == [2]


def test_a_wrong_value_that_a_later_entry_replaces_does_not_matter() -> None:
    broken = assembled("n", b"\x68\x05")
    found = decoded([broken + encode_entry("n", 2), broken], "n")
    assert found.columns["n"].values() == [2]
    assert list(found.failed) == [1]


def test_a_broken_entry_counts_even_if_a_later_one_replaces_it() -> None:
    broken = field(1, field(1, b"n") + field(2, b"\xff"))
    found = decode_columns([encode_entry("n", 1), broken + encode_entry("n", 2)])
    assert list(found.failed) == [1]


def test_an_entry_with_two_keys_counts_under_the_last_of_them() -> None:
    renamed = field(1, field(1, b"n") + field(2, scheme(3)) + field(1, b"m"))
    found = decode_columns([encode_entry("n", 1), encode_entry("n", 2), renamed])
    assert found.columns["n"].values() == [1, 2, MISSING]
    assert found.columns["m"].values() == [MISSING, MISSING, 3]
    # It may replace a value that could not be read.
    wrong = assembled("m", b"\x68\x05")
    found = decoded([wrong + renamed], "m")
    assert found.columns["m"].values() == [3]
    assert not found.failed


@pytest.mark.parametrize(
    ("usual", "unusual"),
    [
        # INT64 of one byte, then the same bytes labelled DOUBLE.
        (5, b"\x20\x05\x68\x04"),
        # INT64 of three bytes, then one byte and another field; a varint that does not end; one too long.
        (1 << 14, b"\x20\x05\x60\x01\x68\x05"),
        (1 << 14, b"\x20\x80\x80\x80\x68\x05"),
        (-1, b"\x20" + b"\xff" * 9 + b"\x7f\x68\x05"),
        (-1, b"\x20" + b"\xff" * 9 + b"\x81\x68\x05"),
        # A boolean of 2; one that does not end.
        (True, b"\x28\x02\x68\x06"),
        (True, b"\x28\x80\x68\x06"),
        # A string that is no text, a string labelled as bytes.
        ("ab", b"\x12\x02\xff\xfe\x68\x01"),
        ("ab", b"\x12\x02ab\x68\x02"),
    ],
)
@pytest.mark.parametrize("wanted", [True, False])
def test_an_entry_that_only_looks_like_its_neighbours_is_read_for_what_it_is(
    usual: Any, unusual: bytes, wanted: bool
) -> None:
    odd = assembled("n", unusual)
    messages = [encode_entry("n", usual)] * 4 + [odd] + [encode_entry("n", usual)] * 4
    assert len(odd) == len(messages[0])
    expected = one_by_one(odd, DEFAULT_LIMITS)
    found = decode_columns(messages, frozenset({"n"} if wanted else ()))
    late = late_failures(found.columns)
    if isinstance(expected, WireError):
        assert [*found.failed, *late] == [4]
    else:
        assert found.columns["n"].values() == [usual] * 4 + [expected["n"]] + [usual] * 4


def test_a_key_whose_length_takes_a_byte_too_many_is_the_same_key() -> None:
    padded = field(1, field(1, b"n", padding=1) + field(2, scheme(2)))
    for wanted in ([], ["n"]):
        found = decoded([encode_entry("n", 1), padded, encode_entry("n", 3)], *wanted)
        assert found.columns["n"].values() == [1, 2, 3]


def test_an_entry_whose_length_takes_a_byte_too_many_passes_through_untouched() -> None:
    messages = [encode_entry("n", 1), assembled("n", scheme(2), padding=1), assembled("n", scheme(3), padding=2)]
    found = decode_columns(messages)
    assert list(encode_columns(batch_of(found)).messages) == messages
    assert found.columns["n"].values() == [1, 2, 3]


def test_long_keys_that_differ_at_their_ends_are_told_apart() -> None:
    keys = ["k" * 300 + end for end in "ab"]
    messages = [b"".join(encode_entry(key, row) for key in keys[:: 1 if row % 3 else -1]) for row in range(9)]
    found = decoded(messages, keys[0])
    assert [found.columns[key].values() for key in keys] == [list(range(9))] * 2
    passed = encode_columns(batch_of(decode_columns(messages))).messages
    assert [sorted(split(message or b"")) for message in passed] == [sorted(split(message)) for message in messages]


def test_long_keys_of_clients_are_not_kept_in_memory() -> None:
    def written(number: int) -> int:
        key = f"{number:08}" * 12_500
        batch = Batch.of([Data({key: np.arange(3.0)})])
        return sum(len(message) for message in encode_columns(batch).messages if message is not None)

    written(0)
    tracemalloc.start()
    try:
        assert all(written(number) > 100_000 for number in range(1, 50))
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


def test_entries_that_need_more_bytes_for_their_lengths_than_others_stay_in_their_column() -> None:
    texts = ["x" * size for size in (5, 120, 121, 122, 123, 124, 200, 16_370, 16_380, 3)]
    found = decoded(messages_of(len(texts), lambda row: {"s": texts[row], "n": row}), "s")
    assert found.columns["s"].values() == texts
    assert found.columns["n"].values() == list(range(len(texts)))


def test_metadata_is_read_and_written() -> None:
    datas = [Data({"n": 1}, metadata={"from": "a"}), Data({"n": 2}), Data({"n": 3}, metadata={"x": np.zeros(2)})]
    found = decode_columns([encode(data) for data in datas])
    assert found.metadata is not None
    assert found.metadata == [data.metadata for data in datas]
    assert found.columns["n"].values() == [1, 2, 3]
    again = [decode(message or b"") for message in encode_columns(batch_of(found)).messages]
    assert [data.metadata for data in again] == [data.metadata for data in datas]


@pytest.mark.parametrize("count", [1, 40])
def test_a_message_whose_metadata_is_broken_is_told_with_all_its_bytes(count: int) -> None:
    message = encode_entry("n", 1) + field(2, field(1, b"key") + b"\x12\x05cut")
    with pytest.raises(WireError, match=f"the {len(message)} bytes are no ProtoData message") as one:
        decode(message)
    found = decode_columns([encode_entry("n", 2), *[message] * count])
    assert found.rows.tolist() == [0]
    assert {str(error) for error in found.failed.values()} == {str(one.value)}


def test_metadata_that_cannot_be_read_fails_the_message() -> None:
    broken = encode_entry("n", 1) + field(2, field(1, b"m") + field(2, b"\x68\x05"))
    found = decode_columns([encode_entry("n", 1), broken])
    assert list(found.failed) == [1]
    assert found.metadata is None or found.metadata == [None]


def test_reserved_keys_fail_the_message_even_if_nobody_reads_them() -> None:
    found = decode_columns([encode_entry("n", 1), encode_entry("n", 1) + encode_entry("@Type", "x")])
    assert list(found.failed) == [1]
    assert list(found.columns) == ["n"]


def test_a_reserved_key_fails_the_message_whatever_its_value() -> None:
    future = assembled("@type", field(3, b"abc") + b"\x68\x63")
    for wanted in ([], ["@type"]):
        assert list(decoded([encode_entry("n", 1), encode_entry("n", 2) + future], *wanted).failed) == [1]


def test_a_value_of_an_unknown_type_is_missing_but_passes_through() -> None:
    future = assembled("new", field(3, b"abc") + b"\x68\x63")
    found = decode_columns([encode_entry("new", 1), future])
    assert encode_columns(batch_of(found)).messages[1] == future
    assert found.columns["new"].values() == [1, MISSING]
    assert decoded([future], "new").columns["new"].values() == [MISSING]


def test_an_unreadable_map_entry_is_no_entry_as_protobuf_sees_it() -> None:
    stranger = field(1, field(1, b"n") + field(2, scheme(1)) + field(9, b"unknown"))
    assert "n" not in pb.DataMap.FromString(stranger).mapItems
    found = decode_columns([encode_entry("n", 1), stranger])
    assert not found.failed
    assert found.columns["n"].values() == [1, MISSING]


def test_empty_messages_and_none_are_told_apart() -> None:
    found = decode_columns([b"", None, b""])
    assert found.rows.tolist() == [0, 2]
    assert found.columns == {}
    assert decode_columns([]).rows.tolist() == []
    assert decode_columns([None]).rows.dtype == np.int64


def test_other_buffers_are_read_and_other_objects_refused() -> None:
    message = encode_entry("n", 1)
    found = decode_columns([message, bytearray(message), memoryview(message), "n", 5])
    assert found.rows.tolist() == [0, 1, 2]
    assert sorted(found.failed) == [3, 4]
    assert "bytes, not str" in str(found.failed[3])


def test_messages_in_one_buffer_are_read_like_a_list_of_them() -> None:
    messages: list[bytes | None] = [*messages_of(5, lambda row: {"n": row, "id": f"d{row}"}), None, b"\xff"]
    found = decoded(Spans.of(messages), "id")
    assert (found.rows.tolist(), list(found.failed)) == ([0, 1, 2, 3, 4], [6])
    assert found.columns["id"].values() == [f"d{row}" for row in range(5)]
    assert list(encode_columns(batch_of(found)).messages) == messages[:5]


def test_a_message_beyond_a_limit_fails_alone() -> None:
    messages = [encode(Data({"s": "x" * size})) for size in (10, 100)]
    found = decode_columns(messages, None, Limits(max_bytes=60))
    assert list(found.failed) == [1]
    # Long for its elements, but within the limit.
    assert not decode_columns(messages, None, Limits(max_elements=5)).failed
    listed = [encode(Data({"l": [1] * size})) for size in (2, 9)]
    assert list(decode_columns(listed, None, Limits(max_elements=5)).failed) == [1]


def test_undecoded_columns_of_one_key_can_be_joined_undecoded() -> None:
    first = decode_columns(messages_of(3, lambda row: {"n": row}))
    second = decode_columns(messages_of(2, lambda row: {"n": row + 10}))
    joined = Column.concat([first.columns["n"], second.columns["n"]])
    assert isinstance(joined, WireColumn)
    assert joined.values() == [0, 1, 2, 10, 11]


def test_an_undecoded_column_under_another_key_is_written_under_that_key() -> None:
    found = decode_columns(messages_of(3, lambda row: {"n": row}))
    renamed = Batch({"m": found.columns["n"]}, 3)
    assert [decode(message or b"") for message in encode_columns(renamed).messages] == [
        Data({"m": n}) for n in range(3)
    ]


def test_a_value_that_cannot_be_decoded_cannot_be_written_under_another_key() -> None:
    found = decode_columns([encode_entry("n", 1), assembled("n", b"\x68\x05")])
    written = encode_columns(Batch({"m": found.columns["n"]}, 2))
    assert [message is None for message in written.messages] == [False, True]
    assert list(written.failed) == [1]


def test_a_value_that_cannot_be_written_fails_its_row() -> None:
    batch = Batch({"s": Column.of(["fine", "\ud800", "fine"]), "n": Column.of([1, 2, 3])}, 3)
    written = encode_columns(batch)
    assert list(written.failed) == [1]
    assert written.messages[1] is None
    assert decode(written.messages[2] or b"") == Data({"s": "fine", "n": 3})


@pytest.mark.parametrize("size", [1, 7, 4000])
def test_columns_are_written_in_parts_without_losing_a_row(size: int) -> None:
    array = np.arange(50 * size, dtype=np.float32).reshape(50, size)
    present = np.arange(50) % 3 > 0
    batch = Batch(
        {
            "y": DenseColumn(array),
            "gaps": DenseColumn(array[:, :1], present=present),
            "n": DenseColumn(np.arange(50) - 25, ValueType.INT64, present),
            "edges": Column.of([(1 << 7 * (row % 8 + 1)) - row % 2 for row in range(50)]),
            "label": Column.of(["x" * row for row in range(50)]),
        },
        50,
    )
    for row, message in enumerate(encode_columns(batch).messages):
        assert decode(message or b"") == batch.row(row)


def test_arrays_in_any_byte_order_and_layout_are_written_little_endian_and_in_c_order() -> None:
    array = np.arange(24, dtype=">f4").reshape(2, 3, 4).transpose(0, 2, 1)
    messages = encode_columns(Batch({"y": DenseColumn(array)}, 2)).messages
    assert decode(messages[1] or b"")["y"].tolist() == array[1].tolist()


def test_rows_without_any_value_are_empty_messages() -> None:
    assert encode_columns(Batch({}, 2)).messages == [b"", b""]
    assert encode_columns(Batch({"a": Column.absent(2)}, 2)).messages == [b"", b""]


@pytest.mark.parametrize("count", [20, 200])
@pytest.mark.parametrize("rewritten", [False, True])
def test_broken_messages_among_many_leave_keys_metadata_and_order_of_all_others(count: int, rewritten: bool) -> None:
    data = [Data({"n": row, "x": np.full(row % 3 + 1, row, np.float32)}) for row in range(count)]
    data[5]["rare"] = "only here"
    data[9].metadata = Data({"m": 9})
    messages = [one.to_bytes() for one in data]
    for row in (0, 7, 8, count - 1):
        messages[row] = b"\x0a\xff\xff broken"
    if rewritten:
        messages[6] += field(7, b"of a later version")
    found = decoded(messages, "x")
    assert sorted(found.failed) == [0, 7, 8, count - 1]
    assert found.rows.tolist() == [row for row in range(count) if row not in found.failed]
    assert batch_of(found).to_list() == [data[row] for row in found.rows.tolist()]
    assert [metadata for metadata in found.metadata or () if metadata is not None] == [Data({"m": 9})]
