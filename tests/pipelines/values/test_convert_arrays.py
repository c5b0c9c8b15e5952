"""`NDArray`: arrays in any form, converted only where somebody asks for another one."""

from __future__ import annotations

import array as typed_arrays
import ctypes
import itertools
import mmap
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipelines import ArrayFormat, Data, NDArray, NDArrayType, SerializedNDArray
from pipelines.errors import DataError, WireError, WrongTypeError
from pipelines.values import array_conversions
from pipelines.values.conversion.formats import ImageFormat

TYPES = [np.dtype(code) for code in "efdbhilBHIL?"]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def counted(*shape: int, dtype: Any = "f4") -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)


class OnlyDLPack:
    """Any library's array, as far as others can see it."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class OnlyArray:
    """An object that numpy makes an array of, as data frames are."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return counted(2, 2)


def test_an_array_is_given_back_unconverted_in_the_form_that_it_has() -> None:
    """K-12."""
    array = counted(2, 3)
    holder = NDArray.create(array)
    assert holder.value is array
    assert holder.get_as(np.ndarray) is array
    assert holder.get_as("numpy") is array
    assert holder.get_as("float32, C order, little-endian") is array
    assert NDArray.create(holder) is holder
    conversions = array_conversions()
    assert conversions.route("numpy", conversions.wanted(np.ndarray)) == ()
    for value in ([1.0, 2.0], typed_arrays.array("d", [1]), pyarrow.array([1]), SerializedNDArray.of(array), b"ab"):
        other = NDArray.create(value)
        assert other.get_as(other.form) is value


FORMS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: counted(6),
    "list": lambda: [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    "array": lambda: typed_arrays.array("f", range(6)),
    "buffer": lambda: counted(6).data,
    "serialized": lambda: SerializedNDArray.of(counted(6)),
    "arrow": lambda: pyarrow.array(counted(6)),
    "arrow-tensor": lambda: pyarrow.Tensor.from_numpy(counted(6)),
    "dlpack": lambda: OnlyDLPack(counted(6)),
}
TARGETS = ["numpy", "list", "array", "buffer", "bytes", "serialized", "arrow", "arrow-tensor", "dlpack"]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(FORMS, TARGETS)), ids=lambda one: one)
def test_every_form_becomes_every_other_one(source: str, target: str) -> None:
    """K-18."""
    holder = NDArray.create(FORMS[source]())
    assert holder.form == source
    assert holder.shape == (6,)
    made = holder.get_as(ArrayFormat(target, np.dtype("f4")) if target != "dlpack" else target)
    expected = counted(6)
    if target == "bytes":
        assert made == expected.tobytes()
        return
    again = NDArray.create(made)
    assert again.get_as(list) == expected.tolist()
    assert again.form == ("numpy" if target == "dlpack" and source != "dlpack" else target)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.5, np.array(2.5)),
        (True, np.array(True)),
        ((1, 2), np.array([1, 2])),
        (bytearray(b"\x01\x02"), np.array([1, 2], "u1")),
        (b"\x01\x02", np.array([1, 2], "u1")),
        ((ctypes.c_double * 2)(1.5, 2.5), np.array([1.5, 2.5])),
        (np.float32(3), np.array(3, "f4")),
        (OnlyArray(), counted(2, 2)),
        (typed_arrays.array("q"), np.zeros(0, "i8")),
        (pyarrow.chunked_array([[1, 2], [3]]), np.array([1, 2, 3])),
        (pyarrow.array([True, False]), np.array([True, False])),
        (pyarrow.FixedSizeListArray.from_arrays(pyarrow.array([1.0, 2.0, 3.0, 4.0]), 2), np.array([[1.0, 2], [3, 4]])),
        (pyarrow.FixedShapeTensorArray.from_numpy_ndarray(counted(3, 2, 2)), counted(3, 2, 2)),
        (pyarrow.py_buffer(b"\x05"), np.array([5], "i1")),
    ],
    ids=lambda one: type(one).__name__,
)
def test_other_objects_are_arrays_too(value: Any, expected: np.ndarray[Any, Any]) -> None:
    """K-18."""
    array = NDArray.create(value).get_as(np.ndarray)
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)


def test_a_mapped_file_is_an_array_of_bytes(tmp_path: Any) -> None:
    """K-18."""
    (tmp_path / "file").write_bytes(b"\1\2\3")
    with (tmp_path / "file").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert NDArray.create(mapped).get_as(list) == [1, 2, 3]


@pytest.mark.parametrize("rank", range(6))
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_nested_lists_of_every_rank_and_type_go_through_the_canonical_form(dtype: np.dtype[Any], rank: int) -> None:
    """K-18."""
    array = counted(*range(2, 2 + rank), dtype=dtype)
    serialized = NDArray.create(array.tolist()).get_as(ArrayFormat("serialized", dtype))
    assert serialized == SerializedNDArray.of(array)
    assert NDArray.create(serialized).get_as(list) == array.tolist()


ORDERS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "Fortran order": np.asfortranarray,
    "negative strides": lambda array: np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1],
    "steps": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "other byte order": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "read-only": lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
}


@pytest.mark.parametrize(
    ("dtype", "order"),
    # numpy has no bfloat16 in another byte order.
    [
        (dtype, order)
        for dtype in [*TYPES, BFLOAT16]
        for order in ORDERS
        if (dtype, order) != (BFLOAT16, "other byte order")
    ],
    ids=str,
)
def test_equal_arrays_have_equal_bytes_whatever_their_strides(dtype: np.dtype[Any], order: str) -> None:
    """K-16."""
    array = counted(3, 4, dtype=dtype)
    serialized = SerializedNDArray.of(ORDERS[order](array))
    assert serialized == SerializedNDArray.of(array)
    assert bytes(serialized.buffer) == array.tobytes()
    assert serialized.shape == (3, 4)
    assert serialized.buffer.readonly
    np.testing.assert_array_equal(serialized.numpy(), array)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 0, 2)])
def test_scalars_and_empty_arrays_keep_their_shape(shape: tuple[int, ...]) -> None:
    """K-16."""
    for dtype in [*TYPES, BFLOAT16]:
        serialized = SerializedNDArray.of(np.ones(shape, dtype))
        assert serialized.shape == shape
        assert serialized.numpy().shape == shape
        assert len(serialized.buffer) == np.ones(shape, dtype).nbytes


def test_every_element_type_has_its_name() -> None:
    """K-16."""
    names = [
        "FLOAT16",
        "FLOAT",
        "DOUBLE",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "BOOL",
    ]
    assert [NDArray.create(np.zeros(1, dtype)).element_type.name for dtype in TYPES] == names
    assert NDArray.create(np.zeros(1, BFLOAT16)).element_type is NDArrayType.BFLOAT16
    with pytest.raises(WireError, match="UTF8"):
        SerializedNDArray(NDArrayType.UTF8, (1,), memoryview(b"x")).numpy()
    with pytest.raises(WireError, match="needs 8 bytes"):
        SerializedNDArray(NDArrayType.FLOAT, (2,), memoryview(b"1234")).numpy()


def shares(a: Any, b: Any) -> bool:
    return np.shares_memory(np.asarray(a), np.asarray(b))


def test_no_bytes_are_copied_where_both_sides_can_share_them() -> None:
    array = counted(3, 4)
    holder = NDArray.create(array)
    assert shares(holder.get_as(memoryview), array)
    assert shares(holder.get_as("dlpack"), array)
    assert shares(holder.get_as(SerializedNDArray).buffer, array)
    assert shares(holder.get_as(SerializedNDArray).numpy(), array)
    assert shares(holder.get_as("arrow").to_numpy_ndarray(), array)
    assert shares(holder.get_as(pyarrow.Tensor).to_numpy(), array)
    assert shares(NDArray.create(array.T).get_as(pyarrow.Tensor).to_numpy(), array)
    assert shares(NDArray.create(array[0]).get_as(pyarrow.Array).to_numpy(), array)

    for value in (typed_arrays.array("f", [1, 2]), bytearray(8), counted(2).data, OnlyDLPack(array)):
        memory = value.array if isinstance(value, OnlyDLPack) else value
        assert shares(NDArray.create(value).get_as(np.ndarray), memory)
    arrow = pyarrow.array([1.0, 2.0])
    assert NDArray.create(arrow).get_as(np.ndarray).ctypes.data == arrow.buffers()[1].address
    # Two hops, and still the same memory.
    tensor = NDArray.create(arrow).get_as(pyarrow.Tensor)
    assert tensor.to_numpy().ctypes.data == arrow.buffers()[1].address


def test_a_format_says_more_than_a_class() -> None:
    """K-13."""
    array = counted(2, 3, dtype="f8")
    made = NDArray.create(array).get_as("float32, Fortran order, big-endian")
    assert made.dtype == np.dtype(">f4")
    assert made.flags.f_contiguous
    assert made.tolist() == array.tolist()
    assert NDArray.create(array).get_as("list float16") == array.tolist()
    assert NDArray.create([1, 2]).get_as("bytes, int16, big-endian") == b"\0\1\0\2"
    assert NDArray.create([1, 2]).get_as(ArrayFormat("bytes", np.dtype("i2"))) == b"\1\0\2\0"
    assert NDArray.create(array).get_as("serialized bfloat16").type is NDArrayType.BFLOAT16
    assert NDArray.create(array.T).get_as("buffer, C order").contiguous
    assert str(ArrayFormat.parse("int8 list")) == "list, dtype int8"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("float32 float64", "asks for both float32 and float64; say one dtype"),
        ("C order, F order", "say one order"),
        ("little-endian big-endian", "say one byte order"),
        ("list tuple", "asks for both list and tuple; say one form"),
    ],
)
def test_a_format_that_says_something_twice_is_refused(text: str, reason: str) -> None:
    """K-13."""
    with pytest.raises(DataError, match=reason):
        NDArray.create([1]).get_as(text)


def test_an_option_that_a_conversion_does_not_know_is_an_error() -> None:
    """K-13."""
    with pytest.raises(DataError, match=r"from numpy to list knows no byte_order; it knows dtype"):
        NDArray.create(counted(2)).get_as("list, big-endian")
    with pytest.raises(DataError, match="is converted to a class, a text or an ArrayFormat"):
        NDArray.create([1]).get_as(ImageFormat("png"))  # type: ignore[call-overload]


def test_an_element_type_is_converted_only_where_values_survive() -> None:
    assert NDArray.create([300, 2]).get_as("int16").dtype == np.int16
    with pytest.raises(DataError, match="has values that uint8 cannot hold"):
        NDArray.create([300]).get_as("uint8")
    with pytest.raises(DataError, match="has values that float16 cannot hold"):
        NDArray.create([1e9]).get_as("float16")
    with pytest.raises(WrongTypeError, match="because values would change; use numpy's astype"):
        NDArray.create([1.5]).get_as("int32")


@pytest.mark.parametrize("given", ["bfloat16", "float32", "float64", "int32"])
def test_a_finite_number_never_becomes_infinite(given: str) -> None:
    array = np.array([1, 1e6]).astype(BFLOAT16 if given == "bfloat16" else given)
    with pytest.raises(DataError, match="has values that float16 cannot hold"):
        NDArray.create(array).get_as("float16")
    if given != "int32":
        assert NDArray.create(np.array([np.inf, np.nan]).astype(array.dtype)).get_as("float16")[0] == np.inf


@pytest.mark.parametrize(
    ("value", "target", "error"),
    [
        ([[1], [2, 3]], "numpy", "different lengths"),
        (["a"], "numpy", "hold no numbers"),
        ([2**70], "numpy", "hold no numbers"),
        (typed_arrays.array("u", "ab"), "numpy", "characters"),
        (counted(2, 2), "array", r"holds one dimension .* not float32\[2, 2\]"),
        (counted(2, dtype="f2"), typed_arrays.array, "not float16"),
        (counted(2, dtype=BFLOAT16), "memoryview", "no bfloat16"),
        (counted(2, dtype=BFLOAT16), "arrow", "no bfloat16"),
        (counted(2, dtype=BFLOAT16), "dlpack", "no bfloat16"),
        (counted(2, dtype=BFLOAT16), "bfloat16 big-endian", "machine's byte order"),
        (np.array(1.0), "arrow", "at least one dimension"),
        (np.ones((2, 2), bool), "arrow", "ask for arrow-tensor"),
        (np.ones(2, bool), "arrow-tensor", "no booleans"),
        (pyarrow.array([1, None]), "numpy", "has 1 nulls"),
        (pyarrow.array(["a"]), "numpy", "is not an array of numbers"),
        (memoryview(b"ab").cast("c"), "numpy", "is not an array of numbers; cast it"),
        (counted(2), "tiff", r"No converter found from Array to 'tiff'; there are numpy, list"),
        (counted(2), dict, "No converter found from Array to 'builtins.dict'"),
        (counted(2), 5, "is converted to a class, a text"),
    ],
)
def test_an_array_that_cannot_be_converted_says_why(value: Any, target: Any, error: str) -> None:
    with pytest.raises(DataError, match=error):
        NDArray.create(value).get_as(target)


def test_an_object_that_is_no_array_is_refused() -> None:
    for value in ("text", None, {"a": 1}, object()):
        with pytest.raises(WrongTypeError, match="Unable to create NDArray from object of"):
            NDArray.create(value)


def test_whether_a_conversion_exists_can_be_asked() -> None:
    holder = NDArray.create([1.0])
    assert holder.can_get_as(np.ndarray)
    assert holder.can_get_as("arrow float32")
    assert not holder.can_get_as("tiff")
    assert not holder.can_get_as(dict)


def test_a_data_keeps_an_array_over_the_same_memory() -> None:
    """K-12."""
    arrow = pyarrow.array([1.0, 2.0])
    array = counted(2)
    data = Data({"a": NDArray.create(array), "b": arrow, "c": OnlyDLPack(array), "d": typed_arrays.array("i", [1])})
    assert data["a"] is array
    assert data["b"].ctypes.data == arrow.buffers()[1].address
    assert shares(data["c"], array)
    assert data.get_ndarray("d").tolist() == [1]
    assert Data({"list": [NDArray.create(array), counted(2)]})["list"][0] is array
    assert Data.from_bytes(data.to_bytes()) == data
    with pytest.raises(DataError, match="has 1 nulls"):
        Data({"x": pyarrow.array([1, None])})
    with pytest.raises(WrongTypeError, match="data of not supported type: object"):
        Data({"x": object()})


def test_holders_are_equal_if_type_shape_and_values_are() -> None:
    array = counted(2, 3)
    assert NDArray.create(array) == NDArray.create(pyarrow.Tensor.from_numpy(array))
    assert NDArray.create(array) == NDArray.create(array.astype(">f4"))
    assert NDArray.create(array) != NDArray.create(array.astype("f8"))
    assert NDArray.create(array) != NDArray.create(array.reshape(-1))
    assert NDArray.create(array) != array.tolist()
    assert repr(NDArray.create([1])) == "NDArray(list, list)"


@given(hnp.arrays(st.sampled_from(TYPES), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)))
def test_any_array_survives_the_canonical_form_and_lists(array: np.ndarray[Any, Any]) -> None:
    again = NDArray.create(NDArray.create(array).get_as(SerializedNDArray)).get_as(np.ndarray)
    assert again.dtype == array.dtype
    assert again.tobytes() == array.tobytes()
    if array.dtype.kind != "f" and array.size:
        assert NDArray.create(array.tolist()).get_as(ArrayFormat(dtype=array.dtype)).tobytes() == array.tobytes()


def test_tensors_of_pytorch_share_their_memory() -> None:
    torch = pytest.importorskip("torch")
    array = counted(2, 3)
    tensor = NDArray.create(array).get_as(torch.Tensor)
    assert tensor.data_ptr() == array.ctypes.data
    holder = NDArray.create(tensor)
    assert (holder.form, holder.shape) == ("torch", (2, 3))
    assert shares(holder.get_as(np.ndarray), array)
    assert holder.get_as("torch") is tensor
    assert NDArray.create(tensor.requires_grad_()).get_as(list) == array.tolist()
    # A tensor cannot be read-only, so that of a read-only array is a copy.
    frozen = NDArray.create(array[:]).get_as(SerializedNDArray).numpy()
    assert NDArray.create(frozen).get_as("torch").data_ptr() != array.ctypes.data
    assert NDArray.create(array[::-1]).get_as("torch").tolist() == array[::-1].tolist()
    half = NDArray.create(counted(3, dtype=BFLOAT16)).get_as("torch")
    assert half.dtype == torch.bfloat16
    assert NDArray.create(half).get_as(np.ndarray).dtype == BFLOAT16
    assert NDArray.create(torch.ones(2)).get_as(pyarrow.Array).to_pylist() == [1.0, 1.0]
    assert Data({"x": torch.ones(2)})["x"].tolist() == [1.0, 1.0]
    with pytest.raises(DataError, match="make it a dense one"):
        NDArray.create(torch.ones(2).to_sparse()).get_as(np.ndarray)


@pytest.mark.slow
def test_a_missing_package_is_named_with_its_extra() -> None:
    script = """
import sys
for name in ("torch", "pyarrow", "PIL", "av"):
    sys.modules[name] = None
import numpy as np
from pipelines import Data, Image, NDArray
from pipelines.errors import MissingPackageError
pixels = np.zeros((2, 2, 3), "u1")
for made, target, extra in [
    (NDArray.create([1.0]), "torch", "torch"), (NDArray.create([1.0]), "arrow", "arrow"),
    (NDArray.create([1.0]), "arrow-tensor", "arrow"), (Image(pixels), "pil", "pillow"),
    (Image(pixels), "frame", "camera"),
]:
    try:
        made.get_as(target)
    except MissingPackageError as error:
        assert f"pip install 'streamer-inference[{extra}]'" in str(error), error
    else:
        raise SystemExit(target)
assert Data({"x": NDArray.create([1.0, 2.0])})["x"].tolist() == [1.0, 2.0]
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.slow
def test_no_package_is_imported_before_an_object_of_it_is_met() -> None:
    script = """
import sys
import numpy as np
from pipelines import Data, Image, NDArray
NDArray.create([1.0]).get_as("numpy float32")
Data({"x": NDArray.create(np.zeros(3)), "i": Image(np.zeros((2, 2, 3), "u1"))})
for name in ("torch", "pyarrow", "PIL", "av", "cv2", "ml_dtypes"):
    assert name not in sys.modules, name
"""
    subprocess.run([sys.executable, "-c", script], check=True)
