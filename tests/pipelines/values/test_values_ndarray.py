"""Arrays as bytes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipelines.errors import WireError, WrongTypeError
from pipelines.values.ndarray import ByteOrder, NDArrayType, array_type, from_buffer, to_buffer, width

DTYPES: dict[NDArrayType, Any] = {
    NDArrayType.DOUBLE: np.float64,
    NDArrayType.FLOAT: np.float32,
    NDArrayType.FLOAT16: np.float16,
    NDArrayType.BFLOAT16: ml_dtypes.bfloat16,
    NDArrayType.INT64: np.int64,
    NDArrayType.INT32: np.int32,
    NDArrayType.INT16: np.int16,
    NDArrayType.INT8: np.int8,
    NDArrayType.UINT64: np.uint64,
    NDArrayType.UINT32: np.uint32,
    NDArrayType.UINT16: np.uint16,
    NDArrayType.UINT8: np.uint8,
    NDArrayType.BOOL: np.bool_,
}


@pytest.mark.parametrize("byte_order", ["little", "big"])
@pytest.mark.parametrize("element", DTYPES, ids=lambda element: element.name)
def test_every_element_type_survives_in_both_byte_orders(element: NDArrayType, byte_order: ByteOrder) -> None:
    array = np.array([[0, 1, 2], [3, 100, 0]]).astype(DTYPES[element])
    buffer = to_buffer(array, byte_order)
    assert array_type(array.dtype) is element
    assert len(buffer) == array.size * width(element)
    read = from_buffer(buffer, [2, 3], element, byte_order)
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


def test_the_two_byte_orders_mirror_each_element() -> None:
    array = np.array([1, 256], np.uint16)
    assert to_buffer(array, "little") == b"\x01\x00\x00\x01"
    assert to_buffer(array, "big") == b"\x00\x01\x01\x00"
    assert to_buffer(np.array([1.5], ml_dtypes.bfloat16), "big") == b"\x3f\xc0"


@pytest.mark.parametrize(
    "view",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
        np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1::2],
        np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
        np.arange(6, dtype=np.float32)[::-1],
        np.arange(6, dtype=">f4"),
        np.arange(8, dtype=ml_dtypes.bfloat16).reshape(2, 4).T,
    ],
    ids=["transposed", "strided", "fortran", "reversed", "big-endian", "bfloat16"],
)
def test_a_view_is_written_in_c_order(view: np.ndarray[Any, Any]) -> None:
    element = array_type(view.dtype)
    np.testing.assert_array_equal(from_buffer(to_buffer(view), view.shape, element), view)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 0, 5), (1, 1, 1, 1)])
def test_scalars_and_empty_arrays_keep_their_shape(shape: tuple[int, ...]) -> None:
    array = np.full(shape, 7.5, np.float32)
    assert from_buffer(to_buffer(array), shape, NDArrayType.FLOAT).shape == shape


@pytest.mark.parametrize(
    ("element", "factor"), [(NDArrayType.INT16, 2), (NDArrayType.INT32, 8), (NDArrayType.INT64, 8)]
)
def test_the_zeros_that_konduit_appends_to_integers_are_ignored(element: NDArrayType, factor: int) -> None:
    array = np.array([0, 1, -2], DTYPES[element])
    buffer = array.tobytes() + bytes(array.nbytes * (factor - 1))
    np.testing.assert_array_equal(from_buffer(buffer, [3], element), array)


@pytest.mark.parametrize("element", DTYPES, ids=lambda element: element.name)
def test_a_buffer_that_is_too_short_is_an_error(element: NDArrayType) -> None:
    needed = 3 * width(element)
    with pytest.raises(WireError, match=f"needs {needed} bytes, but its buffer has {needed - 1}"):
        from_buffer(bytes(needed - 1), [3], element)


@pytest.mark.parametrize(
    "shape",
    [
        [-1],
        [-1, -1],
        [0, -5],
        [2**62, 2**62],
        [2**63 - 1],
        [0, 2**63 - 1, 2**63 - 1],
        [1] * 33,
        [2**62] * 1000,
    ],
    ids=["-1", "-1,-1", "0,-5", "overflow", "maximum", "zero times huge", "rank 33", "rank 1000"],
)
def test_a_hostile_shape_is_an_error(shape: list[int]) -> None:
    with pytest.raises(WireError):
        from_buffer(bytes(64), shape, NDArrayType.FLOAT)


def test_bytes_that_are_neither_0_nor_1_are_true() -> None:
    read = from_buffer(b"\x00\x01\x02\xff", [4], NDArrayType.BOOL)
    assert read.tolist() == [False, True, True, True]
    assert read.tobytes() == b"\x00\x01\x01\x01"


def test_an_array_that_was_read_cannot_be_written_to() -> None:
    for byte_order in ("little", "big"):
        read = from_buffer(bytes(8), [2], NDArrayType.FLOAT, byte_order)
        with pytest.raises(ValueError, match="read-only"):
            read[0] = 1


def test_utf8_arrays_are_refused_with_a_way_out() -> None:
    with pytest.raises(WireError, match="send a list of strings"):
        from_buffer(b"abc", [1], NDArrayType.UTF8)
    with pytest.raises(WrongTypeError, match="use a list of strings"):
        array_type(np.array(["a"]).dtype)


def test_without_ml_dtypes_a_bfloat16_is_read_as_float32() -> None:
    script = """
import sys
sys.modules["ml_dtypes"] = None
from pipelines.values.ndarray import NDArrayType, from_buffer
read = from_buffer(bytes.fromhex("c03f00c0"), [2], NDArrayType.BFLOAT16)
assert read.dtype == "float32" and read.tolist() == [1.5, -2.0], read
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.slow
def test_reading_and_writing_messages_loads_no_heavy_package() -> None:
    script = """
import sys
from pipelines.data.data import Data
from pipelines.values import Image
png = b"\\x89PNG\\r\\n\\x1a\\n" + b"\\0\\0\\0\\rIHDR\\0\\0\\0\\2\\0\\0\\0\\1\\x08\\2\\0\\0\\0"
data = Data({"image": Image(png), "x": [1.0]})
assert data.get_image("image").width == 2
assert Data.from_bytes(data.to_bytes()) == data == Data.from_json(data.to_json())
heavy = {"cv2", "PIL", "ml_dtypes", "onnxruntime", "confluent_kafka"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True)
