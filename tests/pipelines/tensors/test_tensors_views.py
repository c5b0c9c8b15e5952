"""Views over memory: typed, checked, read-only or writable, never a copy. Names begin with the row that they show."""

from __future__ import annotations

import array as typed_arrays
import ctypes
import gc
import mmap
import sys
import tracemalloc
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import psutil
import pytest

from pipelines import NDArray, tensors
from pipelines.errors import DataError, WrongTypeError
from pipelines.tensors import (
    BoundsError,
    RankError,
    ReadOnlyError,
    ReleasedError,
    at,
    even,
    excl,
    incl,
    index,
    mod,
    odd,
)

TYPES = [str(np.dtype(code)) for code in "efdbhilBHIL?"]


def counted(*shape: int, dtype: str = "int64") -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)


def test_a_view_says_rank_sizes_and_total() -> None:
    """T-01."""
    for shape, total in [((), 1), ((4,), 4), ((2, 3), 6), ((2, 2, 3), 12)]:
        view = tensors.view(counted(*shape))
        assert (view.rank, view.shape, view.total_size) == (len(shape), shape, total)
        assert [view.size(axis) for axis in range(len(shape))] == list(shape)
    with pytest.raises(RankError, match="has no axis 0"):
        tensors.view(counted()).size(0)
    with pytest.raises(RankError, match="has no axis -1"):
        tensors.view(counted(4)).size(-1)


def test_a_read_only_view_has_no_way_to_write() -> None:
    """T-02."""
    memory = np.zeros(6, "f4")
    view = tensors.view(memory, shape=[2, 3])

    ways: list[Callable[[], object]] = [
        lambda: view.put(1.0, 0, 0),  # type: ignore[attr-defined]
        lambda: view.copy_from([1] * 6),  # type: ignore[attr-defined]
        lambda: view.load(None),  # type: ignore[attr-defined]
        lambda: view.slice(0).put(1.0, 0),  # type: ignore[attr-defined]
        lambda: view.slice(0).scalars().put(1.0),  # type: ignore[attr-defined]
        lambda: view.elements().put([1, 2, 3]),  # type: ignore[attr-defined]
    ]
    for write in ways:
        with pytest.raises((ReadOnlyError, AttributeError)):
            write()
    with pytest.raises(ReadOnlyError, match=r"has no put\(\); writable\(\) makes a view that has"):
        view.put(1.0, 0, 0)  # type: ignore[attr-defined]
    assert not hasattr(tensors.TensorView, "put")
    assert not hasattr(view, "put")
    assert not memory.any()


@pytest.mark.parametrize("dtype", [*TYPES, "bfloat16"])
def test_nobody_can_make_the_array_of_a_view_writable(dtype: str) -> None:
    """T-02."""
    memory = np.zeros((3, 4), ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for source in (memory, memory[::2, ::-1], memory.T, memory[0, 0, ...], memory[:0]):
        array = tensors.view(source).array
        assert array.shape == source.shape
        assert array.dtype == source.dtype
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_views_that_an_initialiser_kept_are_read_only_afterwards() -> None:
    """T-02."""
    kept: list[Any] = []

    def init(data: tensors.WritableView[np.float32]) -> None:
        data.put(1.0, 0)
        kept.extend([data, data.slice(index.range(0, 2)), data.cursor()])

    done = tensors.dense([2], np.float32, init)

    ways: list[Callable[[], object]] = [
        lambda: kept[0].put(5.0, 0),
        lambda: kept[0].copy_from([5.0, 5.0]),
        lambda: kept[1].put(5.0, 0),
        lambda: kept[2].put(5.0),
    ]
    for write in ways:
        with pytest.raises(ReadOnlyError, match="complete"):
            write()
    assert done.array.tolist() == [1.0, 0.0]
    assert kept[0].get(0) == 1.0


def test_elements_are_got_and_put_by_checked_indices() -> None:
    """T-03."""
    view = tensors.writable(counted(5, 4))
    view.put(7, 4, 3)
    assert view.get(4, 3) == 7
    assert type(view.get(4, 3)) is np.int64

    for wrong in [(3, 4), (5, 0), (-1, 3)]:
        with pytest.raises(BoundsError, match="out of bounds"):
            view.get(*wrong)
        with pytest.raises(BoundsError, match="out of bounds"):
            view.put(1, *wrong)
    with pytest.raises(IndexError, match="there are no negative ones"):
        view.get(-1, 3)
    with pytest.raises(RankError, match="has 2 indices, not 1"):
        view.get(3)
    with pytest.raises(RankError, match="3 indices for a tensor of rank 2"):
        view.put(1, 0, 0, 0)


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        ("u1", 300, DataError),
        ("i4", 2**31, DataError),
        ("i4", 1.5, WrongTypeError),
        ("f4", 1e300, DataError),
        ("?", 1, WrongTypeError),
        ("f4", "1", WrongTypeError),
        ("f4", None, WrongTypeError),
    ],
)
def test_a_value_that_does_not_fit_the_type_is_refused(dtype: str, value: Any, error: type[Exception]) -> None:
    """T-03."""
    view = tensors.writable(np.zeros(2, dtype))
    with pytest.raises(error):
        view.put(value, 0)
    with pytest.raises(error):
        view.copy_from([value, value])
    assert not view.array.any()


def test_values_that_fit_are_taken_whatever_holds_them() -> None:
    """T-03."""
    view = tensors.writable(np.zeros(6, "f4"))
    six = tensors.view(np.array([6.0])).get(0)
    for place, value in enumerate([1, 2.5, True, np.int64(4), np.array(5.0), six]):
        view.put(value, place)
    assert view.array.tolist() == [1, 2.5, 1, 4, 5, 6]
    with pytest.raises(WrongTypeError, match="put them with fewer indices"):
        tensors.writable(np.zeros((), "f4")).put([1.0, 2.0])


SOURCES: dict[str, Callable[[], Any]] = {
    "nested lists": lambda: [[0, 1, 2], [3, 4, 5]],
    "an array": lambda: counted(2, 3),
    "an array of one axis": lambda: counted(6),
    "a longer array of one axis": lambda: counted(9),
    "a tensor": lambda: tensors.view(counted(2, 3)),
    "a buffer with a type": lambda: typed_arrays.array("i", range(6)),
    "bytes": lambda: counted(6, dtype="float32").tobytes(),
    "an iterator": lambda: iter(range(6)),
    "an endless iterator": lambda: iter(int, 1),
    "an NDArray": lambda: NDArray.create([[0, 1, 2], [3, 4, 5]]).get_as("numpy"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_all_elements_are_written_at_once_from(source: str) -> None:
    """T-04."""
    view = tensors.writable(np.full((2, 3), 9, "f4"))
    view.copy_from(SOURCES[source]())
    assert view.array.tolist() == ([[0, 0, 0], [0, 0, 0]] if "endless" in source else [[0, 1, 2], [3, 4, 5]])


def test_a_longer_iterator_keeps_the_values_that_were_not_needed() -> None:
    """T-04."""
    values = iter(range(10))
    tensors.writable(np.zeros(4)).copy_from(values)
    assert next(values) == 4


@pytest.mark.parametrize(
    "source",
    [[1, 2, 3], [[1, 2], [3, 4], [5, 6]], iter([1, 2]), b"\0" * 20, np.zeros((3, 2)), [], [[[0, 1, 2], [3, 4, 5]]]],
    ids=["few", "other shape", "short iterator", "few bytes", "other array", "none", "other rank"],
)
def test_a_source_that_does_not_fill_the_tensor_changes_nothing(source: Any) -> None:
    """T-04."""
    view = tensors.writable(np.full((2, 3), 9, "f4"))
    with pytest.raises(DataError):
        view.copy_from(source)
    assert (view.array == 9).all()


def test_elements_are_copied_into_arrays_buffers_and_views() -> None:
    """T-04."""
    view = tensors.view(counted(2, 3, dtype="float32"))
    same, longer, raw = np.zeros((2, 3), "f4"), np.full(8, 9, "f4"), bytearray(26)
    typed, other = typed_arrays.array("f", [0] * 6), tensors.writable(np.zeros((2, 3), "f8"))
    for target in (same, longer, raw, typed, other):
        view.copy_into(target)
    assert same.tolist() == other.array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert longer.tolist() == [0, 1, 2, 3, 4, 5, 9, 9]
    assert raw == view.array.tobytes() + b"\0\0"
    assert typed.tolist() == [0, 1, 2, 3, 4, 5]

    row = np.zeros(3, "f4")
    view.copy_into(row, 1)
    view.slice(index.all(), excl(1)).copy_into(longer)
    assert row.tolist() == [3, 4, 5]
    assert longer.tolist() == [0, 2, 3, 5, 4, 5, 9, 9]


def test_a_target_that_is_too_small_or_of_another_type_is_left_as_it_is() -> None:
    """T-04."""
    view = tensors.view(counted(2, 3, dtype="float32"))
    for target, error in [
        (np.full(5, 9, "f4"), BoundsError),
        (np.full((3, 2), 9, "f4"), BoundsError),
        (bytearray(b"\x09" * 23), BoundsError),
        (tensors.writable(np.full(5, 9, "f4")), BoundsError),
        (np.full(6, 9, "f8"), WrongTypeError),
        (bytes(24), ReadOnlyError),
    ]:
        before = np.asarray(target).tobytes()
        with pytest.raises(error):
            view.copy_into(target)
        assert np.asarray(target).tobytes() == before
    fixed = np.zeros((2, 3), "f4")
    fixed.flags.writeable = False
    with pytest.raises(ReadOnlyError):
        view.copy_into(fixed)


@pytest.mark.parametrize("dtype", TYPES)
def test_elements_go_through_a_stream_and_back(dtype: str, tmp_path: Path) -> None:
    """T-04."""
    array = counted(3, 4, dtype=dtype)
    path = tmp_path / "elements"
    with path.open("wb") as stream:
        tensors.view(array.T).dump(stream)
    assert path.read_bytes() == array.T.astype(array.dtype.newbyteorder("<")).tobytes()

    copy = tensors.writable(np.zeros((4, 3), dtype))
    with path.open("rb") as stream:
        copy.load(stream)
    np.testing.assert_array_equal(copy.array, array.T)

    path.write_bytes(path.read_bytes()[:-1])
    copy.copy_from(np.zeros((4, 3), dtype))
    with path.open("rb") as stream, pytest.raises(BoundsError, match="the stream ended after"):
        copy.load(stream)
    assert not copy.array.any()


def test_a_stream_of_elements_is_read_in_row_major_order() -> None:
    """T-04."""
    view = tensors.view(counted(2, 3))
    assert list(view.stream()) == [0, 1, 2, 3, 4, 5]
    assert list(view.stream(1)) == [3, 4, 5]
    assert list(view.stream(index.all(), at(0))) == [0, 3]
    assert list(tensors.view(counted(2, 3).T).stream()) == [0, 3, 1, 4, 2, 5]


def test_a_slice_by_integers_is_a_view_and_writes_through() -> None:
    """T-05."""
    memory = counted(2, 3, 4)
    view = tensors.writable(memory)
    part = view.slice(1, 2)
    assert part.shape == (4,)
    assert np.shares_memory(part.array, memory)
    part.put(99, 3)
    assert memory[1, 2, 3] == view.get(1, 2, 3) == 99
    scalar = view.slice(0, 0, 0)
    assert (scalar.rank, scalar.get()) == (0, 0)
    scalar.put(5)
    assert memory[0, 0, 0] == 5
    with pytest.raises(RankError, match="1 indices for a tensor of rank 0"):
        scalar.slice(0)


CASES = [
    ("at", lambda: (at(0),), np.s_[0]),
    ("all, at, at", lambda: (index.all(), at(0), at(0)), np.s_[:, 0, 0]),
    ("at, all, at", lambda: (at(0), index.all(), at(0)), np.s_[0, :, 0]),
    ("even", lambda: (even(),), np.s_[::2]),
    ("odd", lambda: (odd(),), np.s_[1::2]),
    ("mod", lambda: (index.all(), index.all(), mod(3)), np.s_[:, :, ::3]),
    ("range", lambda: (index.range(1, 3),), np.s_[1:3]),
    ("empty range", lambda: (index.range(2, 2),), np.s_[2:2]),
    ("incl", lambda: (index.all(), incl(2, 0)), np.s_[:, [2, 0]]),
    ("incl twice", lambda: (incl(3, 0, 4), at(1), incl(0, 1, 4)), np.s_[[[3], [0], [4]], 1, [[0, 1, 4]]]),
    ("excl", lambda: (excl(1, 3),), np.s_[[0, 2, 4]]),
    ("excl all", lambda: (excl(0, 1, 2, 3, 4),), np.s_[0:0]),
    ("excl none", lambda: (excl(),), np.s_[:]),
    ("excl of the ends", lambda: (excl(0, 4),), np.s_[1:4]),
    ("excl, all, incl", lambda: (excl(1), index.all(), incl(3, 1)), np.s_[[[0], [2], [3], [4]], :, [[3, 1]]]),
]


@pytest.mark.parametrize(("name", "indices", "literal"), CASES, ids=[case[0] for case in CASES])
def test_every_index_shows_what_it_says_and_writes_through(name: str, indices: Any, literal: Any) -> None:
    """T-06."""
    memory = counted(5, 4, 6)
    expected = np.moveaxis(memory[literal], 2, 1).copy() if name == "excl, all, incl" else memory[literal].copy()
    part = tensors.writable(memory).slice(*indices())
    assert part.shape == expected.shape
    np.testing.assert_array_equal(part.copy(), expected)
    assert list(part.stream()) == expected.reshape(-1).tolist()

    part.copy_from(-1 - expected)
    np.testing.assert_array_equal(part.copy(), -1 - expected)
    assert np.count_nonzero(memory < 0) == expected.size


def test_the_proposals_own_examples_hold() -> None:
    """T-06."""
    values = [10.0, 10.1, 10.2, 11.0, 11.1, 11.2, 20.0, 20.1, 20.2, 21.0, 21.1, 21.2]
    tensor = tensors.dense([2, 2, 3], np.float64, lambda data: data.copy_from(iter(values)))
    every = index.all()

    def shown(*indices: Any) -> Any:
        return tensor.slice(*indices).copy().tolist()

    assert tensor.get(1, 1, 1) == 21.1
    assert shown(0, 0) == [10.0, 10.1, 10.2]
    assert shown(every, at(0)) == [[10.0, 10.1, 10.2], [20.0, 20.1, 20.2]]
    assert shown(every, at(0), at(0)) == [10.0, 20.0]
    assert shown(every, at(0), incl(0, 2)) == [[10.0, 10.2], [20.0, 20.2]]
    assert shown(every, every, excl(1)) == [[[10.0, 10.2], [11.0, 11.2]], [[20.0, 20.2], [21.0, 21.2]]]


def test_an_index_beyond_its_axis_is_refused() -> None:
    """T-06."""
    view = tensors.view(counted(5))
    for wrong in (at(5), at(-1), incl(0, 5), excl(5), index.range(0, 6), index.range(3, 2), index.range(-1, 2)):
        with pytest.raises(BoundsError):
            view.slice(wrong)
    with pytest.raises(BoundsError, match="at least 1"):
        mod(0)


def test_indices_of_a_sliced_view_count_the_elements_that_it_shows() -> None:
    """T-06."""
    memory = counted(10_000)
    shown = np.delete(memory, [3, 4_000, 9_999])
    view = tensors.writable(memory).slice(excl(3, 4_000, 9_999))
    for indices, expected in [
        ((odd(),), shown[1::2]),
        ((index.range(10, 5_000),), shown[10:5_000]),
        ((incl(5_000, 2, 3),), shown[[5_000, 2, 3]]),
        ((excl(0, 7),), np.delete(shown, [0, 7])),
        ((at(3_999),), shown[3_999]),
    ]:
        np.testing.assert_array_equal(view.slice(*indices).copy(), expected)
    np.testing.assert_array_equal(view.slice(odd()).slice(excl(1)).slice(mod(5)).copy(), np.delete(shown[1::2], 1)[::5])
    view.slice(odd()).slice(excl(1)).put(-1, 1)
    assert memory[np.delete(shown[1::2], 1)[1]] == -1


def test_tensors_of_integers_are_indices() -> None:
    """T-07."""
    view = tensors.view(counted(3, 4, 5))
    scalar, vector = tensors.view(np.array(2)), tensors.view(np.array([1, 3]))
    for indices, literal in [
        ((scalar,), (2,)),
        ((vector,), (1, 3)),
        ((at(0), vector), (0, 1, 3)),
        ((np.array([1, 3], "u1"),), (1, 3)),
        ((np.int16(2), index.all(), scalar), (at(2), index.all(), at(2))),
    ]:
        np.testing.assert_array_equal(view.slice(*indices).array, view.slice(*literal).array)
    for wrong in (np.zeros((2, 2), int), np.array(1.0), np.array([True]), True):
        with pytest.raises(WrongTypeError, match="is not an index"):
            view.slice(wrong)
    with pytest.raises(RankError):
        view.slice(vector, vector)


def test_slicing_a_large_tensor_copies_nothing() -> None:
    """T-08."""
    memory = np.zeros(25_000_000, "f4")
    view = tensors.writable(memory)
    tracemalloc.start()
    try:
        part = view.slice(excl(1)).slice(odd()).slice(excl(3)).slice(index.range(1, 12_000_000))
        view.slice(incl(7, 3, 5)).put(2.0, 1)
        part.put(5.0, 0)
        assert part.get(0) == 5.0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    assert np.flatnonzero(memory).tolist() == [3, 4]


def test_a_put_through_picked_elements_changes_the_parent() -> None:
    """T-08."""
    memory = np.zeros((2, 2, 3))
    tensors.writable(memory).slice(index.all(), at(0), incl(2, 0)).copy_from([[1, 2], [3, 4]])
    assert memory.tolist() == [[[2, 0, 1], [0, 0, 0]], [[4, 0, 3], [0, 0, 0]]]
    with pytest.raises(DataError, match=r"copy\(\) makes one"):
        _ = tensors.view(memory).slice(index.all(), index.all(), incl(2, 0)).array


def test_a_tensor_is_copied_over_itself_in_another_order() -> None:
    """T-08."""
    view = tensors.writable(counted(4))
    view.slice(incl(3, 2, 1, 0)).copy_from(view)
    assert view.array.tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("dtype", TYPES)
def test_typed_access_is_the_same_view_or_an_error(dtype: str) -> None:
    """T-15."""
    view = tensors.view(np.zeros(3, dtype))
    assert getattr(view, f"as_{dtype}")() is view
    for other in TYPES:
        if other != dtype:
            with pytest.raises(WrongTypeError, match=f"holds {dtype}, not {other}"):
                getattr(view, f"as_{other}")()


def test_plain_memory_is_viewed_as_any_type(tmp_path: Path) -> None:
    """T-16."""
    raw = np.array([1.5, 2.5, 3.5], "f4").tobytes()
    assert tensors.view(raw, np.float32).array.tolist() == [1.5, 2.5, 3.5]
    assert tensors.view(b"\0" + raw, np.float32, [1], offset=5).get(0) == 2.5
    assert tensors.view(memoryview(raw), np.uint32, [3, 1]).shape == (3, 1)
    assert tensors.view(raw).dtype == np.uint8
    assert tensors.view((ctypes.c_float * 3).from_buffer_copy(raw)).array.tolist() == [1.5, 2.5, 3.5]
    for wrong in (
        lambda: tensors.view(raw, np.float64),
        lambda: tensors.view(raw, np.float32, [4]),
        lambda: tensors.view(raw, np.float32, [3], offset=1),
        lambda: tensors.view(raw, np.float32, [1], offset=-4),
    ):
        with pytest.raises(BoundsError):
            wrong()
    with pytest.raises(DataError, match="no axis of the length -3"):
        tensors.view(raw, np.float32, [-3])
    with pytest.raises(WrongTypeError, match=r"a list is not memory; dense\(\)"):
        tensors.view([1, 2])
    with pytest.raises(DataError, match="not in one piece"):
        tensors.view(memoryview(raw)[::2], np.float32)


def test_a_mapped_file_is_read_and_written_in_place(tmp_path: Path) -> None:
    """T-16."""
    path = tmp_path / "weights"
    path.write_bytes(np.arange(6, dtype="f4").tobytes())
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        with tensors.writable(mapped, np.float32, [2, 3]) as view:
            assert view.slice(1).array.tolist() == [3, 4, 5]
            view.put(9.0, 1, 2)
            with pytest.raises(BufferError):
                mapped.close()
            assert view.get(1, 2) == 9.0
        with pytest.raises(ReleasedError, match="released"):
            view.get(0, 0)
    assert np.frombuffer(path.read_bytes(), "f4").tolist() == [0, 1, 2, 3, 4, 9]


def test_shared_memory_is_viewed_and_outlives_no_view() -> None:
    """T-16."""
    memory = SharedMemory(create=True, size=64)
    try:
        other = SharedMemory(memory.name)
        with tensors.writable(memory, np.int32, [16]) as mine, tensors.view(other, np.int32, [16]) as others:
            mine.slice(odd()).copy_from(range(8))
            assert others.slice(index.range(0, 6)).array.tolist() == [0, 0, 0, 1, 0, 2]
            with pytest.raises(BufferError):
                other.close()
            assert others.get(15) == 7
        other.close()
    finally:
        memory.close()
        memory.unlink()


@pytest.mark.slow
def test_a_view_keeps_its_owner_alive() -> None:
    """T-16."""
    view = tensors.view(bytearray(b"\1\0\0\0"), np.int32)
    part = tensors.view(np.full(1000, 7)).slice(index.range(10, 12))
    gc.collect()
    assert view.get(0) == 1
    assert part.array.tolist() == [7, 7]


def test_arrays_of_other_libraries_are_viewed_where_they_are() -> None:
    """T-16."""
    pyarrow = pytest.importorskip("pyarrow")
    arrow = pyarrow.array([1.0, 2.0, 3.0])
    view = tensors.view(arrow)
    assert view.array.ctypes.data == arrow.buffers()[1].address
    assert tensors.view(NDArray.create(arrow), np.float64).get(2) == 3.0
    with pytest.raises(ReadOnlyError, match="cannot be written"):
        tensors.writable(arrow)

    class OnlyDLPack:
        """Any library's array, as far as others can see it."""

        def __init__(self, array: np.ndarray[Any, Any]) -> None:
            self._array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self._array.__dlpack_device__()

    memory = np.arange(3.0)
    assert np.shares_memory(tensors.view(OnlyDLPack(memory)).array, memory)
    tensors.writable(OnlyDLPack(memory)).put(9.0, 0)
    assert memory[0] == 9.0


def test_a_camera_frames_plane_is_viewed() -> None:
    """T-16."""
    av = pytest.importorskip("av")
    pixels = counted(4, 32, 3, dtype="uint8")
    plane = av.VideoFrame.from_ndarray(pixels, format="bgr24").planes[0]
    view = tensors.view(plane, np.uint8, [4, plane.line_size])
    assert view.get(1, 5) == pixels[1, 1, 2]


def test_an_array_is_viewed_with_its_own_type_only() -> None:
    """T-16."""
    memory = counted(2, 3, dtype="float32")
    assert np.shares_memory(tensors.view(memory, np.float32, [6]).array, memory)
    with pytest.raises(WrongTypeError, match="holds float32, not int32; a view converts nothing"):
        tensors.view(memory, np.int32)
    with pytest.raises(BoundsError, match="cannot be seen as"):
        tensors.view(memory, shape=[7])
    with pytest.raises(DataError, match="without a copy"):
        tensors.view(memory.T, shape=[6])
    with pytest.raises(DataError, match="slice the array instead"):
        tensors.view(memory, offset=4)
    with pytest.raises(ReadOnlyError):
        tensors.writable(tensors.view(memory))
    with pytest.raises(ReadOnlyError):
        tensors.writable(b"1234", np.int32)
    with pytest.raises(WrongTypeError, match="cannot hold an array of complex128"):
        tensors.view(np.zeros(2, complex))


@pytest.mark.slow
def test_a_hundred_thousand_views_leave_no_memory_behind() -> None:
    """T-18."""
    memory = bytearray(1 << 20)
    owners = sys.getrefcount(memory)

    def cycle(times: int) -> int:
        for _ in range(times):
            with tensors.writable(memory, np.float32, [1024, 256]) as view:
                view.slice(3)
        return psutil.Process().memory_info().rss

    before = cycle(5_000)
    after = cycle(100_000)
    assert after - before < 8 << 20
    assert sys.getrefcount(memory) == owners
    memory.clear()


def test_after_a_release_nothing_reads_or_writes() -> None:
    """T-18."""
    view = tensors.writable(np.zeros((2, 3)))
    part = view.slice(1)
    view.release()
    view.release()
    for use in (lambda: view.get(0, 0), lambda: view.array, lambda: part.get(0), lambda: part.put(1, 0), view.copy):
        with pytest.raises((ReleasedError, ReadOnlyError)):
            use()


def test_tensors_have_no_arithmetic() -> None:
    view = tensors.writable(np.zeros(3))
    for name in ("add", "radd", "iadd", "sub", "mul", "truediv", "matmul", "neg", "abs", "pow", "and", "invert"):
        assert not hasattr(view, f"__{name}__")
    with pytest.raises(TypeError):
        view + view  # type: ignore[operator]
    assert not {"sum", "mean", "dot", "min", "max", "add", "matmul"} & set(dir(view))
    assert np.shares_memory(np.asarray(view), view.array)


def test_a_view_is_an_array_to_numpy() -> None:
    view = tensors.view(counted(2, 3))
    assert np.shares_memory(np.asarray(view), view.array)
    picked = view.slice(index.all(), incl(2, 0))
    assert np.asarray(picked).tolist() == [[2, 0], [5, 3]]
    assert np.asarray(view, np.float32).dtype == np.float32
    assert not np.shares_memory(np.array(view), view.array)
    assert repr(view) == "TensorView(int64[2, 3])"


@pytest.mark.parametrize("wrong", [True, False, np.True_, 1.0, "1", None])
def test_an_index_that_is_no_integer_is_refused(wrong: Any) -> None:
    view = tensors.writable(np.zeros((2, 3)))
    sparse = tensors.sparse([2, 3], np.float32, 1, lambda data: data.put(1, 0, 0))
    ragged = tensors.ragged([2, -1], np.float32, lambda data: data.put([1, 2], 1))
    words = tensors.strings([["a", "b"], ["c", "d"]])
    for use in (
        lambda: view.get(wrong, 0),
        lambda: view.get(0, wrong),
        lambda: view.put(1.0, wrong, 0),
        lambda: view.put(1.0, 0, wrong),
        lambda: sparse.get(wrong, 0),
        lambda: ragged.get(wrong, 0),
        lambda: ragged.get(1, wrong),
        lambda: words.get(wrong, 0),
        lambda: at(wrong),
        lambda: incl(0, wrong),
        lambda: excl(wrong),
        lambda: mod(wrong),
        lambda: index.range(wrong, 1),
        lambda: index.range(0, wrong),
        lambda: tensors.sparse([2, 3], np.float32, 1, lambda data: data.put(1, wrong, 0)),
        lambda: tensors.ragged([2, -1], np.float32, lambda data: data.put(1, 0, wrong)),
        lambda: tensors.Slots(2, [3], np.float32).fill(wrong, lambda data: None),
    ):
        with pytest.raises(DataError, match="index"):
            use()
    assert not view.array.any()
    numbers: list[Any] = [np.int8(1), np.array(2)]
    assert view.get(*numbers) == 0.0


def _used(view: tensors.TensorView[Any]) -> list[Any]:
    """Everything that reading a view leaves behind, none of it at its end."""
    part = view.slice(1)
    rows, stream, cursor = view.elements(), view.stream(), part.scalars()
    return [part, next(rows), rows, next(stream), stream, next(cursor), cursor, view.slice(index.all(), incl(0, 2))]


@pytest.mark.parametrize("make", [tensors.view, tensors.writable])
def test_a_released_view_gives_its_memory_back_though_its_slices_live(make: Any) -> None:
    memory = bytearray(24)
    with make(memory, np.float32, [2, 3]) as view:
        kept = _used(view)
        with pytest.raises(BufferError):
            memory.extend(b"1")
    memory.extend(b"1")
    part, row, rows, *_, cursor, _ = kept
    for use in (part.get, row.get):
        with pytest.raises(ReleasedError):
            use(0)
    for iterator in (rows, cursor):
        with pytest.raises(ReleasedError):
            next(iterator)


def test_a_slice_that_is_released_gives_the_memory_back_too() -> None:
    memory = bytearray(24)
    view = tensors.view(memory, np.float32, [2, 3])
    kept = _used(view)
    view.slice(0).release()
    memory.extend(b"1")
    assert kept


def test_shared_and_mapped_memory_is_closed_while_slices_live(tmp_path: Path) -> None:
    file = tmp_path / "cells"
    file.write_bytes(bytes(24))
    shared = SharedMemory(create=True, size=24)
    try:
        with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
            with tensors.view(mapped, np.float32, [2, 3]) as first, tensors.view(shared, np.float32, [6]) as second:
                kept = [*_used(first), *second.elements()]
            mapped.close()
            shared.close()
        assert kept
    finally:
        shared.unlink()


def test_packed_strings_give_the_memory_of_their_bytes_back() -> None:
    memory = bytearray(b"townborn")
    with tensors.packed_strings(np.array([0, 4, 8]), memory) as words:
        stream = words.stream()
        assert next(stream) == "town"
        part = words.slice(1)
    memory.extend(b"1")
    with pytest.raises(ReleasedError):
        part.get()
    with pytest.raises(ReleasedError):
        next(stream)
