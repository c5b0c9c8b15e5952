"""Requests as a client writes them, and answers as it reads them: what `tritonclient` makes of the same."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from connectors.codecs.inference import grpcmessage, wire
from connectors.codecs.inference.message import Parameters
from pipelines.errors import WireError

TENSORS: dict[str, Any] = {
    "bool": np.array([[True, False]]),
    "uint64": np.array([2**64 - 1], np.uint64),
    "int64": np.array([-(2**63)]),
    "int8": np.array([[-128], [127]], np.int8),
    "fp16": np.array([1.5], np.float16),
    "fp32": np.array([1e-45, 0.1], np.float32),
    "fp64": np.array([0.1]),
    "bf16": np.array([1.5, -3.0], ml_dtypes.bfloat16),
    "text": np.array([["hä", ""]], object),
    "empty": np.zeros((2, 0, 3), np.float32),
}


def as_answer(body: bytes, header_length: int | None) -> tuple[bytes, int | None]:
    """The answer of a model that gives back what it gets."""
    cut = len(body) if header_length is None else header_length
    document = json.loads(body[:cut])
    header = json.dumps({"model_name": "identity", "outputs": document["inputs"]}).encode()
    return header + body[cut:], None if header_length is None else len(header)


def same(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert list(left) == list(right)
    for key, array in left.items():
        assert array.dtype == right[key].dtype, key
        assert array.shape == right[key].shape, key
        assert array.tolist() == right[key].tolist(), key


@pytest.mark.parametrize("binary", [True, False])
def test_all_datatypes_come_back_as_they_were_sent(binary: bool) -> None:
    body, length = wire.write_request(TENSORS, binary=binary)
    assert (length is None) is not binary
    same(wire.read_answer(*as_answer(body, length)), TENSORS)


def test_triton_s_client_reads_the_binary_tensors_that_are_sent() -> None:
    triton = pytest.importorskip("tritonclient.http")
    body, length = wire.write_request(TENSORS)
    result = triton.InferResult.from_response_body(*_of(as_answer(body, length)))
    for key, array in TENSORS.items():
        read = result.as_numpy(key)
        expected = [[element.encode() for element in row] for row in array] if key == "text" else array.tolist()
        assert read.tolist() == expected


def _of(answer: tuple[bytes, int | None]) -> tuple[bytes, bool, int | None]:
    return answer[0], False, answer[1]


def test_grpc_s_message_is_the_one_of_triton_s_client() -> None:
    grpc = pytest.importorskip("tritonclient.grpc")
    parameters: Parameters = {"a": 1, "b": -1, "c": True, "d": 0.5, "e": "x", "f": 2**63}
    written = wire.write_message("m", TENSORS, version="1", id="7", outputs=["o"], parameters=parameters)
    message = grpc.service_pb2.ModelInferRequest.FromString(written)
    assert (message.model_name, message.model_version, message.id) == ("m", "1", "7")
    assert [(tensor.name, list(tensor.shape)) for tensor in message.inputs] == [
        (key, list(array.shape)) for key, array in TENSORS.items()
    ]
    kinds = {key: value.WhichOneof("parameter_choice") for key, value in message.parameters.items()}
    assert kinds == {
        "a": "int64_param",
        "b": "int64_param",
        "c": "bool_param",
        "d": "double_param",
        "e": "string_param",
        "f": "uint64_param",
    }
    assert grpcmessage.read_request(message.SerializeToString())[0].parameters == parameters
    answer = grpc.service_pb2.ModelInferResponse(model_name="m")
    for entry, raw in zip(message.inputs, message.raw_input_contents, strict=True):
        answer.outputs.add(name=entry.name, datatype=entry.datatype, shape=entry.shape)
        answer.raw_output_contents.append(raw)
    same(wire.read_message(answer.SerializeToString()), TENSORS)


def test_bytes_that_are_no_text_come_back_as_bytes() -> None:
    body, length = wire.write_request({"raw": np.array([b"\xff", b""], object)})
    assert wire.read_answer(*as_answer(body, length))["raw"].tolist() == [b"\xff", b""]


def test_numbers_that_json_does_not_have_are_an_error_that_says_how_to_send_them() -> None:
    with pytest.raises(WireError, match="binary data can carry them"):
        wire.write_request({"x": np.array([np.nan])}, binary=False)


def test_an_error_of_the_server_is_raised_with_its_text() -> None:
    with pytest.raises(WireError, match=r"^there is no model$"):
        wire.read_answer(b'{"error": "there is no model"}')
