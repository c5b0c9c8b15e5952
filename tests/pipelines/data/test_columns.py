import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.columns import MISSING, Column, DenseColumn, ObjectColumn, RaggedColumn
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DataError, RowsFailed, WrongTypeError
from pipelines.values import ValueType


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(a, b))
    return type(a) is type(b) and bool(a == b)


def same_values(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def unpickled(entries: Sequence[bytes | None]) -> Column:
    values: list[Any] = []
    failures: dict[int, Exception] = {}
    for row, entry in enumerate(entries):
        if entry == b"bad":
            failures[row] = DataError("undecodable")
            values.append(MISSING)
        else:
            values.append(MISSING if entry is None else pickle.loads(entry))
    if failures:
        raise RowsFailed(failures)
    return Column.of(values)


def wire(values: list[Any]) -> WireColumn:
    return WireColumn([None if value is MISSING else pickle.dumps(value) for value in values], unpickled)


def wire_spans(values: list[Any]) -> WireColumn:
    """The same, out of one buffer."""
    entries = Spans.of([None if value is MISSING else pickle.dumps(value) for value in values])
    return WireColumn(entries, unpickled, gaps(values))


def spans(values: list[Any]) -> Column:
    """Strings or bytes out of one buffer, the last first; other values as usual."""
    kinds = {type(value) for value in values} - {type(MISSING)}
    if kinds not in ({str}, {bytes}):
        return Column.of(values)
    raw = [None if value is MISSING else value.encode() if kinds == {str} else value for value in values]
    turned = Spans.of(raw[::-1])[::-1]
    return SpansColumn(turned, ValueType.STRING if kinds == {str} else ValueType.BYTES, gaps(values))


def gaps(values: list[Any]) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    there = np.array([value is not MISSING for value in values], np.bool_)
    return None if there.all() else there


def sparse(make: Callable[[list[Any]], Column]) -> Callable[[list[Any]], Column]:
    """Only the rows that have a value, their column as `make` makes it."""

    def column(values: list[Any]) -> Column:
        rows = [row for row, value in enumerate(values) if value is not MISSING]
        return SparseColumn(len(values), rows, make([values[row] for row in rows]))

    return column


numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans())
arrays = st.one_of(
    st.integers(0, 3).map(lambda rows: np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)),
    st.integers(0, 9).map(lambda fill: np.full((2, 2), fill, np.float32)),
    st.integers(0, 9).map(lambda fill: np.full((3,), fill, np.int64)),
    st.just(np.array(4.5)),
)
gap = st.just(MISSING)
value_lists = st.one_of(
    *(
        st.lists(one, max_size=6)
        for base in (
            st.integers(0, 9),
            st.floats(allow_nan=False),
            st.booleans(),
            st.text(max_size=2),
            st.binary(max_size=2),
            arrays,
        )
        for one in (base, st.one_of(base, gap))
    ),
    st.lists(st.one_of(numbers, st.text(max_size=2), arrays, st.lists(st.integers(0, 3)), gap), max_size=6),
)
forms: st.SearchStrategy[Callable[[list[Any]], Column]] = st.sampled_from(
    [Column.of, ObjectColumn, wire, wire_spans, spans, sparse(ObjectColumn), sparse(wire), sparse(wire_spans)]
)


@st.composite
def columns_with_values(draw: st.DrawFn) -> tuple[Column, list[Any]]:
    values = draw(value_lists)
    return draw(forms)(values), values


@given(columns_with_values())
def test_a_column_gives_back_its_values_whatever_its_form(made: tuple[Column, list[Any]]) -> None:
    column, values = made
    assert len(column) == len(values)
    assert same_values(column.values(), values)
    assert same_values(list(column), values)
    assert same_values([column[row] for row in range(len(values))], values)
    assert same_values(column.decoded().values(), values)


@given(columns_with_values())
def test_presence_says_which_rows_have_a_value(made: tuple[Column, list[Any]]) -> None:
    column, values = made
    there = [value is not MISSING for value in values]
    assert (column.mask is None) == all(there)
    if column.mask is not None:
        assert column.mask.tolist() == there


@given(columns_with_values(), st.data())
def test_taking_rows_is_taking_their_values(made: tuple[Column, list[Any]], data: st.DataObject) -> None:
    column, values = made
    rows = data.draw(st.lists(st.integers(-len(values), len(values) - 1), max_size=8)) if values else []
    if data.draw(st.booleans()):
        column.decoded()
    taken = column.take(np.array(rows, np.int64))
    wanted = [values[row] for row in rows]
    assert same_values(taken.values(), wanted)
    assert (taken.mask is None) == all(value is not MISSING for value in wanted)


@given(columns_with_values(), st.integers(0, 6), st.integers(0, 6))
def test_a_part_of_a_column_is_that_part_of_its_values(made: tuple[Column, list[Any]], a: int, b: int) -> None:
    column, values = made
    start, stop = sorted((min(a, len(values)), min(b, len(values))))
    part = column.part(start, stop)
    assert len(part) == stop - start
    assert same_values(part.values(), values[start:stop])
    present = [True] * len(part) if part.mask is None else part.mask.tolist()
    assert present == [value is not MISSING for value in values[start:stop]]


@given(st.lists(columns_with_values(), max_size=4))
def test_joining_columns_is_joining_their_values(made: list[tuple[Column, list[Any]]]) -> None:
    joined = Column.concat([column for column, _ in made])
    assert same_values(joined.values(), [value for _, values in made for value in values])


@given(value_lists)
def test_rows_have_equal_inner_form_exactly_if_they_make_one_array(values: list[Any]) -> None:
    column = Column.of(values)
    for row, value in enumerate(values):
        inner = column.inner(row)
        if value is MISSING:
            assert inner is None
            continue
        stacked = [other for at, other in enumerate(values) if column.inner(at) == inner]
        if isinstance(value, (np.ndarray, bool, int, float)):
            array = Column.of(stacked).array
            assert array.tolist() == [one.tolist() if isinstance(one, np.ndarray) else one for one in stacked]


@pytest.mark.parametrize(
    ("values", "form", "kind"),
    [
        ([1, 2], DenseColumn, ValueType.INT64),
        ([1.5, 2.0], DenseColumn, ValueType.DOUBLE),
        ([True, False], DenseColumn, ValueType.BOOLEAN),
        ([np.zeros(2), np.ones(2)], DenseColumn, ValueType.NDARRAY),
        ([np.zeros((1, 2)), np.ones((3, 2))], RaggedColumn, ValueType.NDARRAY),
        ([np.zeros(2), np.ones((3, 2))], ObjectColumn, ValueType.NDARRAY),
        ([np.zeros(2), np.zeros(2, "f4")], ObjectColumn, ValueType.NDARRAY),
        (["a", "b"], ObjectColumn, ValueType.STRING),
        ([1, 2.0], ObjectColumn, None),
        ([1, MISSING], DenseColumn, ValueType.INT64),
        ([MISSING, np.zeros(2)], DenseColumn, ValueType.NDARRAY),
        ([MISSING, "a"], ObjectColumn, ValueType.STRING),
        ([MISSING, MISSING], ObjectColumn, None),
    ],
)
def test_the_best_form_is_chosen_for_values(values: list[Any], form: type[Column], kind: ValueType | None) -> None:
    column = Column.of(values)
    assert type(column) is form
    assert column.type is kind


def test_values_that_no_data_can_hold_are_refused() -> None:
    with pytest.raises(WrongTypeError):
        Column.of([object()])


def test_arrays_of_a_dense_column_cannot_be_written_through_it() -> None:
    array = np.zeros((2, 3))
    column = DenseColumn(array)
    with pytest.raises(ValueError, match="read-only"):
        column[0][0] = 1.0
    array[0, 0] = 1.0
    assert array[0, 0] == 1.0


def test_ragged_samples_cannot_be_written_through_the_column() -> None:
    column = RaggedColumn(np.zeros((3, 2)), np.array([0, 1, 3]))
    with pytest.raises(ValueError, match="read-only"):
        column[1][0] = 1.0


def test_joining_ragged_columns_keeps_them_ragged() -> None:
    a = Column.of([np.zeros((1, 2)), np.ones((3, 2))])
    b = Column.of([np.full((2, 2), 5.0), np.ones((0, 2))])
    assert isinstance(Column.concat([a, b]), RaggedColumn)


def test_undecoded_columns_stay_undecoded_when_joined_and_taken() -> None:
    def never(entries: Sequence[bytes | None]) -> Column:
        raise AssertionError("nobody asked")

    column = WireColumn([b"a", None], never)
    joined = Column.concat([column, Column.absent(2), column])
    assert isinstance(joined, WireColumn)
    assert joined.entries == [b"a", None, None, None, b"a", None]
    taken = joined.take(np.array([4, 0]))
    assert isinstance(taken, WireColumn)
    assert taken.entries == [b"a", b"a"]


def test_a_decoded_column_is_decoded_once() -> None:
    calls: list[int] = []

    def decode(entries: Sequence[bytes | None]) -> Column:
        calls.append(len(entries))
        return unpickled(entries)

    column = WireColumn([pickle.dumps(1), pickle.dumps(2)], decode)
    assert column.decoded() is column.decoded()
    assert column[1] == 2
    assert column.take(np.array([1])).values() == [2]
    assert calls == [2]


def test_rows_that_cannot_be_decoded_are_named_by_their_place_in_the_joined_column() -> None:
    bad = WireColumn([pickle.dumps(1), b"bad"], unpickled)
    joined = Column.concat([Column.of([1, 2, 3]), bad, Column.of([4]), bad])
    assert (joined[3], len(joined)) == (1, 8)
    with pytest.raises(RowsFailed) as caught:
        joined.values()
    assert sorted(caught.value.failures) == [4, 7]


def test_missing_is_one_false_value() -> None:
    assert type(MISSING)() is MISSING
    assert not MISSING
    assert repr(MISSING) == "MISSING"
    assert pickle.loads(pickle.dumps(MISSING)) is MISSING


def test_strings_of_one_buffer_stay_there_when_they_are_taken_and_joined() -> None:
    column = spans(["a", "bc", MISSING, "é"])
    assert isinstance(column, SpansColumn)
    taken = column.take(np.array([3, 1]))
    joined = Column.concat([taken, Column.absent(1), column])
    assert isinstance(joined, SpansColumn)
    assert joined.values() == ["é", "bc", MISSING, "a", "bc", MISSING, "é"]
    assert joined.inner(0) == (ValueType.STRING,)
    assert joined.inner(2) is None
    assert isinstance(Column.concat([column, Column.of(["x"])]), ObjectColumn)


def test_entries_of_one_buffer_stay_there_when_they_are_taken_and_joined() -> None:
    column = wire_spans([1, MISSING, 3])
    joined = Column.concat([column.take(np.array([2, 1])), Column.absent(1), wire([4])])
    assert isinstance(joined, WireColumn)
    assert isinstance(joined.entries, Spans)
    assert joined.values() == [3, MISSING, MISSING, 4]


@pytest.mark.parametrize("left_out", [(), (5,), (0, 7, 99), tuple(range(0, 100, 2))])
def test_rows_of_unequal_shape_that_are_left_behind_leave_the_others_as_they_were(left_out: tuple[int, ...]) -> None:
    arrays = [np.full((3 if row in left_out else 4, 2), row, np.float32) for row in range(100)]
    column = Column.of(arrays)
    rest = np.array([row for row in range(100) if row not in left_out])
    taken = column.take(rest)
    assert isinstance(taken, DenseColumn)
    assert all(np.array_equal(taken[at], arrays[row]) for at, row in enumerate(rest.tolist()))
    backwards = column.take(rest[::-1])
    assert all(np.array_equal(backwards[at], arrays[row]) for at, row in enumerate(rest[::-1].tolist()))


def test_rows_of_unequal_shape_stay_unequal_when_most_are_taken() -> None:
    arrays = [np.full(1 + row % 3, row) for row in range(100)]
    rows = np.array([row for row in range(100) if row not in (10, 50)])
    taken = Column.of(arrays).take(rows)
    assert isinstance(taken, RaggedColumn)
    assert all(np.array_equal(taken[at], arrays[row]) for at, row in enumerate(rows.tolist()))
