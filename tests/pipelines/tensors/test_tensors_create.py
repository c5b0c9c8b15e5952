"""Iteration, and tensors written where they will stay. Names begin with the row that they show."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
import weakref
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from pipelines import Batch, Data, tensors
from pipelines.errors import DataError, WrongTypeError
from pipelines.tensors import BoundsError, RankError, ReadOnlyError, Slots, at, excl, incl, index


def test_elements_go_over_the_first_axis_and_scalars_over_a_row() -> None:
    """T-09."""
    view = tensors.view(np.arange(6).reshape(2, 3))
    assert [row.array.tolist() for row in view.elements()] == [[0, 1, 2], [3, 4, 5]]
    assert [list(row.scalars()) for row in view.elements()] == [[0, 1, 2], [3, 4, 5]]

    rows = view.elements()
    assert rows.has_more
    assert rows.get().shape == (3,)
    assert rows.scalars().get() == 3
    assert not rows.has_more
    with pytest.raises(BoundsError, match="and no more"):
        rows.get()


def test_a_scalar_has_no_elements_and_only_rank_1_has_scalars() -> None:
    """T-09."""
    scalar = tensors.view(np.array(1.0))
    with pytest.raises(RankError, match=r"elements\(\) goes over the first axis"):
        scalar.elements()
    for wrong in (scalar, tensors.view(np.zeros((2, 2)))):
        with pytest.raises(RankError, match=r"scalars\(\) goes over a tensor of rank 1"):
            wrong.scalars()


def test_nested_iteration_writes_in_row_major_order() -> None:
    """T-09."""
    tensor = tensors.writable(np.zeros((5, 4, 5), "i4"))
    numbers = itertools.count()
    for matrix in tensor.elements():
        for row in matrix.elements():
            row.scalars().on_each(lambda: next(numbers))
    assert (tensor.get(0, 1, 0), tensor.get(1, 0, 0), tensor.get(4, 3, 4)) == (5, 20, 99)
    found: list[int] = []
    for matrix in tensor.elements():
        for row in matrix.elements():
            row.scalars().for_each(found.append)
    assert found == list(range(100))


def test_a_cursor_reads_and_writes_and_knows_its_end() -> None:
    """T-09."""
    cursor = tensors.writable(np.array([1.0, 2.0, 3.0])).scalars()
    assert cursor.get() == 1.0
    cursor.put(20.0)
    assert cursor.has_more
    assert list(cursor) == [3.0]
    assert not cursor.has_more
    for use in (cursor.get, lambda: cursor.put(1.0)):
        with pytest.raises(BoundsError, match="at the end of its 3 elements"):
            use()
    with pytest.raises(StopIteration):
        next(cursor)


def test_iteration_can_stop_and_go_on() -> None:
    """T-09."""
    cursor = tensors.view(np.arange(200_000)).cursor()
    assert list(itertools.islice(cursor, 3)) == [0, 1, 2]
    assert cursor.get() == 3
    assert sum(1 for _ in cursor) == 199_996


def test_a_supplier_that_raises_leaves_what_it_gave_before() -> None:
    """T-09."""
    tensor = tensors.writable(np.zeros(4))
    given = iter([1.0, 2.0])
    with pytest.raises(StopIteration):
        tensor.scalars().on_each(lambda: next(given))
    assert tensor.array.tolist() == [1.0, 2.0, 0.0, 0.0]


def test_rows_are_put_one_after_the_other_as_in_the_proposal() -> None:
    """T-09."""

    def init(data: tensors.WritableView[np.float32]) -> None:
        rows = data.elements()
        rows.put([0.0, 5.0, 10.0])
        second = rows.scalars()
        second.put(15.0)
        second.put(20.0)
        second.put(25.0)

    matrix = tensors.dense([2, 3], np.float32, init)
    assert matrix.get(0, 1) == 5.0
    assert list(matrix.stream()) == [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]


def test_picked_elements_are_iterated_too() -> None:
    """T-09."""
    tensor = tensors.writable(np.arange(12.0).reshape(3, 4))
    picked = tensor.slice(incl(2, 0), excl(1, 2))
    assert [list(row.scalars()) for row in picked.elements()] == [[8, 11], [0, 3]]
    picked.cursor().put(-1).put(-2).put(-3).put(-4)
    assert tensor.array[[2, 2, 0, 0], [0, 3, 0, 3]].tolist() == [-1, -2, -3, -4]


def test_puts_are_chained_until_the_row_is_full() -> None:
    """T-10."""
    tensor = tensors.writable(np.zeros((2, 3), "f4"))
    row = tensor.slice(0).scalars().put(10.0).put(20.0).put(30.0)
    assert tensor.array.tolist() == [[10, 20, 30], [0, 0, 0]]
    with pytest.raises(BoundsError):
        row.put(40.0)
    tensor.put(1.0, 1, 0).put([2.0, 3.0], 1, 1)
    assert tensor.array[1].tolist() == [1, 2, 3]


def test_values_that_lie_in_a_row_begin_where_the_indices_say() -> None:
    """T-11."""
    vector = tensors.dense([4], np.int32, lambda data: data.put([1, 2, 3], 0).put(4, 3))
    assert list(vector.stream()) == [1, 2, 3, 4]

    tensor = tensors.writable(np.zeros((2, 4), "i4"))
    for place, values in [((0, 2), [1, 2, 3]), ((1, 4), [1]), ((2, 0), [1]), ((0, -1), [1])]:
        with pytest.raises(BoundsError):
            tensor.put(values, *place)
    with pytest.raises(BoundsError, match="nothing was written"):
        tensor.put([[1, 2]], 0, 0)
    assert not tensor.array.any()
    tensor.slice(index.all(), excl(1)).put([7, 8], 1, 1)
    assert tensor.array[1].tolist() == [0, 0, 7, 8]


def test_a_scalar_and_an_empty_tensor_are_created() -> None:
    """T-11."""
    assert tensors.dense([], np.bool_, lambda data: data.put(True)).get() is np.True_
    assert tensors.dense([0, 3], np.float32, lambda data: data.copy_from([])).total_size == 0
    for wrong in ([-1], [2**40, 2**40], [1] * 99):
        with pytest.raises(DataError):
            tensors.dense(wrong, np.float32, lambda data: None)
    with pytest.raises(WrongTypeError, match="cannot hold an array of complex128"):
        tensors.dense([2], np.complex128, lambda data: None)


def test_the_initialiser_writes_into_the_memory_that_the_tensor_has() -> None:
    """T-11."""
    seen: list[int] = []

    def init(data: tensors.WritableView[np.float32]) -> None:
        seen.append(data.array.ctypes.data)
        data.copy_from(iter(range(6)))

    tensor = tensors.dense([2, 3], np.float32, init)
    assert tensor.array.ctypes.data == seen[0]
    assert type(tensor) is tensors.TensorView

    memory = bytearray(64)
    tensors.dense([2, 3], np.float32, init, out=memory)
    assert np.frombuffer(memory, "f4").tolist() == [0, 1, 2, 3, 4, 5, *[0] * 10]
    with pytest.raises(BoundsError):
        tensors.dense([100], np.float32, init, out=memory)
    with pytest.raises(ReadOnlyError):
        tensors.dense([2, 3], np.float32, init, out=bytes(64))


@pytest.mark.slow
def test_creation_takes_the_memory_of_the_tensor_and_little_more() -> None:
    """T-11."""

    def init(data: tensors.WritableView[np.float32]) -> None:
        data.array[:] = 1.0
        for row in data.elements():
            row.put(2.0, 0)

    tracemalloc.start()
    try:
        tensor = tensors.dense([1000, 2500], np.float32, init)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert tensor.total_size * 4 <= peak < 1.05 * tensor.total_size * 4


@pytest.mark.slow
def test_an_initialiser_that_raises_publishes_nothing_and_frees_its_memory() -> None:
    """T-11."""
    owners: list[weakref.ref[Any]] = []

    def init(data: tensors.WritableView[np.float32]) -> None:
        owners.append(weakref.ref(data.array))
        data.put(1.0, 0)
        raise KeyError("no such sensor")

    with pytest.raises(KeyError):
        tensors.dense([1000], np.float32, init)
    gc.collect()
    assert owners[0]() is None


def test_shared_memory_is_filled_in_place() -> None:
    """T-11."""
    memory = SharedMemory(create=True, size=32)
    try:
        with tensors.dense([4], np.float32, lambda data: data.copy_from([1, 2, 3, 4]), out=memory):
            other = SharedMemory(memory.name)
            with tensors.view(other, np.float32, [4]) as seen:
                assert seen.array.tolist() == [1, 2, 3, 4]
            other.close()
    finally:
        memory.close()
        memory.unlink()


def test_the_slots_of_a_batch_are_filled_where_the_model_reads() -> None:
    """T-11."""
    slots = Slots(3, [2], np.float32)
    addresses: list[int] = []

    def write(data: tensors.WritableView[np.float32]) -> None:
        addresses.append(data.array.ctypes.data)
        data.copy_from([len(addresses), 0.5])

    for row in (0, 1, 2):
        slots.fill(row, write)
    column = slots.column()

    assert [column.array[row].ctypes.data for row in range(3)] == addresses
    batch = Batch({"x": column}, 3)
    assert [data["x"].tolist() for data in batch.to_list()] == [[1, 0.5], [2, 0.5], [3, 0.5]]
    with pytest.raises(ReadOnlyError, match="the column was made"):
        slots.fill(0, write)
    assert not column.array.flags.writeable


def test_a_slot_that_was_not_filled_is_a_row_without_the_key() -> None:
    """T-11."""
    slots = Slots(3, [], np.int64)
    slots.fill(2, lambda data: data.put(7))
    with pytest.raises(ZeroDivisionError):
        slots.fill(1, lambda data: data.put(1 // 0))
    with pytest.raises(BoundsError):
        slots.fill(3, lambda data: None)
    rows = Batch({"x": slots.column()}, 3).to_list()
    assert [dict(row) for row in rows[:2]] == [{}, {}]
    assert rows[2]["x"] == np.array(7)


def add_one() -> bytes:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "one"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 3])],
        [helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_a_model_reads_the_memory_of_the_view() -> None:
    """T-17."""
    tensor = tensors.dense([2, 3], np.float32, lambda data: data.copy_from(range(6)))
    value = onnxruntime.OrtValue.ortvalue_from_numpy(tensor.array)
    assert value.data_ptr() == tensor.array.ctypes.data

    session = onnxruntime.InferenceSession(add_one())
    out = tensors.writable(np.zeros((2, 3), "f4"))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "cpu", 0, np.float32, [2, 3], out.array.ctypes.data)
    session.run_with_iobinding(binding)
    assert list(out.stream()) == [1, 2, 3, 4, 5, 6]


def test_a_tensor_in_a_data_is_the_same_memory() -> None:
    """T-17."""
    tensor = tensors.dense([2, 3], np.float32, lambda data: data.copy_from(range(6)))
    data = Data({"x": tensor, "row": tensor.slice(1), "picked": tensor.slice(index.all(), incl(2, 0))})
    assert np.shares_memory(data["x"], tensor.array)
    assert np.shares_memory(data["row"], tensor.array)
    assert data["picked"].tolist() == [[2, 0], [5, 3]]
    assert Data.from_bytes(data.to_bytes()) == data == Data.from_json(data.to_json())


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, ml_dtypes.bfloat16])
def test_an_array_or_a_view_kept_from_the_initialiser_is_read_only_afterwards(dtype: Any) -> None:
    """T-11."""
    kept: list[Any] = []
    views: list[Any] = []

    def init(data: tensors.WritableView[Any]) -> None:
        array = data.array
        array[...] = 1
        kept.extend([array, np.asarray(data), data.slice(0).array, data.slice(index.all(), at(1)).array])
        views.extend([data, data.slice(1)])

    tensor = tensors.dense([2, 3], dtype, init)
    for array in [*kept, *(view.array for view in views)]:
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    assert tensor.array.all()

    slots = Slots(2, [2, 3], dtype)
    kept.clear()
    slots.fill(0, init)
    slots.fill(1, init)
    for array in kept:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    assert slots.column().array.all()


def test_a_slice_that_numpy_made_of_a_kept_array_does_not_write_into_the_tensor() -> None:
    """T-11."""
    kept: list[Any] = []

    def init(data: tensors.WritableView[Any]) -> None:
        data.copy_from([1, 2, 3])
        kept.append(data.array[1:])

    tensor = tensors.dense([3], np.float32, init)
    slots = Slots(2, [3], np.float32)
    slots.fill(0, init)

    def init_and_fail(data: tensors.WritableView[Any]) -> None:
        init(data)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        slots.fill(1, init_and_fail)
    slots.fill(1, lambda data: data.copy_from([4, 5, 6]))
    column = slots.column()
    for array in kept:
        array[...] = 9
    assert tensor.array.tolist() == [1, 2, 3]
    assert column.array.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_an_array_that_is_kept_of_memory_that_was_given_is_read_only_too() -> None:
    """T-11."""
    memory = np.zeros(3, "f4")
    kept: list[Any] = []
    tensors.dense([3], np.float32, lambda data: kept.append(data.array), out=memory)
    with pytest.raises(ValueError, match="read-only"):
        kept[0][0] = 1
    # It is its owner's.
    memory[0] = 1

    view = tensors.writable(memory)
    array = view.array
    array[1] = 1
    view.complete()
    with pytest.raises(ValueError, match="read-only"):
        array[2] = 1
    assert memory.tolist() == [1, 1, 0]


def test_arrays_that_are_let_go_while_a_tensor_is_written_leave_nothing_behind() -> None:
    """T-11."""

    def init(data: tensors.WritableView[Any]) -> None:
        for row in range(1000):
            data.array[row] = row
            data.slice(row).array[...] += 1

    assert tensors.dense([1000], np.float32, init).array.tolist() == list(range(1, 1001))
