"""`Data`: the keys and values that it takes and gives back, and the errors for others."""

from __future__ import annotations

import copy
import enum
import pickle

import numpy as np
import pytest

from pipelines.data import RESERVED_KEYS
from pipelines.data.data import Data, RecordContext
from pipelines.errors import DataError, ReservedKeyError, ValueNotFoundError, WrongTypeError
from pipelines.values import BoundingBox, ByteBuffer, Image, Point, TypedList, ValueType, type_of

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)
EVERY_TYPE = {
    "array": (ARRAY, ValueType.NDARRAY, "get_ndarray"),
    "string": ("s", ValueType.STRING, "get_string"),
    "bytes": (b"\x00\x01", ValueType.BYTES, "get_bytes"),
    "image": (Image(np.zeros((2, 3, 3), np.uint8)), ValueType.IMAGE, "get_image"),
    "double": (1.5, ValueType.DOUBLE, "get_double"),
    "int": (7, ValueType.INT64, "get_int64"),
    "bool": (True, ValueType.BOOLEAN, "get_boolean"),
    "box": (BoundingBox.corners(0, 1, 0, 1), ValueType.BOUNDING_BOX, "get_bounding_box"),
    "data": (Data({"a": 1}), ValueType.DATA, "get_data"),
    "list": ([1, 2], ValueType.LIST, "get_list"),
    "point": (Point([0.5]), ValueType.POINT, "get_point"),
    "buffer": (ByteBuffer(b"ab"), ValueType.BYTEBUFFER, "get_byte_buffer"),
}


class Color(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_a_value_is_kept_as_it_is_and_its_getter_gives_it_back(name: str) -> None:
    value, value_type, getter = EVERY_TYPE[name]
    data = Data({name: value})
    assert data[name] is value
    assert getattr(data, getter)(name) is value
    assert data.type(name) is value_type


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_a_getter_of_another_type_refuses_a_value_and_names_both_types(name: str) -> None:
    value, value_type, own = EVERY_TYPE[name]
    data = Data({"k": value})
    for _, requested, getter in EVERY_TYPE.values():
        if getter == own or (getter, name) in (("get_ndarray", "list"), ("get_double", "int")):
            continue
        with pytest.raises(WrongTypeError) as caught:
            getattr(data, getter)("k")
        assert str(caught.value) == (
            f'Value has wrong type for key "k": requested type {requested.name}, actual type {value_type.name}'
        )


@pytest.mark.parametrize(
    ("put", "kept"),
    [
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.int64(-3), -3),
        (np.uint8(255), 255),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.bytes_(b"x"), b"x"),
        (Color.RED, "red"),
        (Size.LARGE, 3),
        (bytearray(b"ab"), ByteBuffer(b"ab")),
        (memoryview(b"ab"), ByteBuffer(b"ab")),
        ((1, 2), [1, 2]),
        ([1, 2.5], [1.0, 2.5]),
        ([np.float32(0.5), 1], [0.5, 1.0]),
        ({"a": 1}, Data({"a": 1})),
        ([{"a": 1}, Data()], [Data({"a": 1}), Data()]),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
)
def test_close_relatives_of_a_type_become_it(put: object, kept: object) -> None:
    data = Data({"k": put})
    assert data["k"] == kept
    assert type(data["k"]) is type(kept)
    if isinstance(kept, list):
        assert [type(element) for element in data.get_list("k")] == [type(element) for element in kept]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, np.uint64(2**63), [1, 2**63], [[2**70]]])
def test_an_integer_beyond_64_bits_is_refused(value: object) -> None:
    with pytest.raises(DataError, match="does not fit in 64 bits"):
        Data({"k": value})


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_the_largest_integers_are_kept(value: int) -> None:
    assert Data({"k": value}).get_int64("k") == value


@pytest.mark.parametrize(
    "value",
    [
        None,
        1j,
        object(),
        {1, 2},
        [1, "x"],
        [True, 1],
        [None],
        [b"x", ByteBuffer(b"x")],
        np.array(["a", "b"]),
        np.array([1j]),
        np.array([object()]),
        np.array(["2020-01-01"], "datetime64[D]"),
        {1: 2},
    ],
)
def test_a_value_that_the_wire_has_no_type_for_is_refused_when_it_is_put(value: object) -> None:
    data = Data({"there": 1})
    with pytest.raises(WrongTypeError):
        data["k"] = value
    assert list(data) == ["there"]


@pytest.mark.parametrize("key", [*sorted(RESERVED_KEYS), "@METADATA", "@bytesbase64", "@X1"])
def test_a_reserved_key_is_refused_in_any_case(key: str) -> None:
    with pytest.raises(ReservedKeyError) as caught:
        Data({key: Data()})
    assert str(caught.value) == (
        f'Cannot use key "{key}" in a Data instance: This key is reserved for internal use only'
    )
    with pytest.raises(ReservedKeyError):
        Data()[key] = [BoundingBox.corners(0, 1, 0, 1)]


@pytest.mark.parametrize("key", ["", "@ImageToNDArrayStepMetadata", "label", "probability", "x1", "é", "a.b"])
def test_any_other_key_is_allowed(key: str) -> None:
    assert Data({key: 1})[key] == 1


def test_a_key_that_is_no_string_is_refused() -> None:
    with pytest.raises(WrongTypeError, match="a key of a Data is a string"):
        Data()[1] = 2  # type: ignore[index]


def test_a_missing_key_is_named_with_the_nearest_one_there_is() -> None:
    data = Data({"image": 1})
    with pytest.raises(ValueNotFoundError) as caught:
        data["imgae"]
    assert str(caught.value) == 'Value not found for key "imgae"; did you mean "image"?'
    with pytest.raises(ValueNotFoundError, match='Value not found for key "zzz"'):
        data.get_double("zzz")
    with pytest.raises(ValueNotFoundError):
        data.type("zzz")
    with pytest.raises(ValueNotFoundError):
        del data["zzz"]
    with pytest.raises(KeyError):
        data.pop("zzz")


def test_data_is_a_mapping_that_keeps_the_order_of_insertion() -> None:
    data = Data([("b", 1), ("a", 2)])
    data["c"] = 3
    data["b"] = 4
    assert list(data.items()) == [("b", 4), ("a", 2), ("c", 3)]
    assert len(data) == 3
    assert "a" in data
    assert data.get("x", 9) == 9
    assert data.pop("a") == 2
    assert list(data) == ["b", "c"]


def test_the_type_of_a_list_is_that_of_its_elements() -> None:
    data = Data({"i": [1], "s": ["x"], "none": [], "strings": TypedList(ValueType.STRING), "x": 1})
    assert data.list_type("i") is ValueType.INT64
    assert data.list_type("s") is ValueType.STRING
    assert data.list_type("none") is ValueType.NONE
    assert data.list_type("strings") is ValueType.STRING
    with pytest.raises(ValueNotFoundError):
        data.list_type("x")


def test_a_list_can_be_asked_for_by_element_type() -> None:
    data = Data({"i": [1], "empty": TypedList(ValueType.STRING)})
    assert data.get_list("i", ValueType.INT64) == [1]
    assert data.get_list("empty", ValueType.DOUBLE) == []
    with pytest.raises(WrongTypeError, match="requested list of DOUBLE, actual list of INT64"):
        data.get_list("i", ValueType.DOUBLE)


def test_nested_lists_of_numbers_are_given_as_a_float32_array() -> None:
    data = Data({"k": [[1, 2.5], [3, 4]], "flat": [1, 2, 3]})
    array = data.get_ndarray("k")
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, np.array([[1, 2.5], [3, 4]], np.float32))
    assert data.get_ndarray("flat").shape == (3,)
    assert data.type("k") is ValueType.LIST


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ([], DataError, "Empty or zero sized arrays are not accepted!"),
        ([[]], DataError, "Empty or zero sized arrays are not accepted!"),
        (["x"], WrongTypeError, "Can't convert type STRING to an NDArray"),
        ([[1.0], ["x"]], WrongTypeError, "Can't convert type STRING to an NDArray"),
        ([True], WrongTypeError, "Can't convert type BOOLEAN to an NDArray"),
        ([[1, 2], [3]], DataError, "different lengths"),
        ([[1, 2], [[3], [4]]], DataError, "different lengths"),
        ([1.0, 1e300], DataError, 'key "k" has a number that float32 cannot hold'),
        ([[1.0], [-1e39]], DataError, "float32 cannot hold"),
    ],
)
def test_a_list_that_makes_no_array_says_why(value: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Data({"k": value}).get_ndarray("k")


@pytest.mark.parametrize("value", [30, 0, -(2**63), 2**53, 2**53 + 2, 2**62])
def test_an_integer_is_given_as_a_double_and_stays_an_integer(value: int) -> None:
    data = Data({"t": value})
    found = data.get_double("t")
    assert type(found) is float
    assert found == value
    assert data.type("t") is ValueType.INT64


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**63 - 1])
def test_an_integer_that_would_lose_digits_is_no_double(value: int) -> None:
    with pytest.raises(DataError, match=f'{value} of key "t" is not a DOUBLE: it would lose digits'):
        Data({"t": value}).get_double("t")


def test_a_list_of_infinities_is_an_array_of_infinities() -> None:
    assert Data({"k": [float("inf"), 1.0]}).get_ndarray("k").tolist() == [np.inf, 1.0]


def test_merge_takes_the_entries_over_and_no_metadata() -> None:
    data = Data({"a": 1}, metadata={"m": 1})
    data.merge(Data({"b": 2}, metadata={"m": 2}), Data({"c": 3}))
    assert dict(data) == {"a": 1, "b": 2, "c": 3}
    assert data.metadata == Data({"m": 1})


def test_merge_overwrites_only_if_it_may() -> None:
    data = Data({"a": 1})
    with pytest.raises(DataError) as caught:
        data.merge(Data({"b": 2}), Data({"a": 3}))
    assert str(caught.value) == ('Error during merging: Data instance already has key "a" and allowOverwrite is false')
    assert dict(data) == {"a": 1, "b": 2}
    data.merge(Data({"a": 3}), allow_overwrite=True)
    assert data["a"] == 3


@pytest.mark.parametrize("copied", [Data.copy, copy.copy])
def test_a_copy_keeps_metadata_and_record_and_is_independent(copied: object) -> None:
    record = RecordContext("kafka", "t", 1, 2)
    data = Data({"x": ARRAY}, metadata={"m": 1}, record=record)
    other = copied(data)  # type: ignore[operator]
    other["y"] = 1
    other.metadata["n"] = 2
    assert other["x"] is data["x"]
    assert other.record is record
    assert list(data) == ["x"]
    assert data.metadata is not None
    assert list(data.metadata) == ["m"]


def test_data_can_be_pickled_with_all_its_values() -> None:
    data = Data({name: value for name, (value, _, _) in EVERY_TYPE.items()}, metadata={"m": 1})
    data["empty"] = TypedList(ValueType.POINT)
    other = pickle.loads(pickle.dumps(data))
    assert other == data
    assert other.metadata == data.metadata
    assert other.list_type("empty") is ValueType.POINT


def test_equality_ignores_order_metadata_and_record() -> None:
    a = Data({"x": ARRAY, "n": [1.0, float("nan")]}, metadata={"m": 1}, record=RecordContext("s", "t"))
    b = Data({"n": [1.0, float("nan")], "x": ARRAY.copy()})
    assert a == b


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 1.0),
        (1, True),
        (b"a", ByteBuffer(b"a")),
        (1, 2),
        ([1], [1.0]),
        ([1], [1, 1]),
        (ARRAY, ARRAY.astype(np.float64)),
        (ARRAY, ARRAY.reshape(3, 2)),
        (ARRAY, ARRAY + 1),
        (Point([0.5]), Point([0.5, 0.5])),
        (Data({"a": 1}), Data({"a": 2})),
    ],
)
def test_values_of_another_type_shape_or_content_are_not_equal(a: object, b: object) -> None:
    assert Data({"k": a}) != Data({"k": b})
    assert Data({"k": a}) == Data({"k": a})


def test_equality_looks_at_every_key_after_a_byte_buffer() -> None:
    assert Data({"a": ByteBuffer(b"x"), "b": 1}) != Data({"a": ByteBuffer(b"x"), "b": 2})


def test_arrays_of_the_other_byte_order_are_equal_by_value() -> None:
    assert Data({"k": ARRAY}) == Data({"k": ARRAY.astype(">f4")})


def test_the_record_is_read_only() -> None:
    data = Data(record=RecordContext("kafka", "t", 0, 5, b"k", (("h", b"v"),), 17))
    with pytest.raises(AttributeError):
        data.record = None  # type: ignore[misc]
    assert data.record is not None
    with pytest.raises(AttributeError):
        data.record.offset = 6  # type: ignore[misc]


def test_a_notebook_shows_a_table_with_escaped_text() -> None:
    page = Data({"<k>": "<script>", "d": {"inner": 1}}, metadata={"m": 1})._repr_html_()
    assert "&lt;k&gt;" in page
    assert "<script>" not in page
    assert "inner" in page
    assert "metadata" in page


def test_the_repr_of_data_is_short_for_large_values() -> None:
    text = repr(Data({"x": np.zeros((1000, 1000)), "s": "x" * 1000, "l": list(range(1000))}))
    assert "float64[1000, 1000]" in text
    assert "list of 1000 INT64" in text
    assert len(text) < 300


def test_only_values_of_a_data_have_a_type() -> None:
    assert type_of(Color.RED) is ValueType.STRING
    with pytest.raises(WrongTypeError):
        type_of(None)
