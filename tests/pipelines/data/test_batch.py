from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn
from pipelines.data.data import Data, RecordContext
from pipelines.data.stacking import list_as_array
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import (
    DataError,
    ReservedKeyError,
    RowsFailed,
    StepError,
    ValueNotFoundError,
    WireError,
    WrongTypeError,
)
from pipelines.values import ValueType, type_of

pytestmark = pytest.mark.usefixtures("rarity")

values = st.one_of(
    st.integers(-9, 9),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 3).map(lambda rows: np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)),
    st.integers(0, 3).map(lambda fill: np.full((2,), fill, np.float32)),
)
datas = st.dictionaries(st.sampled_from("abc"), values).map(Data)
lists_of_data = st.lists(datas, max_size=6)


@given(lists_of_data)
def test_a_batch_of_records_gives_back_equal_records(given_datas: list[Data]) -> None:
    batch = Batch.of(given_datas)
    assert len(batch) == len(given_datas)
    assert batch.to_list() == given_datas
    assert [batch.row(row) for row in range(len(batch))] == given_datas
    assert batch.rows.tolist() == list(range(len(batch)))


@given(lists_of_data, st.data())
def test_taking_rows_of_a_batch_is_taking_the_records(given_datas: list[Data], data: st.DataObject) -> None:
    batch = Batch.of(given_datas, first=100)
    rows = data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=8)) if given_datas else []
    taken = batch.take(np.array(rows, np.int64))
    assert taken.to_list() == [given_datas[row] for row in rows]
    assert taken.rows.tolist() == [100 + row for row in rows]


@given(lists_of_data, st.integers(0, 6), st.integers(0, 6))
def test_a_part_of_a_batch_is_that_part_of_the_records(given_datas: list[Data], a: int, b: int) -> None:
    batch = Batch.of(given_datas, first=100)
    start, stop = sorted((min(a, len(batch)), min(b, len(batch))))
    part = batch.part(start, stop)
    assert part.to_list() == given_datas[start:stop]
    assert part.rows.tolist() == list(range(100 + start, 100 + stop))


@given(st.lists(lists_of_data, max_size=3))
def test_joining_batches_is_joining_the_records(lists: list[list[Data]]) -> None:
    batches = [Batch.of(one, first=10 * index) for index, one in enumerate(lists)]
    joined = Batch.concat(batches)
    assert joined.to_list() == [data for one in lists for data in one]
    assert joined.rows.tolist() == [row for batch in batches for row in batch.rows.tolist()]


def kind(data: Data, keys: list[str]) -> list[Any]:
    found: list[Any] = []
    for key in keys:
        value = data.get(key)
        described: Any = None if value is None else type_of(value)
        if described is ValueType.INT64:
            described = ValueType.DOUBLE
        if described is ValueType.LIST:
            array = list_as_array(value)
            described = (described, None if array is None else array.shape)
        found.append((value.dtype, value.shape) if isinstance(value, np.ndarray) else described)
    return found


@given(lists_of_data, st.lists(st.sampled_from("abc"), unique=True, max_size=2))
def test_groups_are_the_records_of_equal_type_and_shape(given_datas: list[Data], keys: list[str]) -> None:
    batch = Batch.of(given_datas)
    seen: list[int] = []
    kinds: list[list[Any]] = []
    for positions, part in batch.groups(keys):
        assert part.to_list() == [given_datas[row] for row in positions.tolist()]
        assert part.rows.tolist() == positions.tolist() == sorted(positions.tolist())
        one = kind(given_datas[positions[0]], keys)
        assert all(kind(given_datas[row], keys) == one for row in positions.tolist())
        assert one not in kinds
        for key in keys:
            if isinstance(given_datas[positions[0]].get(key), np.ndarray):
                assert isinstance(part[key], DenseColumn)
        kinds.append(one)
        seen.extend(positions.tolist())
    assert sorted(seen) == list(range(len(batch)))


def test_rows_may_be_chosen_by_mask_slice_and_list() -> None:
    batch = Batch.of([Data({"n": n}) for n in range(4)])
    assert [data["n"] for data in batch.take(np.array([True, False, True, False])).to_list()] == [0, 2]
    assert [data["n"] for data in batch.take(slice(1, 3)).to_list()] == [1, 2]
    assert [data["n"] for data in batch.take([3, -4]).to_list()] == [3, 0]


def test_a_row_of_several_records_carries_the_numbers_of_all() -> None:
    batch = Batch({"n": Column.of([1, 2, 3])}, 3, rows=np.array([7, 8, 9, 9]), splits=np.array([0, 2, 3, 4]))
    assert batch.parents(0).tolist() == [7, 8]
    taken = batch.take([2, 0])
    assert taken.rows.tolist() == [9, 7, 8]
    assert [taken.parents(row).tolist() for row in range(2)] == [[9], [7, 8]]
    joined = Batch.concat([batch, Batch.of([Data({"n": 4})], first=20)])
    assert [joined.parents(row).tolist() for row in range(4)] == [[7, 8], [9], [9], [20]]


def test_a_list_or_array_in_place_of_a_column_is_refused_with_a_hint() -> None:
    batch = Batch.of([Data({"a": 1})])
    with pytest.raises(WrongTypeError, match=r'column "b" is a ndarray, not a Column: give DenseColumn\(...\)'):
        batch.with_columns({"b": np.zeros(1)})  # type: ignore[dict-item]
    with pytest.raises(WrongTypeError, match=r'column "b" is a list, not a Column: give Column.of\(\[...\]\)'):
        batch.select({"b": [1]})  # type: ignore[dict-item]


def test_columns_are_added_replaced_in_place_and_removed() -> None:
    batch = Batch.of([Data({"a": 1, "b": 2})])
    changed = batch.with_columns({"a": Column.of(["x"]), "c": Column.of([3])})
    assert changed.to_list() == [Data({"a": "x", "b": 2, "c": 3})]
    assert changed.keys() == ["a", "b", "c"]
    assert changed.without(["b", "never there"]).keys() == ["a", "c"]
    assert batch.keys() == ["a", "b"]
    assert changed.same_rows(batch)


def test_a_column_of_another_length_is_refused() -> None:
    with pytest.raises(DataError, match='column "a" has 1 rows, the batch has 2'):
        Batch({"a": Column.of([1])}, 2)


def test_row_numbers_of_another_length_are_refused() -> None:
    with pytest.raises(DataError, match="row numbers"):
        Batch({"a": Column.of([1, 2])}, 2, rows=np.array([1]))


def test_an_unknown_key_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ValueNotFoundError, match='did you mean "image"'):
        Batch.of([Data({"image": 1})])["imag"]


def test_records_keep_their_context_and_metadata_through_taking_and_joining() -> None:
    def record(n: int) -> Data:
        return Data({"n": n}, metadata={"m": n}, record=RecordContext("kafka", "t", offset=n))

    left = Batch.of([record(0), record(1)], first=5)
    right = Batch.of([record(2), Data({"n": 3})], first=7)
    joined = Batch.concat([left, right]).take([3, 2, 0])
    offsets = [None if data.record is None else data.record.offset for data in joined.to_list()]
    assert offsets == [None, 2, 0]
    assert [None if data.metadata is None else data.metadata["m"] for data in joined.to_list()] == [None, 2, 0]


def test_a_row_can_be_changed_without_changing_the_batch() -> None:
    batch = Batch.of([Data({"n": 1}, metadata={"m": 1})])
    row = batch.row(0)
    row["n"] = 2
    assert row.metadata is not None
    row.metadata["m"] = 2
    again = batch.row(0)
    assert again["n"] == 1
    assert again.metadata == Data({"m": 1})


def test_all_rows_that_cannot_be_decoded_are_named_at_once() -> None:
    def failing(*rows: int) -> WireColumn:
        def decode(entries: Sequence[bytes | None]) -> Column:
            if failures := {row: DataError("bad") for row, entry in enumerate(entries) if entry == b"bad"}:
                raise RowsFailed(dict(failures))
            return Column.of([7 for _ in entries])

        return WireColumn([b"bad" if row in rows else b"good" for row in range(3)], decode)

    batch = Batch({"a": failing(0), "b": Column.of([1, 2, 3]), "c": failing(0, 2)}, 3)
    failed: dict[int, Exception] = {}
    batch.row_values(failed)
    assert sorted(failed) == [0, 2]


def test_a_row_is_there_although_one_of_its_values_cannot_be_decoded() -> None:
    def decode(entries: Sequence[bytes | None]) -> Column:
        if failures := {row: DataError("bad") for row, entry in enumerate(entries) if entry == b"bad"}:
            raise RowsFailed(dict(failures))
        return Column.of([7 for _ in entries])

    batch = Batch({"a": WireColumn([b"good", b"bad", b"good"], decode), "b": Column.of([1, 2, 3])}, 3)
    first, second, third = batch.to_list()
    assert (first, third, second["b"]) == (Data({"a": 7, "b": 1}), Data({"a": 7, "b": 3}), 2)
    with pytest.raises(WireError, match=r'key "a".*bad'):
        second["a"]
    for made in (second.copy(), second.lent(), Batch.of([third, second]).to_list()[1], Data({"in": second})["in"]):
        assert list(made) == ["a", "b"]
        with pytest.raises(WireError, match="bad"):
            made["a"]
    second["a"] = 5
    assert second == Data({"a": 5, "b": 2})


def test_the_display_says_form_type_and_shape() -> None:
    batch = Batch.of([Data({"x": np.zeros(3, "f4"), "s": "text"})])
    assert repr(batch) == "Batch(1 rows, {x: dense float32[3], s: object})"


@pytest.mark.parametrize("key", ["@Metadata", "@metadata", "@type", "@AsyncTrigger"])
def test_a_reserved_key_is_refused_where_its_column_is_put(key: str) -> None:
    batch = Batch.of([Data({"n": 1})])
    column = Column.of([2])
    ways: list[Callable[[], Batch]] = [
        lambda: Batch({key: column}, 1),
        lambda: batch.with_columns({key: column}),
        lambda: batch.select({key: column}),
    ]
    for make in ways:
        with pytest.raises(ReservedKeyError, match=f'Cannot use key "{key}"'):
            make()


@pytest.mark.parametrize("key", [3, None, b"n", ("a",)])
def test_a_key_that_is_no_text_is_refused_where_its_column_is_put(key: Any) -> None:
    batch = Batch.of([Data({"n": 1})])
    ways: list[Callable[[], Batch]] = [
        lambda: Batch({key: Column.of([2])}, 1),
        lambda: batch.with_columns({key: Column.of([2])}),
    ]
    for make in ways:
        with pytest.raises(WrongTypeError, match="a key of a Data is a string, not"):
            make()


def test_a_function_that_makes_a_reserved_key_fails_its_records_and_publishes_nothing() -> None:
    @pipelines.batched
    def function(batch: Batch) -> Batch:
        return batch.with_columns({"@Metadata": batch.column("n")})

    with pipelines.Sequence([function]).open() as executor:
        (found,) = executor.run_many([Data({"n": 1})])
    assert isinstance(found, StepError)
    assert 'ReservedKeyError: Cannot use key "@Metadata"' in str(found)
