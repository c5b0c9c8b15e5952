"""Any `Data` survives both forms, and no message, however broken, does more than raise `WireError`."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from examples import examples
from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.errors import WireError
from pipelines.hotpath import HotPath
from pipelines.values import BoundingBox, ByteBuffer, Image, Point, ValueType
from pipelines.wire.columns import decode_columns, encode_columns
from pipelines.wire.json import loads
from pipelines.wire.protobuf import decode
from protos import data_pb2 as pb

PNG = Image(np.zeros((2, 3, 3), np.uint8)).get_as("png")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = texts.filter(lambda key: not key.startswith("@"))
integers = st.integers(-(2**63), 2**63 - 1)
# A DOUBLE that is not finite comes back from JSON as a STRING: tests of its own show that.
floats = st.floats(allow_nan=False, allow_infinity=False)
probabilities = st.none() | st.floats(0, 1)
arrays = hnp.arrays(
    st.one_of(
        hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes(sizes=(16, 32, 64)), st.just("?")
    ),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
# Protobuf cannot tell a box with an empty label from one without, nor a point without from one with an empty one.
boxes = st.builds(
    lambda make, numbers, label, probability: make(*numbers, label or None, probability),
    st.sampled_from([BoundingBox.center, BoundingBox.corners]),
    st.tuples(floats, floats, floats, floats).filter(lambda numbers: max(map(abs, numbers)) < 1e300),
    texts,
    probabilities,
)
points = st.builds(Point, st.lists(floats, min_size=1, max_size=4), texts, probabilities)
plain = [
    texts,
    integers,
    floats,
    st.booleans(),
    st.binary(max_size=8),
    st.binary(max_size=8).map(ByteBuffer),
    arrays,
    st.just(Image(PNG)),
    boxes,
    points,
]


def containers(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    nested = st.dictionaries(keys, values, max_size=3).map(Data)
    lists = st.one_of([st.lists(kind, max_size=3) for kind in plain])
    return st.one_of(nested, lists, st.lists(nested, max_size=2), st.lists(lists, max_size=2))


values = st.recursive(st.one_of(plain), containers, max_leaves=8)
datas = st.builds(
    lambda entries, metadata: Data(entries, metadata=metadata or None),
    st.dictionaries(keys, values, max_size=4),
    st.dictionaries(keys, values, max_size=2),
)


@pytest.mark.slow
@given(datas)
@settings(max_examples=examples(150))
def test_any_data_survives_protobuf(data: Data) -> None:
    again = decode(data.to_bytes())
    assert again == data
    assert again.metadata == data.metadata
    assert again.to_bytes() == data.to_bytes()


@pytest.mark.slow
@given(datas, st.booleans())
@settings(max_examples=examples(100))
def test_any_data_survives_columns_decoded_or_not(hot_path: HotPath, data: Data, wanted: bool) -> None:
    messages = [data.to_bytes()] * 2
    found = decode_columns(messages, frozenset(data) if wanted else None)
    batch = Batch(found.columns, 2, rows=found.rows, metadata=found.metadata)
    for message in encode_columns(batch).messages:
        again = decode(message or b"")
        assert again == data
        assert again.metadata == data.metadata
    assert batch.to_list() == [data, data]


@pytest.mark.slow
@given(datas, st.sampled_from(["big", "little"]), st.booleans())
@settings(max_examples=examples(150))
def test_any_data_survives_json(data: Data, byte_order: Any, pretty: bool) -> None:
    again = Data.from_json(data.to_json(byte_order, pretty=pretty), byte_order)
    assert again == data
    assert again.metadata == data.metadata
    assert list(again) == list(data)


FULL = Data(
    {
        "s": "text",
        "i": -1,
        "d": 1.5,
        "b": True,
        "y": b"bytes",
        "x": np.arange(6, dtype=np.float32).reshape(2, 3),
        "box": BoundingBox.center(0.5, 0.5, 1, 1, "cat", 0.5),
        "p": Point([0.5, 0.5], "nose"),
        "n": Data({"a": [1, 2]}, metadata={"m": 1}),
        "l": [np.zeros(2, np.int16)],
        "ll": [[1.5], ["a"]],
        "img": Image(PNG),
    },
    metadata={"m": "meta"},
)
MESSAGE = FULL.to_bytes()
TEXT = FULL.to_json().encode()

edits = st.lists(
    st.tuples(
        st.sampled_from(["replace", "insert", "delete", "repeat"]),
        st.integers(0, 10_000),
        st.binary(min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=4,
)


def edited(payload: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    for kind, position, content in changes:
        at = position % (len(payload) + 1)
        if kind == "replace":
            payload = payload[:at] + content + payload[at + len(content) :]
        elif kind == "insert":
            payload = payload[:at] + content + payload[at:]
        elif kind == "delete":
            payload = payload[:at] + payload[at + len(content) :]
        else:
            payload = payload[: at + 20] + payload[at:]
    return payload


def check_against_protobuf(payload: bytes) -> None:
    """Our reader gives what protobuf's own parser found, or `WireError`; and what it gives can be written again."""
    try:
        data = decode(payload)
    except WireError:
        return
    message = pb.DataMap.FromString(payload)
    assert set(data) <= set(message.mapItems)
    for key, value in data.items():
        scheme = message.mapItems[key]
        assert data.type(key) == ValueType(scheme.type)
        if data.type(key) in (ValueType.STRING, ValueType.INT64, ValueType.BOOLEAN, ValueType.BYTES):
            assert value == getattr(scheme, scheme.WhichOneof("value"))
        elif data.type(key) is ValueType.DOUBLE:
            assert value == scheme.doubleValue or math.isnan(value)
        elif data.type(key) is ValueType.NDARRAY:
            assert list(value.shape) == list(scheme.ndValue.shape)
            assert value.dtype == np.bool_ or scheme.ndValue.array[0].startswith(value.tobytes())
    try:
        data.to_bytes()
        data.to_json()
    except WireError:
        # An image whose bytes were changed into another format may not be decodable.
        return


@pytest.mark.slow
@given(edits)
@settings(max_examples=examples(400))
def test_a_changed_message_is_an_error_or_what_protobuf_reads(changes: list[tuple[str, int, bytes]]) -> None:
    check_against_protobuf(edited(MESSAGE, changes))


def test_a_message_cut_short_is_an_error_or_what_protobuf_reads() -> None:
    for end in range(len(MESSAGE)):
        check_against_protobuf(MESSAGE[:end])


@given(st.binary(max_size=64))
@settings(max_examples=examples(200))
def test_random_bytes_are_an_error_or_what_protobuf_reads(payload: bytes) -> None:
    check_against_protobuf(payload)


@pytest.mark.slow
@given(edits)
@settings(max_examples=examples(400))
def test_a_changed_json_text_is_an_error_or_a_data(changes: list[tuple[str, int, bytes]]) -> None:
    check_json(edited(TEXT, changes))


def test_a_json_text_cut_short_is_an_error() -> None:
    for end in range(0, len(TEXT), 3):
        check_json(TEXT[:end])


own_keys = ["@BytesBase64", "@BytesArray", "@ByteBufferBase64", "@NDArrayType", "@NDArrayShape", "@NDArrayDataBase64"]
own_keys += ["@ImageData", "@ImageFormat", "@cx", "@cy", "@x1", "@Coords", "coords", "label", "@Metadata", "k"]
leaves: list[Any] = [None, True, 0, -1, 2**63, 0.5, 1e308, "", "AAEC", "FLOAT", "NaN", "PNG", "\u00e9"]
json_values = st.recursive(
    st.sampled_from(leaves),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(own_keys), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["a", "@Metadata", "@metadata"]), json_values, max_size=2))
@settings(max_examples=examples(200))
def test_objects_with_the_formats_own_keys_are_an_error_or_a_data(plain: dict[str, Any]) -> None:
    check_json(json.dumps(plain).encode())


def check_json(text: bytes) -> None:
    try:
        data = loads(text)
    except WireError:
        return
    try:
        again = loads(data.to_json())
    except WireError:
        return
    assert set(again) == set(data)
