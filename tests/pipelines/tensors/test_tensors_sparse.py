"""Sparse and ragged tensors. Names begin with the row that they show."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import tensors
from pipelines.errors import DataError, WrongTypeError
from pipelines.tensors import BoundsError, RaggedTensor, RankError, ReadOnlyError, SparseTensor, at, even
from pipelines.tensors.sparse import SparseWriter


def example(data: SparseWriter[Any]) -> None:
    data.put(10.0, 0, 0)
    data.put(20.0, 0, 3)
    data.put(30.0, 1, 1)


def rows(data: Any) -> None:
    data.put(10.0, 0, 0).put(20.0, 0, 1).put(30.0, 0, 2).put(40.0, 1, 0).put(50.0, 2, 0).put(60.0, 2, 1)


def test_a_sparse_tensor_reads_as_a_dense_one() -> None:
    """T-13."""
    tensor = tensors.sparse([2, 4], np.float32, 3, example)
    assert [tensor.get(0, 0), tensor.get(0, 1), tensor.get(1, 1)] == [10.0, 0.0, 30.0]
    assert list(tensor.stream()) == [10, 0, 0, 20, 0, 30, 0, 0]
    assert tensor.to_dense().copy().tolist() == [[10, 0, 0, 20], [0, 30, 0, 0]]  # type: ignore[attr-defined]
    assert (tensor.rank, tensor.shape, tensor.total_size) == (2, (2, 4), 8)
    assert type(tensor.get(0, 1)) is np.float32
    with pytest.raises(BoundsError):
        tensor.get(2, 0)
    with pytest.raises(RankError):
        tensor.get(1)


def test_it_is_indices_values_and_shape() -> None:
    """T-13."""
    tensor = tensors.sparse([2, 4], np.float32, 3, lambda data: data.put(3, 1, 1).put(2, 0, 3).put(1, 0, 0))
    assert tensor.indices.tolist() == [[0, 0], [0, 3], [1, 1]]
    assert list(tensor.values.stream()) == [1, 2, 3]
    assert not tensor.indices.flags.writeable


def test_no_more_and_no_fewer_values_than_declared_are_put() -> None:
    """T-13."""

    def and_one_more(data: SparseWriter[Any]) -> None:
        example(data)
        data.put(40.0, 1, 3)

    def and_one_again(data: SparseWriter[Any]) -> None:
        example(data)
        data.put(11.0, 0, 0)

    with pytest.raises(BoundsError, match=r"3 values were declared, and \[1, 3\] is one more"):
        tensors.sparse([2, 4], np.float32, 3, and_one_more)
    with pytest.raises(DataError, match="3 values were declared and 0 were put"):
        tensors.sparse([2, 4], np.float32, 3, lambda data: None)
    again = tensors.sparse([2, 4], np.float32, 3, and_one_again)
    assert again.get(0, 0) == 11.0


def test_a_place_out_of_bounds_is_refused() -> None:
    """T-13."""

    def put(place: tuple[int, int], data: SparseWriter[Any]) -> None:
        data.put(40.0, *place)

    for place in [(2, 1), (0, 4), (-1, 0)]:
        with pytest.raises(BoundsError):
            tensors.sparse([2, 4], np.float32, 3, partial(put, place))
    with pytest.raises(RankError):
        tensors.sparse([2, 4], np.float32, 3, lambda data: data.put(40.0, 1))
    with pytest.raises(RankError):
        tensors.sparse([2, 4], np.float32, 3, lambda data: data.put([1.0, 2.0], 0, 0))
    with pytest.raises(WrongTypeError):
        tensors.sparse([2, 4], np.int32, 1, lambda data: data.put(1.5, 0, 0))


def test_a_complete_sparse_tensor_is_written_no_more() -> None:
    """T-13."""
    kept: list[SparseWriter[Any]] = []

    def keep(data: SparseWriter[Any]) -> None:
        example(data)
        kept.append(data)

    tensors.sparse([2, 4], np.float32, 3, keep)
    with pytest.raises(ReadOnlyError):
        kept[0].put(1.0, 0, 0)


def test_parts_by_integers_share_the_values() -> None:
    """T-13."""
    tensor = tensors.sparse(
        [2, 3, 2], np.int64, 4, lambda d: d.put(1, 0, 0, 1).put(2, 0, 2, 0).put(3, 1, 1, 1).put(4, 1, 2, 1)
    )
    assert [list(part.stream()) for part in tensor.elements()] == [[0, 1, 0, 0, 2, 0], [0, 0, 0, 3, 0, 4]]
    part = tensor.slice(1, 2)
    assert list(part.stream()) == [0, 4]
    assert part.indices.tolist() == [[1]]
    assert tensor.slice(1).slice(1).get(1) == 3
    assert np.shares_memory(part.indices, tensor.indices)
    assert np.shares_memory(part.values.array, tensor.values.array)  # type: ignore[attr-defined]
    assert tensor.slice(0, 2, 0).get() == 2
    assert list(tensor.stream(0, 2)) == [2, 0]
    assert tensor.slice(1).to_dense().copy().tolist() == [[0, 0], [0, 3], [0, 4]]  # type: ignore[attr-defined]
    with pytest.raises(WrongTypeError, match=r"to_dense\(\) makes one that takes other indices"):
        tensor.slice(even())


def test_strings_can_be_sparse() -> None:
    """T-13."""
    tensor = tensors.sparse_string([2, 2], 2, lambda data: data.put("b", 1, 1).put("a", 0, 1))
    assert list(tensor.stream()) == ["", "a", "", "b"]
    assert tensor.to_dense().to_list() == [["", "a"], ["", "b"]]  # type: ignore[attr-defined]
    assert tensor.get(0, 0) == ""
    assert tensors.sparse_string([3], 1, lambda data: data.put("ab", 1), length=2).get(1) == "ab"


def test_parts_that_are_there_already_are_taken_without_a_copy() -> None:
    """T-13."""
    indices, values = np.array([[0, 1], [1, 0]]), np.array([1.5, 2.5])
    tensor = SparseTensor.of(indices, tensors.view(values), [2, 2])
    assert np.shares_memory(tensor.indices, indices)
    assert np.shares_memory(tensor.values.array, values)  # type: ignore[attr-defined]
    turned = SparseTensor.of(indices[::-1], tensors.view(values), [2, 2])
    assert list(turned.stream()) == [0, 2.5, 1.5, 0]


@pytest.mark.parametrize(
    ("indices", "shape"),
    [
        ([[0, 1], [0, 1]], [2, 2]),
        ([[1, 0], [0, 1], [1, 0]], [2, 2]),
        ([[0, 2], [1, 0]], [2, 2]),
        ([[-1, 0], [1, 0]], [2, 2]),
        ([[0], [1]], [2, 2]),
        ([[0, 1]], [2, 2]),
        ([[0, 1], [1, 0]], [2**40, 2**40]),
        ([[0, 1], [1, 0]], [-1, 2]),
    ],
)
def test_parts_that_make_no_tensor_are_refused(indices: list[list[int]], shape: list[int]) -> None:
    """T-13."""
    values = tensors.view(np.zeros(len(indices) if len(indices) == 3 else 2))
    with pytest.raises(DataError):
        SparseTensor.of(np.array(indices), values, shape)


def test_a_few_bytes_do_not_become_gigabytes() -> None:
    """T-13."""
    tensor = tensors.sparse([2**30, 2**30], np.float32, 1, lambda data: data.put(1.0, 5, 2**30 - 1))
    assert tensor.get(5, 2**30 - 1) == 1.0
    assert tensor.slice(5).get(0) == 0.0
    with pytest.raises(DataError, match="raise `most`"):
        tensor.to_dense()


def test_rows_have_lengths_of_their_own() -> None:
    """T-14."""
    tensor = tensors.ragged([3, -1], np.float32, rows)
    assert [tensor.get(0, 1), tensor.get(1, 0)] == [20.0, 40.0]
    assert [list(row.stream()) for row in tensor.elements()] == [[10, 20, 30], [40], [50, 60]]
    assert list(tensor.stream()) == [10, 20, 30, 40, 50, 60]
    assert (tensor.rank, tensor.shape, tensor.size(0), tensor.total_size) == (2, (3, -1), 3, 6)
    with pytest.raises(BoundsError):
        tensor.get(1, 1)
    with pytest.raises(BoundsError):
        tensor.get(3, 0)
    with pytest.raises(RankError, match="is ragged; slice to one row"):
        tensor.size(1)
    assert tensor.slice(2).size(0) == 2


def test_ragged_axes_grow_and_others_do_not() -> None:
    """T-14."""
    with pytest.raises(BoundsError):
        tensors.ragged([2, -1], np.int32, lambda data: data.put(1, 2, 0))
    with pytest.raises(BoundsError):
        tensors.ragged([2, -1, 3], np.int32, lambda data: data.put(1, 0, 0, 3))
    with pytest.raises(BoundsError, match="is negative"):
        tensors.ragged([2, -1], np.int32, lambda data: data.put(1, 0, -1))
    grown = tensors.ragged([2, -1, 3], np.int32, lambda data: data.put(7, 1, 1, 2).put(5, 1, 0, 0))
    assert grown.to_list() == [[], [[5, 0, 0], [0, 0, 7]]]


def test_a_gap_in_a_row_is_an_error() -> None:
    """T-14."""
    with pytest.raises(DataError, match=r"the row \[0\] has no element 1, but one at 5"):
        tensors.ragged([2, -1], np.int32, lambda data: data.put(1, 0, 0).put(1, 0, 5))
    filled = tensors.ragged([1, -1], np.int32, lambda data: data.put(3, 0, 2).put(1, 0, 0).put(2, 0, 1))
    assert filled.to_list() == [[1, 2, 3]]
    with pytest.raises(DataError):
        tensors.ragged([1, -1], np.int32, lambda data: data.put(1, 0, 10**15))


def test_the_first_axis_is_not_ragged() -> None:
    """T-14."""
    with pytest.raises(DataError, match="cannot be ragged"):
        tensors.ragged([-1, 2], np.int32, lambda data: None)
    with pytest.raises(DataError, match=r"has no ragged axis \(-1\); dense\(\)"):
        tensors.ragged([2, 2], np.int32, lambda data: None)
    with pytest.raises(DataError):
        tensors.ragged([2, -2, -1], np.int32, lambda data: None)


def test_rows_are_put_whole() -> None:
    """T-14."""
    tensor = tensors.ragged([2, -1, -1], np.int32, lambda data: data.put([[1, 2], [], [3]], 0).put([4], 1, 0))
    assert tensor.to_list() == [[[1, 2], [], [3]], [[4]]]
    assert [splits.tolist() for splits in tensor.splits] == [[0, 3, 4], [0, 2, 2, 3, 4]]
    assert tensors.ragged([2, -1], np.int32, lambda data: data.put([[], [1]])).to_list() == [[], [1]]
    for wrong in (lambda d: d.put(1, 0), lambda d: d.put([1], 0), lambda d: d.put(1, 0, 0, 0, 0)):
        with pytest.raises(RankError):
            tensors.ragged([2, -1, -1], np.int32, wrong)
    with pytest.raises(BoundsError):
        tensors.ragged([2, -1], np.int32, lambda data: data.put([[1], [2], [3]]))


def test_parts_are_views() -> None:
    """T-14."""
    tensor = tensors.ragged([2, -1, 2], np.float64, lambda data: data.put([[1, 2], [3, 4]], 0).put([[5, 6]], 1))
    row = tensor.slice(0)
    assert isinstance(row, tensors.TensorView)
    assert row.array.tolist() == [[1, 2], [3, 4]]
    assert np.shares_memory(row.array, tensor.values.array)  # type: ignore[attr-defined]
    assert tensor.slice(0, 1, at(0)).get() == 3
    assert list(tensor.stream(1)) == [5, 6]
    with pytest.raises(WrongTypeError, match="sliced by integers"):
        tensor.slice(even())

    deep = tensors.ragged([2, -1, -1], np.int64, lambda data: data.put([[1], [2, 3]], 0).put([[4, 5, 6]], 1))
    part = deep.slice(1)
    assert isinstance(part, RaggedTensor)
    assert (part.shape, part.to_list(), [one.tolist() for one in part.splits]) == ((1, -1), [[4, 5, 6]], [[0, 3]])
    assert list(part.values.stream()) == [4, 5, 6]
    assert deep.slice(0).total_size == 3


def test_strings_can_be_ragged() -> None:
    """T-14."""
    tensor = tensors.ragged_string([3, -1], lambda data: data.put(["a", "bc"], 0).put("d", 2, 0))
    assert tensor.to_list() == [["a", "bc"], [], ["d"]]
    assert tensor.slice(0).get(1) == "bc"
    with pytest.raises(RankError):
        tensors.ragged_string([1, -1], lambda data: data.put("word", 0))


def test_values_and_splits_that_are_there_are_taken_without_a_copy() -> None:
    """T-14."""
    values, splits = np.arange(6.0), np.array([0, 3, 3, 6])
    tensor = RaggedTensor.of(tensors.view(values), [3, -1], [splits])
    assert tensor.to_list() == [[0, 1, 2], [], [3, 4, 5]]
    assert np.shares_memory(tensor.splits[0], splits)
    assert np.shares_memory(tensor.values.array, values)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("shape", "splits"),
    [
        ([3, -1], [[0, 3, 2, 6]]),
        ([3, -1], [[1, 3, 3, 6]]),
        ([3, -1], [[0, 3, 3, 5]]),
        ([3, -1], [[0, 3, 3, 7]]),
        ([3, -1], [[0, 3, 6]]),
        ([3, -1], []),
        ([2, -1], [[0, 3, 3, 6]]),
        ([2, -1, -1], [[0, 1, 3]]),
        ([3, -1, 2], [[0, 3, 3, 6]]),
        ([3, -1, 2**40, 2**40], [[0, 0, 0, 0]]),
    ],
)
def test_splits_that_do_not_fit_are_refused(shape: list[int], splits: list[list[int]]) -> None:
    """T-14."""
    with pytest.raises(DataError):
        RaggedTensor.of(tensors.view(np.arange(6.0)), shape, [np.array(one) for one in splits])


@given(st.lists(st.lists(st.lists(st.integers(-9, 9), max_size=3), max_size=3), min_size=1, max_size=3))
def test_any_nested_lists_come_back(nested: list[list[list[int]]]) -> None:
    """T-14."""
    tensor = tensors.ragged([len(nested), -1, -1], np.int64, lambda data: data.put(nested))
    assert tensor.to_list() == nested
    assert [part.to_list() for part in tensor.elements()] == nested  # type: ignore[attr-defined]
    flat = [one for row in nested for inner in row for one in inner]
    assert list(tensor.stream()) == flat
