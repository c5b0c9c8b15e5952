"""Requests in all forms become rows, and results become the answers that they asked for."""

from __future__ import annotations

import gzip
import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import pipelines
from connectors.codec import Decoded, RecordsOrigin
from connectors.codecs.compressed import CompressedConfig
from connectors.codecs.guarded import Guarded
from connectors.codecs.inference import wire
from connectors.codecs.inference.codec import Inference
from connectors.codecs.inference.config import InferenceConfig
from connectors.codecs.inference.wire import HEADER_LENGTH
from connectors.records import Lane, Records, Span
from pipelines import Batch, Data
from pipelines.data.columns import DenseColumn, RaggedColumn
from pipelines.errors import WireError
from protos import open_inference_pb2 as pb

GRPC = [("content-type", b"application/grpc")]
DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]


def inputs(*tensors: Any, **rest: Any) -> bytes:
    return json.dumps({"inputs": tensors, **rest}).encode()


def tensor(name: str, values: Any, datatype: str = "FP32") -> dict[str, Any]:
    return {"name": name, "shape": list(np.shape(values)), "datatype": datatype, "data": values}


def forms(values: dict[str, Any], *, finite: bool = True) -> list[tuple[bytes, Any]]:
    """A request with these values in each form."""
    binary, length = wire.write_request(values)
    requests: list[tuple[bytes, Any]] = [
        (binary, [(HEADER_LENGTH, b"%d" % (length or 0))]),
        (wire.write_message("m", values), GRPC),
    ]
    if finite:
        requests.append((wire.write_request(values, binary=False)[0], None))
    return requests


def read(value: bytes, headers: Any) -> dict[str, Any]:
    """An answer in any form."""
    named = dict(headers)
    if named["content-type"] == b"application/grpc":
        return wire.read_message(value)
    length = named.get(HEADER_LENGTH)
    return wire.read_answer(value, None if length is None else int(length))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_arrays_of_all_datatypes_come_back_bit_by_bit(identity: Any, data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    shape = data.draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    sent: list[Any] = []
    requests: list[Any] = []
    for _ in range(data.draw(st.integers(1, 3))):
        array = data.draw(arrays.arrays(dtype, shape))
        added = forms({"x": array}, finite=bool(np.isfinite(array).all()))
        sent += [array] * len(added)
        requests += added
    answers = identity.answer(*requests)
    assert not answers.failed or not all(np.isfinite(array).all() for array in sent)
    for row, array in enumerate(sent):
        got = read(answers.values[row], answers.headers[row])["x"]
        assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arrays.arrays(object, arrays.array_shapes(max_dims=2, min_side=0, max_side=3), elements=st.text(max_size=4)))
def test_texts_come_back_as_they_were_sent(identity: Any, texts: Any) -> None:
    answers = identity.answer(*forms({"x": texts}))
    for value, headers in zip(answers.values, answers.headers, strict=True):
        got = read(value, headers)["x"]
        assert got.tolist() == texts.tolist()
        # An axis of length 0 hides those inside of it.
        assert got.shape == texts.shape or texts.shape[0] == 0


def test_bfloat16_and_bytes_that_are_no_text_come_back(identity: Any) -> None:
    values = {"h": np.array([[1.5, -3e38]], ml_dtypes.bfloat16), "raw": np.array([b"\xff", b""], object)}
    answers = identity.answer(*forms(values, finite=False), inputs(tensor("h", [1.5, 1.00390625], "BF16")))
    for value, headers in zip(answers.values[:2], answers.headers[:2], strict=True):
        got = read(value, headers)
        assert got["h"].dtype == ml_dtypes.bfloat16
        assert got["h"].tobytes() == values["h"].tobytes()
        assert got["raw"].tolist() == [b"\xff", b""]
    assert json.loads(answers.values[2])["outputs"][0]["data"] == [1.5, 1.0]


def test_nan_comes_back_in_binary_and_is_an_error_in_json(identity: Any) -> None:
    for request in forms({"x": np.array([[np.nan, np.inf]], np.float32)}, finite=False):
        answers = identity.answer((request[0].replace(b"binary_data_output", b"another_parameter_"), request[1]))
        if request[1] == GRPC:
            assert np.isnan(read(answers.values[0], answers.headers[0])["x"][0, 0])
        else:
            assert 'output "x" has NaN or infinite numbers' in str(answers.failed[0])
            assert "binary data can carry them" in str(answers.failed[0])
    texts = np.array([b"\xff"], object)
    body, length = wire.write_request({"x": texts}, binary_outputs=False)
    assert "no UTF-8" in str(identity.answer((body, [(HEADER_LENGTH, b"%d" % (length or 0))])).failed[0])


def test_requests_of_one_shape_are_one_array_and_others_keep_theirs(identity: Any) -> None:
    def column(*values: Any) -> Any:
        requests = [form for value in values for form in forms({"x": np.array(value, np.float32)})]
        return identity.read(*requests).batch.column("x")

    equal = column([[1, 2]], [[3, 4]])
    assert isinstance(equal, DenseColumn)
    assert equal.array.shape == (6, 1, 2)
    assert equal.array.tolist() == [[[1, 2]]] * 3 + [[[3, 4]]] * 3
    samples = column([[1, 2]], [[3, 4], [5, 6]])
    assert isinstance(samples, RaggedColumn)
    assert [value.tolist() for value in samples.values()] == [[[1, 2]]] * 3 + [[[3, 4], [5, 6]]] * 3
    assert [value.shape for value in column([[1, 2]], [1, 2, 3]).values()] == [(1, 2)] * 3 + [(3,)] * 3
    mixed = identity.read(inputs(tensor("x", [1.0])), inputs(tensor("x", [1], "INT8")), inputs(tensor("y", [2.0])))
    assert [sorted(row) for row in mixed.batch.to_list()] == [["x"], ["x"], ["y"]]
    assert [row["x"].dtype for row in mixed.batch.to_list()[:2]] == [np.float32, np.int8]


def test_one_request_s_array_is_the_memory_of_its_body_where_it_is_aligned(identity: Any) -> None:
    array = np.arange(4, dtype=np.float32)
    for padding in range(8):
        body, length = wire.write_request({"x": array}, parameters={"pad": "x" * padding})
        got = identity.read((body, [(HEADER_LENGTH, b"%d" % (length or 0))])).batch["x"].array
        assert got.flags.aligned
        assert not got.flags.writeable
        assert got.tolist() == [array.tolist()]
        place = np.frombuffer(body, np.uint8)[length:]
        if place.ctypes.data % 4 == 0:
            assert np.shares_memory(got, place)


def test_samples_of_each_request_are_counted(identity: Any) -> None:
    requests = [inputs(tensor("x", values)) for values in ([[1.0]], [[1.0], [2.0]], [], [[1.0]] * 5)]
    assert identity.read(*requests, b"{", requests[1]).samples.tolist() == [1, 2, 1, 5, 2]


def test_flat_and_nested_data_are_the_same_and_the_shape_is_kept(identity: Any) -> None:
    flat = {"name": "x", "shape": [2, 2], "datatype": "INT64", "data": [1, 2, 3, 4]}
    nested = {**flat, "data": [[1, 2], [3, 4]]}
    for given_tensor in (flat, nested):
        assert identity.json(inputs(given_tensor))["outputs"] == [flat]
    deep = inputs({"name": "x", "shape": [1], "datatype": "INT64", "data": 7}).replace(
        b"7", b"[" * 50 + b"7" + b"]" * 50
    )
    assert identity.json(deep)["outputs"][0]["data"] == [7]


def test_an_answer_names_the_model_and_repeats_the_id(identity: Any) -> None:
    answer = identity.json(inputs(tensor("x", [0.1]), id="42", model_name="ignored", more={"unknown": [1]}))
    assert list(answer) == ["model_name", "model_version", "id", "outputs"]
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("identity", "1", "42")
    assert answer["outputs"] == [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0.1]}]
    assert "id" not in identity.json(inputs(tensor("x", [0.1])))


def test_null_is_as_good_as_nothing(identity: Any) -> None:
    null = {**tensor("x", [1.0]), "parameters": {"content_type": None}}
    request = inputs(null, id=None, outputs=None, parameters={"priority": None})
    assert identity.read(request).batch.to_list()[0].metadata is None
    assert len(identity.json(request)["outputs"]) == 1


@pytest.mark.parametrize("content_type", [b"text/plain", b"application/octet-stream", b"application/json", None])
def test_any_content_type_is_accepted(identity: Any, content_type: bytes | None) -> None:
    assert identity.json((inputs(tensor("x", [1.0])), [("Content-Type", content_type)]))["outputs"]


def test_outputs_are_those_asked_for_in_that_order(identity: Any) -> None:
    three = [tensor(name, [1.0]) for name in "abc"]
    for asked in (["c", "a"], ["b"], ["a", "b", "c"]):
        answer = identity.json(inputs(*three, outputs=[{"name": name} for name in asked]))
        assert [output["name"] for output in answer["outputs"]] == asked
        message = wire.write_message("m", {name: np.zeros(1) for name in "abc"}, outputs=asked)
        answers = identity.answer((message, GRPC))
        assert list(wire.read_message(answers.values[0])) == asked
    assert len(identity.json(inputs(*three, outputs=[]))["outputs"]) == 3
    failed = identity.answer(inputs(*three, outputs=[{"name": "d"}])).failed
    assert str(failed[0]) == 'the result has no output "d"; it has a, b, c'


@pytest.mark.parametrize("everywhere", [True, False, None])
@pytest.mark.parametrize("single", [True, False, None])
def test_what_is_said_of_one_output_counts_more_than_what_is_said_of_all(
    identity: Any, everywhere: bool | None, single: bool | None
) -> None:
    output = {"name": "a"} if single is None else {"name": "a", "parameters": {"binary_data": single}}
    parameters = {} if everywhere is None else {"binary_data_output": everywhere}
    request = inputs(tensor("a", [1.0]), tensor("b", [2.0]), outputs=[output, {"name": "b"}], parameters=parameters)
    answers = identity.answer(request)
    headers = dict(answers.headers[0])
    length = headers.get(HEADER_LENGTH)
    text = answers.values[0][: None if length is None else int(length)]
    is_binary = ["data" not in entry for entry in json.loads(text)["outputs"]]
    assert is_binary == [bool(everywhere if single is None else single), bool(everywhere)]
    assert headers["content-type"] == (b"application/octet-stream" if any(is_binary) else b"application/json")
    assert read(answers.values[0], answers.headers[0]) == {"a": np.array([1.0]), "b": np.array([2.0])}


def test_inputs_may_be_binary_and_json_in_one_request(identity: Any) -> None:
    raw = {"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}
    request = identity.binary(
        {"inputs": [tensor("a", [7.0]), raw, tensor("b", ["t"], "BYTES")]}, np.float32(2).tobytes()
    )
    outputs = identity.json(request)["outputs"]
    assert [(output["name"], output["data"]) for output in outputs] == [("a", [7.0]), ("x", [2.0]), ("b", ["t"])]


def test_parameters_are_the_metadata_of_the_record(identity: Any) -> None:
    message = pb.ModelInferRequest(model_name="m")
    message.parameters["b"].bool_param = True
    message.parameters["i"].int64_param = -5
    message.parameters["s"].string_param = "t"
    message.parameters["d"].double_param = 0.5
    message.parameters["u"].uint64_param = 7
    message.inputs.add(name="x", datatype="FP32", shape=[0]).contents.SetInParent()
    plain = inputs(tensor("x", []), parameters={"b": True, "i": -5, "s": "t", "d": 0.5, "u": 7, "sequence_id": 0})
    rows = identity.read(plain, (message.SerializeToString(), GRPC), inputs(tensor("x", []))).batch.to_list()
    assert [row.metadata for row in rows] == [Data({"b": True, "i": -5, "s": "t", "d": 0.5, "u": 7})] * 2 + [None]
    assert all(list(row) == ["x"] for row in rows)


DTYPE_OF = {"FP32": np.float32, "UINT64": np.uint64}
CONTENTS: dict[str, tuple[str, list[Any]]] = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-(2**15), 2**15 - 1]),
    "INT32": ("int_contents", [-(2**31), 2**31 - 1]),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1]),
    "UINT8": ("uint_contents", [0, 255]),
    "UINT16": ("uint_contents", [0, 2**16 - 1]),
    "UINT32": ("uint_contents", [0, 2**32 - 1]),
    "UINT64": ("uint64_contents", [0, 2**64 - 1]),
    "FP32": ("fp32_contents", [0.5, -1e-45]),
    "FP64": ("fp64_contents", [0.1, -5e-324]),
    "BYTES": ("bytes_contents", [b"h\xc3\xa4", b""]),
}


@pytest.mark.parametrize("datatype", CONTENTS)
def test_typed_contents_of_grpc_are_those_of_raw_ones(identity: Any, datatype: str) -> None:
    field, values = CONTENTS[datatype]
    message = pb.ModelInferRequest(model_name="m", model_version="1", id="7")
    entry = message.inputs.add(name="x", datatype=datatype, shape=[2, 1])
    getattr(entry.contents, field).extend(values)
    answers = identity.answer((message.SerializeToString(), GRPC))
    answer = pb.ModelInferResponse.FromString(answers.values[0])
    assert (answer.model_name, answer.model_version, answer.id) == ("m", "1", "7")
    assert [(output.name, output.datatype, list(output.shape)) for output in answer.outputs] == [
        ("x", datatype, [2, 1])
    ]
    assert not answer.outputs[0].HasField("contents")
    got = wire.read_message(answers.values[0])["x"].reshape(-1).tolist()
    assert got == (["hä", ""] if datatype == "BYTES" else np.array(values, DTYPE_OF.get(datatype)).tolist())


def test_contents_of_grpc_that_do_not_fit_are_refused(identity: Any) -> None:
    def message(datatype: str, raw: bytes | None = None, **contents: Any) -> tuple[bytes, Any]:
        request = pb.ModelInferRequest(model_name="m")
        entry = request.inputs.add(name="x", datatype=datatype, shape=[2])
        for field, values in contents.items():
            getattr(entry.contents, field).extend(values)
        if raw is not None:
            request.raw_input_contents.append(raw)
        return request.SerializeToString(), GRPC

    for request, text in (
        (message("FP32", bytes(8), fp32_contents=[1, 2]), "raw_input_contents besides"),
        (message("FP32", bytes(7)), "which are 8 bytes, not 7"),
        (message("FP16", fp32_contents=[1, 2]), "which only raw_input_contents can hold"),
        (message("BF16"), "which only raw_input_contents can hold"),
        (message("FP32", fp64_contents=[1, 2]), "whose contents are fp32_contents, not fp64_contents"),
        (message("FP32", fp32_contents=[1]), "its data hold 1"),
        (message("INT8", int_contents=[1, 128]), "beyond that range"),
        (message("INT32", int_contents=[1]), "its data hold 1"),
        (message("BYTES", bytes_contents=[b"a"]), "its data hold 1"),
    ):
        assert text in identity.error(request, inputs(tensor("x", [1.0])))


def test_fields_of_a_message_may_come_in_any_order_split_and_with_others_between(identity: Any) -> None:
    request = pb.ModelInferRequest(model_name="m", id="7")
    request.inputs.add(name="x", datatype="INT32", shape=[3]).contents.int_contents.extend([1, -2, 3])
    message = request.SerializeToString()
    # Field 99 as a number, as bytes, of both fixed widths and as a group; the id twice, the last of which counts.
    others = b"\x98\x06\x05\x9a\x06\x01a\x99\x06" + bytes(8) + b"\x9d\x06" + bytes(4)
    others += b"\x9b\x06\x08\x01\x9c\x06"
    parts = [message[:3], message[3:6], message[6:]]
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        shuffled = b"\x1a\x011" + others.join(parts[at] for at in order) + others
        answers = identity.answer((shuffled, GRPC))
        answer = pb.ModelInferResponse.FromString(answers.values[0])
        assert (answer.model_name, answer.id) == ("m", "7")
        assert wire.read_message(answers.values[0])["x"].tolist() == [1, -2, 3]
    unpacked = b"\x2a\x12\x0a\x01x\x12\x05INT32\x18\x02\x2a\x04\x10\x01\x10\x05"
    assert wire.read_message(identity.answer((unpacked, GRPC)).values[0])["x"].tolist() == [1, 5]


def test_asks_go_with_their_rows_and_not_with_their_places(identity: Any) -> None:
    def request(name: str, at: int) -> bytes:
        return inputs(tensor("x", [float(at)]), id=name)

    decoded = identity.read(b"{", request("a", 0), None, request("b", 1), request("c", 2))
    assert list(decoded.failed) == [100]
    assert decoded.batch.rows.tolist() == [101, 103, 104]
    batch = Batch.concat([decoded.batch.take([2]), decoded.batch.take([0, 1])])
    answers = [json.loads(value) for value in identity.codec.encode(batch).values]
    assert [(answer["id"], answer["outputs"][0]["data"]) for answer in answers] == [
        ("c", [2.0]),
        ("a", [0.0]),
        ("b", [1.0]),
    ]


@pytest.mark.usefixtures("hot_path")
def test_results_of_other_records_have_the_form_that_the_sink_says() -> None:
    values = Data({"n": 7, "f": 0.5, "t": True, "s": "hä", "b": b"x", "l": [1, 2], "m": [[0.5, 1]], "w": ["a", "b"]})
    values["none"] = np.zeros((2, 0))
    expected: dict[str, tuple[str, list[int]]] = {
        "n": ("INT64", [1]),
        "f": ("FP64", [1]),
        "t": ("BOOL", [1]),
        "s": ("BYTES", [1]),
        "b": ("BYTES", [1]),
        "l": ("INT64", [2]),
        "m": ("FP64", [1, 2]),
        "w": ("BYTES", [2]),
        "none": ("FP64", [2, 0]),
    }
    for form in ("json", "binary", "grpc"):
        for rows in ([values], [values, Data({"n": 1})]):
            encoded = InferenceConfig(form=form, model="fan").build().encode(Batch.of(rows))
            assert not encoded.failed
            assert encoded.headers is not None
            assert list(read(encoded.values[0], encoded.headers[0])) == list(expected)
            if form == "json":
                answer = json.loads(encoded.values[0])
                assert answer["model_name"] == "fan"
                assert {entry["name"]: (entry["datatype"], entry["shape"]) for entry in answer["outputs"]} == expected
    for value, text in (
        (pipelines.Image(np.zeros((1, 1, 3), np.uint8)), 'output "x" is of type IMAGE, which is no tensor'),
        ([[1], [2, 3]], "different lengths"),
        ([pipelines.Point([1, 2])], "of type LIST"),
    ):
        encoded = InferenceConfig().build().encode(Batch.of([Data({"x": value}), Data({"x": 1})]))
        assert list(encoded.failed) == [0]
        assert text in str(encoded.failed[0])


def test_an_answer_on_a_topic_has_no_headers_that_described_the_request(identity: Any) -> None:
    body, length = wire.write_request({"x": np.zeros(1)})
    headers = [(HEADER_LENGTH, b"%d" % (length or 0)), ("Content-Type", b"x"), ("trace", b"1")]
    origin = identity.read((body, headers)).batch.origin
    assert isinstance(origin, RecordsOrigin)
    context = origin.record(100)
    assert context is not None
    assert context.headers == (("trace", b"1"),)


def test_a_compressed_request_on_a_topic_gets_the_answer_that_it_asks_for(block: Any) -> None:
    codec = CompressedConfig(codec="inference", by="headers").build()
    body, length = wire.write_request({"x": np.zeros((3, 1))}, id="7")
    headers = [("content-encoding", b"gzip"), (HEADER_LENGTH, b"%d" % (length or 0)), ("trace", b"1")]
    decoded = codec.decode(block([gzip.compress(body)], [headers]), None)
    assert decoded.samples is not None
    assert decoded.samples.tolist() == [3]
    origin = decoded.batch.origin
    assert isinstance(origin, RecordsOrigin)
    context = origin.record(0)
    assert context is not None
    assert context.headers == (("trace", b"1"),)
    encoded = codec.encode(decoded.batch)
    assert encoded.headers is not None
    assert b'"id":"7"' in gzip.decompress(encoded.values[0])
    assert HEADER_LENGTH in dict(encoded.headers[0])


def test_answers_of_another_server_are_read_like_requests(identity: Any) -> None:
    answer = {"model_name": "other", "id": "3", "outputs": [tensor("y", [0.5])]}
    assert identity.json(json.dumps(answer).encode())["outputs"] == [tensor("y", [0.5])]


def test_failures_are_answered_with_their_text(identity: Any) -> None:
    batch = Batch.of([Data({"error": "no fan", "step": "classify"})])
    encoded = identity.codec.encode_failures(batch)
    assert json.loads(encoded.values[0]) == {"error": "no fan", "step": "classify"}
    assert encoded.headers == [(("content-type", b"application/json"),)]


def test_requests_that_differ_in_ids_and_data_alone_are_kept_apart(identity: Any) -> None:
    """What the last requests said besides these is remembered, in all forms; a list is no number of values."""
    sent = [np.array([[value, 0.5]], np.float32) for value in (1, 2, 3)]
    requests: list[Any] = []
    for at, array in enumerate(sent * 2):
        body, length = wire.write_request({"x": array}, id=f"b{at}")
        requests += [
            (wire.write_message("m", {"x": array}, id=f"m{at}"), GRPC),
            (body, [(HEADER_LENGTH, b"%d" % (length or 0))]),
            wire.write_request({"x": array}, id=f"j{at}", binary=False)[0],
        ]
    answers = identity.answer(*requests)
    for row, (value, headers) in enumerate(zip(answers.values, answers.headers, strict=True)):
        assert read(value, headers)["x"].tolist() == sent[row // 3 % 3].tolist()
        asked = f"{'mbj'[row % 3]}{row // 3}"
        assert asked.encode() in value
    counted = inputs({"name": "x", "shape": [1, 2], "datatype": "FP32", "data": 2}, id="")
    assert "its data are not a list" in identity.error(counted, requests[2])


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("FP32", "[1e-45, 3.4028235e38, 0.1, -0.0, -0, 16777217, 123456789012345678, 1E+2, 7.038531e-26]"),
        ("FP64", "[5e-324, 1.7976931348623157e308, 0.1, -0.0, -0, 9007199254740993, 1e-400, 12345678901234567890123]"),
        ("INT64", "[-9223372036854775808, 9223372036854775807, -0, 0]"),
        ("UINT64", "[18446744073709551615, 0]"),
        ("INT8", "[ -128 ,127\t,\r\n0 ]"),
        ("BOOL", "[[true],[ false ]]"),
    ],
)
def test_numbers_in_json_are_read_as_numpy_makes_them_of_python_s(identity: Any, datatype: str, data: str) -> None:
    values = json.loads(data)
    request = inputs({"name": "x", "shape": list(np.shape(values)), "datatype": datatype, "data": 0})
    array = identity.read(request.replace(b'"data": 0', b'"data": ' + data.encode())).batch["x"].array[0]
    expected = np.array(values, {"BOOL": "?", "FP32": "f4", "FP64": "f8"}.get(datatype, datatype.lower()))
    assert (array.dtype, array.tobytes()) == (expected.dtype, expected.tobytes())


def test_each_answer_keeps_what_its_request_asked_though_another_breaks_the_codec() -> None:
    class Breaks(Inference):
        def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
            if b"broken" in records.values:
                raise RuntimeError("broken")
            return super().decode(records, wanted, first)

    codec = Guarded(Breaks(), "inference")
    values = [inputs(tensor("x", [[float(at)]]), id=f"r{at}") for at in range(5)]
    for fault in (False, True):
        given = [*values[:2], b"broken", *values[2:]]
        faults = {2: WireError("no record")} if fault else {}
        spans = [Span(Lane("bus", "0", 0), 0, 6)]
        records = Records("bus", given, None, np.arange(6), spans, ["t"], [0], 0, faults=faults)
        decoded = codec.decode(records, None, 100)
        assert list(decoded.failed) == [102]
        assert [json.loads(value)["id"] for value in codec.encode(decoded.batch).values] == [
            f"r{at}" for at in range(5)
        ]
