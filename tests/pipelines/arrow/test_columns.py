"""Arrow's arrays become columns and columns become Arrow's arrays again, of every type, whole and in slices."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import MISSING, Batch, BoundingBox, Column, Data, DataError, Image, Point, RowsFailed, WrongTypeError
from pipelines.arrow import batch_of, record_batch_of
from pipelines.arrow.buffers import numbers_of
from pipelines.arrow.nesting import content_of_size
from pipelines.arrow.types import field_for as field_or_none
from pipelines.data.columns import DenseColumn, RaggedColumn
from pipelines.data.spanscolumn import SpansColumn

INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
TEXTS = st.text(max_size=5)
DAY = datetime.datetime(1990, 1, 1, tzinfo=datetime.UTC)


def integers(kind: Any) -> st.SearchStrategy[int]:
    bits = np.iinfo(kind.to_pandas_dtype())
    return st.integers(int(bits.min), min(int(bits.max), 2**63 - 1))


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of an Arrow type that a record can hold, without nulls inside of lists."""
    types = pa.types
    if types.is_boolean(kind):
        return st.booleans()
    if types.is_integer(kind):
        return integers(kind)
    if types.is_floating(kind):
        if types.is_float64(kind):
            return st.floats()
        return st.floats(width=32 if types.is_float32(kind) else 16)
    if types.is_timestamp(kind) or types.is_date(kind):
        return st.integers(0, 10_000).map(lambda day: DAY + datetime.timedelta(day))
    if types.is_fixed_size_list(kind):
        return st.lists(values_of(kind.value_type), min_size=kind.list_size, max_size=kind.list_size)
    if types.is_nested(kind) and not types.is_struct(kind):
        return st.lists(values_of(kind.value_type), max_size=3)
    if types.is_struct(kind):
        each = {kind.field(place).name: values_of(kind.field(place).type) for place in range(kind.num_fields)}
        return st.fixed_dictionaries({key: st.none() | inner for key, inner in each.items()})
    if types.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return st.binary(max_size=5)
    return TEXTS


PLAIN = [*INTEGERS, pa.float16(), pa.float32(), pa.float64(), pa.bool_()]
TYPES = [
    *PLAIN,
    *(pa.list_(kind) for kind in PLAIN),
    *(pa.list_(kind, 3) for kind in (pa.uint8(), pa.float32(), pa.bool_())),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)),
    *(pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns"), pa.date32(), pa.date64()),
    *(pa.timestamp("ms", "UTC"), pa.list_(pa.timestamp("ms"))),
    *(pa.large_list(pa.float64()), pa.list_(pa.list_(pa.int16(), 2), 2), pa.list_(pa.list_(pa.int16(), 2))),
    *(pa.list_(pa.string()), pa.list_(pa.string(), 2), pa.list_(pa.binary()), pa.list_(pa.list_(pa.string()))),
    *(pa.struct([("a", pa.int64()), ("b", pa.string())]), pa.list_(pa.struct([("a", pa.list_(pa.float32()))]))),
    *(pa.struct([("in", pa.struct([("b", pa.bool_())]))]), pa.list_view(pa.int32()), pa.large_list_view(pa.float32())),
    pa.list_(pa.string_view()),
]


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """An array of any type, with nulls, of which a slice may be meant."""
    kind = draw(st.sampled_from(TYPES))
    array = pa.array(draw(st.lists(st.none() | values_of(kind), max_size=9)), kind)
    first = draw(st.integers(0, len(array)))
    return array.slice(first, draw(st.integers(0, len(array) - first)))


def equal(one: Any, other: Any) -> bool:
    """Whether arrays have the same values, NaN equal to itself."""
    return bool(one.type == other.type and repr(one.to_pylist()) == repr(other.to_pylist()))


@given(arrays())
def test_every_type_comes_back_as_it_went_read_or_not(array: Any) -> None:
    records = pa.record_batch([array], ["x"])
    batch = batch_of(records)
    assert equal(record_batch_of(batch, records.schema).column(0), array)
    read = Batch({"x": batch["x"].called("x")}, len(array))
    assert equal(record_batch_of(read, records.schema).column(0), array)
    rebuilt = Batch({"x": Column.of(batch["x"].values())}, len(array))
    assert equal(record_batch_of(rebuilt, records.schema).column(0), array)


@given(arrays(), st.data())
def test_rows_are_selected_and_joined_undecoded(array: Any, data: st.DataObject) -> None:
    records = pa.record_batch([array], ["x"])
    rows = data.draw(st.lists(st.integers(0, len(array) - 1), max_size=5)) if len(array) else []
    batch = batch_of(records)
    both = Batch.concat([batch.take(rows), batch.part(0, len(array))])
    expected = pa.concat_arrays([*(array.slice(row, 1) for row in rows), array])
    assert equal(record_batch_of(both, records.schema).column(0), expected)


@given(arrays())
def test_what_a_row_has_does_not_depend_on_the_rows_beside_it(array: Any) -> None:
    column = batch_of(pa.record_batch([array], ["x"])).get("x")
    for row in range(len(array)):
        alone = batch_of(pa.record_batch([array.slice(row, 1)], ["x"])).get("x")[0]
        assert repr(column[row]) == repr(alone)
        assert (column[row] is MISSING) == (not array[row].is_valid)


def field_for(key: str, column: Column) -> Any:
    return field_or_none(key, column)


def column_of(array: Any, metadata: Any = None) -> Column:
    schema = pa.schema([pa.field("x", array.type, metadata=metadata)])
    return batch_of(pa.RecordBatch.from_arrays([array], schema=schema))["x"]


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.uint8(), pa.float32()])
def test_numbers_in_lists_are_not_copied(kind: Any) -> None:
    numbers = pa.array(range(12), kind)
    address = numbers.buffers()[1].address
    width = kind.bit_width // 8
    nested = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(numbers, 2), 2)
    column = column_of(nested.slice(1))
    assert isinstance(column, DenseColumn)
    assert column.storage.shape == (2, 2, 2)
    assert column.storage.ctypes.data == address + 4 * width
    ragged = column_of(pa.ListArray.from_arrays(pa.array([0, 5, 6, 12], pa.int32()), numbers).slice(1))
    assert isinstance(ragged, RaggedColumn)
    assert ragged.samples.ctypes.data == address + 5 * width
    assert (
        record_batch_of(Batch({"x": column}, 2), pa.schema([("x", nested.type)]))
        .column(0)
        .values.values.buffers()[1]
        .address
        == address + 4 * width
    )


def test_texts_and_scalars_are_not_copied() -> None:
    texts = pa.array(["ab", None, "c"])
    column = column_of(texts)
    if isinstance(column, SpansColumn):
        assert column.spans.buffer.ctypes.data == texts.buffers()[2].address
    numbers = pa.array([1, 2, None])
    column = column_of(numbers)
    assert isinstance(column, DenseColumn)
    assert column.storage.ctypes.data == numbers.buffers()[1].address


def test_lists_of_lists_of_one_size_are_arrays_of_two_axes() -> None:
    """So Spark and pandas give what Arrow has as lists of a fixed size."""
    pictures = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    column = column_of(pa.array(pictures.tolist(), pa.list_(pa.list_(pa.uint8()))))
    assert isinstance(column, DenseColumn)
    assert column.array.dtype == np.uint8
    assert (column.array == pictures).all()
    different = column_of(pa.array([[[1, 2], [3, 4]], [[5], [6], [7]], [[1], [2, 3]], None, []]))
    assert different[0].shape == (2, 2)
    assert different[1].shape == (3, 1)
    assert different[2] == [[1], [2, 3]]
    assert different[3] is MISSING


@pytest.mark.parametrize("permutation", [None, [0, 1, 2], [2, 0, 1]])
def test_a_tensor_has_the_axes_that_its_type_says(permutation: list[int] | None) -> None:
    kind = pa.fixed_shape_tensor(pa.int32(), [2, 3, 4], permutation=permutation)
    storage = pa.FixedSizeListArray.from_arrays(pa.array(range(72), pa.int32()), 24)
    tensors = pa.ExtensionArray.from_storage(kind, storage)
    column = column_of(tensors.slice(1))
    stored = np.arange(24, 72).reshape(2, 2, 3, 4)
    # pyarrow's own conversion mixes up the axes of the last of these.
    expected = stored if permutation is None else stored.transpose(0, *(axis + 1 for axis in permutation))
    assert column.array.shape == expected.shape
    assert (column.array == expected).all()
    written = record_batch_of(Batch({"x": column}, 2), pa.schema([("x", kind)])).column(0)
    assert written.equals(tensors.slice(1))
    with pytest.raises(RowsFailed, match="no such tensor"):
        record_batch_of(Batch({"x": Column.of([np.zeros((5, 5, 5))])}, 1), pa.schema([("x", kind)]))


def test_a_tensor_may_be_null() -> None:
    kind = pa.fixed_shape_tensor(pa.int32(), [2])
    storage = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))
    column = column_of(pa.ExtensionArray.from_storage(kind, storage))
    assert column[1] is MISSING
    assert column[2].tolist() == [3, 4]
    assert record_batch_of(Batch({"x": column}, 3), pa.schema([("x", kind)])).column(0).storage.to_pylist() == [
        [1, 2],
        None,
        [3, 4],
    ]


def test_dictionaries_and_runs_are_decoded() -> None:
    texts = pa.array(["a", None, "b", "a"])
    assert column_of(texts.dictionary_encode()).values() == ["a", MISSING, "b", "a"]
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([7, 8]))
    assert column_of(runs).values() == [7, 7, 8]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 4], pa.int32()), texts.dictionary_encode())
    assert column_of(pa.array([[1], [2]], pa.list_view(pa.int64()))).values() == [[1], [2]]
    with pytest.raises(RowsFailed):
        column_of(lists)


def test_views_of_lists_may_overlap_and_lack_values() -> None:
    offsets, sizes = pa.array([3, 0, 1], pa.int32()), pa.array([1, 0, 3], pa.int32())
    views = pa.ListViewArray.from_arrays(offsets, sizes, pa.array([1.0, 2.0, 3.0, 4.0]))
    assert [value.tolist() for value in column_of(views)] == [[4], [], [2, 3, 4]]
    assert [value.tolist() for value in column_of(views.slice(1))] == [[], [2, 3, 4]]
    with_null = pa.array([[1], None, [2, 3]], pa.list_view(pa.int8()))
    assert column_of(with_null)[1] is MISSING
    assert column_of(with_null)[2].tolist() == [2, 3]


def test_maps_are_nested_data() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    maps = pa.array([[("a", 1), ("b", None)], None, []], kind)
    column = column_of(maps)
    assert column.values() == [Data({"a": 1}), MISSING, Data()]
    assert record_batch_of(Batch({"x": column}, 3), pa.schema([("x", kind)])).column(0).to_pylist() == [
        [("a", 1)],
        None,
        [],
    ]


def test_times_are_milliseconds() -> None:
    assert column_of(pa.array([1_999, -1], pa.timestamp("us"))).values() == [1, -1]
    assert column_of(pa.array([1], pa.timestamp("s"))).values() == [1000]
    assert column_of(pa.array([datetime.date(1970, 1, 2)])).values() == [86_400_000]
    assert column_of(pa.array([datetime.time(0, 0, 1)])).values() == [1000]
    assert column_of(pa.array([datetime.timedelta(seconds=2)])).values() == [2000]
    back = record_batch_of(Batch({"x": Column.of([1500])}, 1), pa.schema([("x", pa.timestamp("us", "UTC"))]))
    assert back.column(0).to_pylist()[0].microsecond == 500_000
    with pytest.raises(RowsFailed, match="would lose data"):
        record_batch_of(Batch({"x": Column.of([1500])}, 1), pa.schema([("x", pa.duration("s"))]))


def test_decimals_are_doubles() -> None:
    assert column_of(pa.array([Decimal("1.25"), None])).values() == [1.25, MISSING]


def test_binary_whose_field_says_so_is_an_image() -> None:
    file = Image(np.zeros((2, 3, 3), np.uint8)).to_wire()
    column = column_of(pa.array([file, None]), {"image": "true"})
    assert column[0].width == 3
    assert column[1] is MISSING
    field = field_for("x", column)
    assert field.metadata == {b"image": b"true"}
    written = record_batch_of(Batch({"x": column}, 2), pa.schema([field]))
    assert written.column(0).to_pylist() == [file, None]
    inside = pa.struct([pa.field("photo", pa.binary(), metadata={"image": "true"})])
    batch = batch_of(pa.record_batch([pa.array([{"photo": file}], inside)], ["x"]))
    assert batch.may_hold_images
    assert batch["x"][0]["photo"].width == 3
    assert not batch_of(pa.record_batch([pa.array([b"a"])], ["x"])).may_hold_images


@pytest.mark.parametrize(
    ("array", "row", "why"),
    [
        (pa.array([[1, 2], [3, None]]), 1, "a null inside"),
        (pa.array([[1, 2], [3, None]], pa.list_(pa.int8(), 2)), 1, "a null inside"),
        (pa.array([["a"], ["b", None]]), 1, "a null inside"),
        (pa.array([[[1]], [[2], None]]), 1, "a null inside"),
        (pa.array([1, 2**63], pa.uint64()), 1, "does not fit"),
        (pa.array([{"a": 1}, {"a": 2**63}], pa.struct([("a", pa.uint64())])), 1, "does not fit"),
        (pa.array([None, (1, 2, 3)], pa.month_day_nano_interval()), 1, "month_day_nano_interval are none of a Data"),
        (pa.array([None, [{"@type": 1}]]), 1, "@type"),
    ],
)
def test_a_value_that_no_record_can_hold_fails_its_row_alone(array: Any, row: int, why: str) -> None:
    batch = batch_of(pa.record_batch([array], ["x"]))
    with pytest.raises(RowsFailed, match=why) as error:
        batch["x"].values()
    assert list(error.value.failures) == [row]
    assert batch.take([0])["x"].values() is not None
    # Who does not read it has it as it came.
    assert record_batch_of(batch, pa.schema([("x", array.type)])).column(0).equals(array)


def test_text_that_is_not_utf8_fails_its_row_alone() -> None:
    raw = pa.array([b"a", b"\xff", None])
    texts = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    with pytest.raises(RowsFailed, match="UTF-8") as error:
        column_of(texts)
    assert list(error.value.failures) == [1]


@pytest.mark.parametrize("broken", [[0, 100, 200], [0, 3, 1], [-1, 0, 1]])
def test_damaged_offsets_are_refused(broken: list[int]) -> None:
    offsets = np.array([0, 1, 2], np.int32)
    buffer = pa.py_buffer(offsets)
    texts = pa.Array.from_buffers(pa.string(), 2, [None, buffer, pa.py_buffer(b"abc")])
    lists = pa.Array.from_buffers(pa.list_(pa.int64()), 2, [None, buffer], children=[pa.array([1, 2])])
    batch = batch_of(pa.record_batch([texts, lists], ["texts", "lists"]))
    # Arrow checks what it makes, not what it reads.
    offsets[:] = broken
    for key in ("texts", "lists"):
        with pytest.raises(DataError, match="damaged"):
            batch[key].values()


def test_lists_of_a_fixed_size_that_have_too_few_values_are_refused() -> None:
    class Short(list[int]):
        values = pa.array([1, 2, 3])
        offset = 0

    with pytest.raises(DataError, match="too few values"):
        content_of_size(Short([0, 0]), 2)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(Exception, match="several columns are named 'x'"):
        batch_of(pa.record_batch([pa.array([1]), pa.array([2])], ["x", "x"]))


def test_a_record_batch_without_rows_or_columns_is_a_batch_without() -> None:
    empty = pa.record_batch([pa.array([], pa.list_(pa.string())), pa.array([], pa.string())], ["x", "y"])
    batch = batch_of(empty)
    assert (batch.size, batch["x"].values(), batch["y"].values()) == (0, [], [])
    assert record_batch_of(batch, empty.schema).equals(empty)
    assert numbers_of(pa.array([], pa.bool_())).shape == (0,)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, MISSING], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([True], pa.bool_()),
        (["a"], pa.string()),
        ([b"a"], pa.binary()),
        ([np.zeros(3, np.float32)], pa.list_(pa.float32())),
        ([np.zeros((3, 2), np.uint8), np.zeros((4, 2), np.uint8)], pa.list_(pa.list_(pa.uint8(), 2))),
        ([np.zeros((3, 2)), np.zeros((4, 1))], pa.list_(pa.list_(pa.float64()))),
        ([np.zeros((), np.int8)], pa.int8()),
        ([[1, 2], [3]], pa.list_(pa.int64())),
        ([["a"], []], pa.list_(pa.string())),
        ([Data({"a": 1}), Data({"b": "x"})], pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ],
)
def test_values_have_the_type_that_fits_others_like_them(values: list[Any], kind: Any) -> None:
    column = Column.of(values)
    field = field_for("x", column)
    assert field.type == kind
    written = record_batch_of(Batch({"x": column}, len(values)), pa.schema([field])).column(0).to_pylist()
    for value, cell in zip(values, written, strict=True):
        if isinstance(value, np.ndarray):
            assert np.array_equal(np.array(cell).reshape(value.shape), value)
        elif value is MISSING:
            assert cell is None
        elif not isinstance(value, Data):
            assert cell == value


def test_boxes_and_points_are_structs() -> None:
    box = BoundingBox.corners(0.1, 0.3, 0.2, 0.4, "cat", 0.5)
    column = Column.of([[box], []])
    field = field_for("boxes", column)
    (cells, none) = record_batch_of(Batch({"boxes": column}, 2), pa.schema([field])).column(0).to_pylist()
    assert cells == [{"x1": box.x1, "y1": box.y1, "x2": box.x2, "y2": box.y2, "label": "cat", "probability": 0.5}]
    assert none == []
    point = Column.of([Point([1, 2]), MISSING])
    written = record_batch_of(Batch({"p": point}, 2), pa.schema([field_for("p", point)])).column(0).to_pylist()
    assert written == [{"coords": [1.0, 2.0], "label": None, "probability": None}, None]


def test_of_values_that_no_one_type_fits_the_first_counts() -> None:
    assert field_for("x", Column.of([1, "a"])).type == pa.int64()
    assert field_for("x", Column.of([np.zeros((2, 2)), np.zeros(2)])).type == pa.list_(pa.list_(pa.float64(), 2))
    assert field_for("x", Column.of([Data({"a": 1}), Data({"a": "x"})])).type == pa.struct([("a", pa.int64())])
    assert field_for("x", Column.of([MISSING])) is None
    assert field_for("x", Column.of([[1, "a"], [1, 2], "a"])).type == pa.list_(pa.int64())
    with pytest.raises(WrongTypeError, match='no type of Arrow fits the value of "x"'):
        field_for("x", Column.of([[1, "a"], [2, "b"]]))


@pytest.mark.parametrize(
    ("values", "kind", "row"),
    [
        ([1, 300], pa.int8(), 1),
        ([1.0, 1.5], pa.int64(), 1),
        ([1, "a"], pa.int64(), 1),
        (["a", 1], pa.string(), 1),
        ([1, True], pa.int64(), 1),
        ([np.zeros(3), np.zeros(4)], pa.list_(pa.float64(), 3), 1),
        ([np.zeros(3), np.zeros((3, 1))], pa.list_(pa.float64()), 1),
        ([np.zeros(3), 1.0], pa.list_(pa.float64()), 1),
        ([Data({"a": 1}), Data({"a": 1, "b": 2})], pa.struct([("a", pa.int64())]), 1),
        ([Data({"a": 1}), Data({"a": "x"})], pa.struct([("a", pa.int64())]), 1),
        ([1, 2**40], pa.time32("ms"), 1),
    ],
)
def test_a_value_of_another_type_than_the_schema_fails_its_row_alone(values: list[Any], kind: Any, row: int) -> None:
    batch = Batch({"x": Column.of(values)}, 2)
    with pytest.raises(RowsFailed, match='"x"') as error:
        record_batch_of(batch, pa.schema([("x", kind)]))
    assert list(error.value.failures) == [row]
    assert record_batch_of(batch.take([0]), pa.schema([("x", kind)])).num_rows == 1


def test_arrays_of_numbers_that_arrow_lacks_fail_their_rows() -> None:
    batch = Batch({"x": Column.of([np.zeros(2, ml_dtypes.bfloat16)] * 2)}, 2)
    with pytest.raises(RowsFailed, match="it is of bfloat16, which Arrow does not have") as error:
        record_batch_of(batch, pa.schema([("x", pa.list_(pa.float32()))]))
    assert list(error.value.failures) == [0, 1]


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.float32(), pa.bool_(), pa.decimal128(5), pa.timestamp("ms"), pa.date32()], ids=str
)
def test_texts_of_numbers_and_times_are_none(kind: Any) -> None:
    for texts in (pa.array(["1", "2"]), pa.array(["2026-01-31", "true"]), pa.array([b"1", b"2"])):
        batch = batch_of(pa.record_batch({"x": texts}))
        with pytest.raises(RowsFailed, match=f'"x" is not {re.escape(str(kind))}: ') as error:
            record_batch_of(batch, pa.schema([("x", kind)]))
        assert list(error.value.failures) == [0, 1]


def test_a_rare_key_is_written_in_its_rows() -> None:
    batch = Batch.of([Data({"a": row, **({"b": "x"} if row == 3 else {})}) for row in range(20)])
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    written = record_batch_of(batch, schema).to_pylist()
    assert written[3] == {"a": 3, "b": "x", "c": None}
    assert written[4] == {"a": 4, "b": None, "c": None}
    records = pa.record_batch({"b": [None] * 19 + ["x"]})
    few = Batch.concat([batch, batch_of(records)])
    assert record_batch_of(few, schema).column("b").to_pylist()[-1] == "x"
