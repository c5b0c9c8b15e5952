"""String tensors: padded and written in place, collected and packed, over foreign memory, in streams."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import tensors
from pipelines.errors import DataError, WireError, WrongTypeError
from pipelines.tensors import BoundsError, ReadOnlyError, at, incl, index
from pipelines.tensors.strings import WritableStrings

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def test_a_string_tensor_says_rank_and_sizes() -> None:
    """T-01."""
    tensor = tensors.strings([["in the town", "where I was"], ["born", ""]])
    assert (tensor.rank, tensor.shape, tensor.total_size, tensor.size(1)) == (2, (2, 2), 4, 2)
    assert tensor.get(0, 1) == "where I was"
    assert tensors.strings("alone").get() == "alone"
    assert tensors.strings([]).shape == (0,)


def test_strings_are_sliced_as_numbers_are() -> None:
    """T-07."""
    tensor = tensors.strings([["a", "b", "c"], ["d", "e", "f"]])
    assert tensor.slice(np.array(1)).to_list() == ["d", "e", "f"]
    assert tensor.slice(index.all(), at(0)).to_list() == ["a", "d"]
    assert list(tensor.stream(index.all(), incl(2, 0))) == ["c", "a", "f", "d"]
    assert [list(row.scalars()) for row in tensor.elements()] == [["a", "b", "c"], ["d", "e", "f"]]


def test_padded_strings_are_written_where_they_stay() -> None:
    """T-12."""
    memory = bytearray(12)
    tensor = tensors.dense_string([3], lambda data: data.put("abcd", 0).put("é", 2), length=4, out=memory)
    assert memory == b"abcd\0\0\0\0\xc3\xa9\0\0"
    assert tensor.to_list() == ["abcd", "", "é"]
    assert tensor.get_bytes(2) == b"\xc3\xa9"
    assert tensor.fixed == (4, 0)
    memory[4:6] = b"xy"
    assert tensor.get(1) == "xy"


def test_a_string_longer_than_the_padded_length_is_refused() -> None:
    """T-12."""

    def put(value: str | bytes, data: WritableStrings) -> None:
        data.put(value, 0)

    for value in ("abcde", "ééé", b"12345"):
        with pytest.raises(DataError, match="4 is the length of these strings"):
            tensors.dense_string([1], partial(put, value), length=4)
    with pytest.raises(DataError, match="ends with the padding"):
        tensors.dense_string([1], lambda data: data.put("ab ", 0), length=4, padding=32)
    for length, padding in [(0, 0), (4, 256), (4, -1)]:
        with pytest.raises(DataError):
            tensors.dense_string([1], lambda data: None, length=length, padding=padding)


def test_padding_is_any_byte() -> None:
    """T-12."""
    tensor = tensors.dense_string([2, 1], lambda data: data.copy_from([["ab"], ["a\0"]]), length=3, padding=0x20)
    assert tensor.to_list() == [["ab"], ["a\0"]]
    assert tensors.string_view(b"ab--c---", [2], 4, padding=ord("-")).to_list() == ["ab", "c"]
    assert tensors.string_view(b"??abcd", [2], 2, offset=2).to_list() == ["ab", "cd"]
    with pytest.raises(BoundsError):
        tensors.string_view(b"abc", [2], 2)


def test_strings_of_any_length_are_collected_first() -> None:
    """T-12."""

    def init(data: tensors.WritableStrings) -> None:
        data.put("a first one", 0, 0)
        data.put("replaced", 0, 0)
        data.elements().get()
        data.slice(1).scalars().put("x").put(b"yz")

    tensor = tensors.dense_string([2, 2], init)
    assert tensor.to_list() == [["replaced", ""], ["x", "yz"]]
    assert tensor.fixed is None
    with pytest.raises(DataError, match="give a length"):
        tensors.dense_string([2], lambda data: None, out=bytearray(9))


def test_a_complete_tensor_is_read_only() -> None:
    """T-12."""
    kept: list[Any] = []
    for length in (None, 4):
        tensor = tensors.dense_string([1], kept.append, length=length)
        with pytest.raises(ReadOnlyError):
            kept[-1].put("a", 0)
        with pytest.raises(ReadOnlyError, match=r"has no put\(\)"):
            tensor.put("a", 0)  # type: ignore[attr-defined]


def test_an_initialiser_that_raises_gives_no_tensor() -> None:
    """T-12."""
    for length in (None, 4):
        with pytest.raises(ZeroDivisionError):
            tensors.dense_string([1], lambda data: 1 // 0, length=length)


def test_packed_strings_of_arrow_are_read_where_they_are() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    arrow = pyarrow.array(["x", "", "ünïcode"], pyarrow.large_string())
    _, offsets, content = arrow.buffers()
    tensor = tensors.packed_strings(np.frombuffer(offsets, np.int64)[:4], content)
    assert tensor.to_list() == ["x", "", "ünïcode"]
    assert tensors.packed_strings(np.array([0, 1, 1, 3, 4]), b"abcd", [2, 2]).to_list() == [["a", ""], ["bc", "d"]]


@pytest.mark.parametrize(
    ("offsets", "shape"),
    [([0, 3, 2], None), ([0, 5], None), ([-1, 2], None), ([], None), ([0, 1, 2], [3]), ([0, 1, 2], [2, 2])],
)
def test_offsets_that_do_not_fit_are_refused(offsets: list[int], shape: list[int] | None) -> None:
    with pytest.raises(DataError):
        tensors.packed_strings(np.array(offsets, np.int64), b"abcd", shape)


@pytest.mark.parametrize(
    "values",
    [["a", 1], [["a"], ["b", "c"]], ["a", ["b"]], [None], 5, np.zeros(3), ["\ud800"]],
    ids=["number", "lengths", "depths", "null", "no list", "numbers", "half a character"],
)
def test_values_that_are_no_tensor_of_strings_are_refused(values: Any) -> None:
    with pytest.raises(DataError):
        tensors.strings(values)


def test_bytes_that_are_no_text_are_given_as_bytes_only() -> None:
    tensor = tensors.strings([b"\xff\xfe", "ok"])
    assert tensor.get_bytes(0) == b"\xff\xfe"
    with pytest.raises(DataError, match="is not valid UTF-8"):
        tensor.get(0)
    assert tensor.get(1) == "ok"


def test_numpys_own_string_arrays_are_taken() -> None:
    assert tensors.strings(np.array([["a", "bc"]])).to_list() == [["a", "bc"]]
    assert tensors.strings(np.array([b"a"])).to_list() == ["a"]
    with pytest.raises(WrongTypeError, match="takes str and bytes"):
        tensors.strings(np.array([1, "a"], object))


@pytest.mark.parametrize("form", ["modified-utf8", "lines"])
@given(values=st.lists(texts.filter(lambda text: "\n" not in text and "\r" not in text), max_size=5))
@pytest.mark.slow
def test_strings_go_through_a_stream_and_back(form: Any, values: list[str]) -> None:
    """T-20."""
    stream = io.BytesIO()
    tensors.strings(values).dump(stream, form)
    stream.seek(0)
    assert tensors.read_strings(stream, form).to_list() == values


def test_a_stream_of_java_strings_is_a_tensor_of_rank_1() -> None:
    # As java.io.DataOutputStream.writeUTF writes them.
    """T-20."""
    raw = b"\0\x0bin the town\0\x0bwhere I was\0\x04born"
    tensor = tensors.read_strings(io.BytesIO(raw))
    assert (tensor.rank, tensor.size(0), tensor.get(2)) == (1, 3, "born")
    # NUL is two bytes, and a character beyond 65,535 two times three.
    odd = tensors.read_strings(io.BytesIO(b"\0\x08\xc0\x80\xed\xa0\xbd\xed\xb8\x80"))
    assert odd.to_list() == ["\0\N{GRINNING FACE}"]


@pytest.mark.parametrize("raw", [b"\0", b"\0\x04bor", b"\0\x01\xff", b"\0\x03\xed\xa0\xbd"])
def test_a_broken_stream_of_strings_is_an_error(raw: bytes) -> None:
    """T-20."""
    with pytest.raises(WireError):
        tensors.read_strings(io.BytesIO(raw))


@pytest.mark.slow
def test_streams_have_limits() -> None:
    """T-20."""
    with pytest.raises(WireError, match="more than 2 strings"):
        tensors.read_strings(io.BytesIO(b"a\nb\nc\n"), "lines", most=2)
    with pytest.raises(WireError, match="is not valid UTF-8"):
        tensors.read_strings(io.BytesIO(b"\xff\n"), "lines")
    with pytest.raises(DataError, match="65535 is the longest"):
        tensors.strings(["x" * 70_000]).dump(io.BytesIO())
    with pytest.raises(DataError, match="more than one line"):
        tensors.strings(["a\nb"]).dump(io.BytesIO(), "lines")
