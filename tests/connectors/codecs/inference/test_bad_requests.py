"""What a request gets that is not well-formed, or that the model does not take: an error that says so, and no more."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from connectors.codecs.inference import wire
from connectors.codecs.inference.errors import NotOfferedError
from connectors.codecs.inference.wire import HEADER_LENGTH
from pipelines.executors.ports import Ports
from pipelines.runners.models.model import Port

VALUES = list(range(16))
X: dict[str, Any] = {"name": "INPUT0", "shape": [1, 16], "datatype": "INT32", "data": VALUES}
Y = {**X, "name": "INPUT1"}
SOUND = json.dumps({"inputs": [X, Y]}).encode()
TAKES = "INPUT0 INT32 [-1, 16]"
GRPC = [("Content-Type", b"application/grpc")]


def inputs(*tensors: Any, **rest: Any) -> bytes:
    return json.dumps({"inputs": tensors, **rest}).encode()


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"7", "not a JSON object"),
        (b"{}", 'no "inputs"'),
        (b"\xff", "not valid JSON"),
        (b'{"inputs": 7}', "not a list"),
        (b'{"inputs": [7]}', "other than an object"),
        (b'{"inputs": [{}]}', "an input has no name"),
        (b'{"inputs": []}', f'input "INPUT0" is missing; the model takes {TAKES}, INPUT1 INT32 [-1, 16]'),
        (inputs(X), 'input "INPUT1" is missing'),
        (inputs(X, Y, {**X, "name": "INPUT2"}), 'input "INPUT2": the model has no such input; did you mean'),
        (inputs(X, Y, {**X, "name": "@type"}), "reserved"),
        (inputs(X, X, Y), 'input "INPUT0" is there more than once'),
        (inputs({**X, "datatype": "FP32"}, Y), f'input "INPUT0" is FP32, and the model takes {TAKES}'),
        (inputs({**X, "datatype": "int32"}, Y), "input \"INPUT0\": the datatype 'int32' is none of BOOL"),
        (inputs({**X, "datatype": 7}, Y), 'input "INPUT0": the datatype'),
        (inputs({**X, "shape": [16]}, Y), f'input "INPUT0" has the shape [16], and the model takes {TAKES}'),
        (inputs({**X, "shape": [1, 1, 16]}, Y), "the shape [1, 1, 16]"),
        (inputs({**X, "shape": [2, 8]}, Y), "the shape [2, 8]"),
        (inputs({**X, "data": VALUES[1:]}, Y), "has 16 values by its shape [1, 16], and its data hold 15"),
        (inputs({**X, "data": [*VALUES, 1, 2]}, Y), "its data hold 18"),
        (inputs({**X, "data": [[1], [2, 3]]}, Y), "lists of different lengths or depths"),
        (inputs({**X, "data": [[1], 2]}, Y), "lists of different lengths or depths"),
        (inputs({**X, "data": [*VALUES[1:], 1.5]}, Y), 'input "INPUT0" is INT32, and its data hold a number with a f'),
        (inputs({**X, "data": [*VALUES[1:], None]}, Y), "its data hold null"),
        (inputs({**X, "data": [*VALUES[1:], True]}, Y), "its data hold a boolean"),
        (inputs({**X, "data": [*VALUES[1:], "1"]}, Y), "its data hold a text"),
        (inputs({**X, "data": [*VALUES[1:], {}]}, Y), "its data hold an object"),
        (inputs({**X, "data": [*VALUES[1:], 2**31]}, Y), "its data hold a number beyond that range"),
        (inputs({**X, "data": {}}, Y), "its data are not a list"),
        (inputs({**X, "shape": [2, -5]}, Y), 'input "INPUT0": the shape [2, -5] holds a length below 0'),
        (inputs({**X, "shape": [16, 2**60 + 2]}, Y), "[16, 1152921504606846978], and the model takes"),
        (inputs({**X, "shape": [1.0, 16]}, Y), "holds 1.0, which is no whole number"),
        (inputs({**X, "shape": ["1", 16]}, Y), "holds '1', which is no whole number"),
        (inputs({**X, "shape": [True, 16]}, Y), "no whole number"),
        (inputs({**X, "shape": 16}, Y), "no list of lengths"),
        (inputs({**X, "shape": [1] * 31}, Y), "31 axes"),
        (inputs({key: X[key] for key in ("name", "datatype", "data")}, Y), 'input "INPUT0" has no shape'),
        (inputs({key: X[key] for key in ("name", "shape", "data")}, Y), 'input "INPUT0" has no datatype'),
        (inputs({key: X[key] for key in ("name", "shape", "datatype")}, Y), "neither data nor binary_data_size"),
        (inputs({**X, "parameters": {"binary_data_size": 64}}, Y), "both data and binary_data_size"),
        (inputs({**X, "parameters": 7}, Y), "are no object"),
        (inputs(X, Y, id=7), 'the "id" is no text'),
        (inputs(X, Y, parameters={"a": []}), 'the parameter "a" of the request is no text'),
        (inputs(X, Y, parameters={"a": 2**64}), "the parameters of the request"),
        (inputs(X, Y, parameters={"binary_data_output": 1}), "neither true nor false"),
        (inputs(X, Y, parameters={"sequence_id": 7}), "requests in a sequence are not offered"),
        (inputs(X, Y, parameters={"sequence_start": True}), "requests in a sequence are not offered"),
        (inputs(X, Y, outputs=7), "not a list of outputs"),
        (inputs(X, Y, outputs=[{"name": "OUTPUT0"}] * 2), 'output "OUTPUT0" is asked for more than once'),
        (inputs(X, Y, outputs=[{"name": "OUTPUT7"}]), "no such output; did you mean"),
        (inputs(X, Y, deep=[*[[]] * 3]).replace(b"[[], [], []]", b"[" * 120 + b"]" * 120), "more than 100 levels deep"),
        (b"[" * 250_000, "100 levels deep"),
        (b'{"inputs":' * 250_000, "100 levels deep"),
        (inputs({**X, "data": 7}, Y).replace(b"7", b"[" * 120 + b"]" * 120), "more than 100 levels deep"),
        (inputs({**X, "data": 7}, Y).replace(b"7", b"[NaN]"), "NaN and Infinity, can be sent as a binary tensor"),
        (inputs({**X, "data": 7}, Y).replace(b"7", b"[-Infinity]"), "can be sent as a binary tensor"),
    ],
)
def test_a_request_in_json_is_refused_with_a_text_that_says_why(simple: Any, request_: bytes, text: str) -> None:
    error = simple.error(request_, SOUND)
    assert error.startswith("WireError: ")
    assert text in error


def test_what_there_is_not_here_is_refused_as_such_and_not_ignored(simple: Any) -> None:
    classified = inputs(X, Y, outputs=[{"name": "OUTPUT0", "parameters": {"classification": 2}}])
    shared = inputs({**X, "parameters": {"shared_memory_region": "r"}}, Y)
    for request, text in ((classified, "classification is not offered"), (shared, "shared memory is not offered")):
        error = simple.error(request, SOUND)
        assert error.startswith(NotOfferedError.__name__)
        assert text in error


def test_values_beyond_a_datatype_are_refused_and_never_wrapped_or_rounded_to_infinity(identity: Any) -> None:
    for datatype, value in (
        ("UINT8", -1),
        ("UINT8", 256),
        ("INT8", -129),
        ("UINT64", 2**64),
        ("UINT64", -1),
        ("INT64", 2**63),
        ("FP16", 65520),
        ("FP32", 1e39),
        ("FP64", 10**400),
        ("BF16", 3.4e38),
        ("FP32", "1"),
        ("FP32", True),
        ("BOOL", 1),
        ("BYTES", 1),
    ):
        tensor = {"name": "x", "shape": [1], "datatype": datatype, "data": [value]}
        assert f'input "x" is {datatype}, and its data hold' in identity.error(inputs(tensor), inputs())


def test_binary_sizes_have_to_add_up(simple: Any) -> None:
    raw = np.arange(16, dtype=np.int32).tobytes()
    head = {"name": "INPUT0", "shape": [1, 16], "datatype": "INT32"}

    def sized(size: Any, *parts: bytes) -> tuple[bytes, Any]:
        request: tuple[bytes, Any] = simple.binary(
            {"inputs": [{**head, "parameters": {"binary_data_size": size}}, Y]}, *parts
        )
        return request

    for request, text in (
        (sized(64), "would be 64 bytes by binary_data_size, and 0 bytes follow"),
        (sized(64, raw, b"x"), "and 65 bytes follow"),
        (sized(60, raw[:60]), "INT32 [1, 16], which are 64 bytes, not 60"),
        (sized(-1, raw), "no number of bytes"),
        (sized("64", raw), "no number of bytes"),
        (sized(2**70, raw), "which are 64 bytes, not"),
    ):
        assert text in simple.error(request, SOUND)
    for length in (b"-1", b"abc", b"", b"1.5", b"99999999999", b"9" * 5000, b"\xb2", None):
        error = simple.error((SOUND, [(HEADER_LENGTH, length)]), SOUND)
        assert HEADER_LENGTH in error


def test_elements_of_bytes_have_to_lie_within_their_tensor(identity: Any) -> None:
    head = {"name": "x", "shape": [2], "datatype": "BYTES"}
    for raw, text in (
        (b"\x01\x00\x00\x00a\xff\xff\xff\xff", "element 1 has 4294967295 bytes by its length, and 0 are left"),
        (b"\x04\x00\x00\x00abcd", "its bytes hold 1"),
        (b"\x00" * 9, "and 1 bytes more than these"),
        (b"\x00" * 7, "are 8 bytes or more"),
    ):
        tensor = {**head, "parameters": {"binary_data_size": len(raw)}}
        error = identity.error(identity.binary({"inputs": [tensor]}, raw), inputs())
        assert error.startswith('WireError: input "x"')
        assert text in error


def test_hostile_shapes_allocate_nothing(identity: Any) -> None:
    shapes = [[2**40], [4, 2**60 + 2], [2**62, 4], [2**63], [0, 2**62], [2**40, 0], [10**30]]
    tracemalloc.start()
    try:
        for shape in shapes:
            for datatype in ("FP32", "BYTES"):
                head = {"name": "x", "shape": shape, "datatype": datatype}
                assert 'input "x"' in identity.error(inputs({**head, "data": []}), inputs())
                sized = {**head, "parameters": {"binary_data_size": 0}}
                assert 'input "x"' in identity.error(identity.binary({"inputs": [sized]}), inputs())
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_bytes_alone_are_the_only_input_of_a_model_that_says_its_shape(serving: Callable[[Ports], Any]) -> None:
    def given(*ports: tuple[type, tuple[int | None, ...]]) -> Any:
        dtypes = (Port(f"x{at}", np.dtype(dtype), shape) for at, (dtype, shape) in enumerate(ports))
        return serving(Ports(tuple(dtypes)))

    def raw(data: bytes) -> tuple[bytes, Any]:
        return data, [(HEADER_LENGTH, b"0")]

    for count in (8, 32):
        values = np.arange(count, dtype=np.float32)
        for shape in ((None, None), (None, count), (None,), (1, None)):
            asked = given((np.float32, shape))
            encoded = asked.answer(raw(values.tobytes()))
            (_, (_, length)) = encoded.headers[0]
            read = wire.read_answer(encoded.values[0], int(length))["x0"]
            assert read.shape == ((1, count) if len(shape) == 2 else (count,))
            assert read.reshape(-1).tolist() == values.tolist()
    texts = given((object, (None, 1)))
    assert texts.read(raw(b"427")).batch.to_list()[0]["x0"] == [["427"]]
    sound = inputs({"name": "x0", "shape": [1, 1], "datatype": "FP32", "data": [1]})
    assert "which are 4 bytes" in given((np.float32, (None, 1))).error(raw(b"abc"), sound)
    two_lengths = given((np.float32, (None, None, None)))
    assert "cannot say" in two_lengths.error(raw(b"abcd"), sound.replace(b"[1, 1]", b"[1, 1, 1]"))
    two_inputs = given((np.float32, (None, 1)), (np.float32, (None, 1)))
    both = json.loads(sound)["inputs"] * 2
    both[1] = {**both[1], "name": "x1"}
    assert "a model with one input" in two_inputs.error(raw(b"abcd"), inputs(*both))


def test_messages_of_grpc_are_refused_with_the_same_texts(simple: Any) -> None:
    good = {"INPUT0": np.zeros((1, 16), np.int32), "INPUT1": np.zeros((1, 16), np.int32)}
    whole = wire.write_message("simple", good)
    for message, text in (
        (b"", 'input "INPUT0" is missing'),
        (wire.write_message("simple", {"INPUT0": good["INPUT0"]}), 'input "INPUT1" is missing'),
        (wire.write_message("simple", {**good, "INPUT0": np.zeros((1, 16))}), f"is FP64, and the model takes {TAKES}"),
        (wire.write_message("simple", good, outputs=["OUTPUT7"]), "no such output"),
        (wire.write_message("simple", good, parameters={"sequence_id": 3}), "requests in a sequence"),
        (whole[:-1], "in the middle of a field"),
        (whole[:-66], "2 inputs and 1 raw_input_contents"),
        (whole + b"\x3a\x00", "2 inputs and 3 raw_input_contents"),
        (b"\xff" * 64, "more than 64 bits"),
        (b"\x0a\x01\xff", "not UTF-8"),
        (b"{}", "the message"),
    ):
        assert text in simple.error((message, GRPC), SOUND), text


def test_a_payload_beyond_the_limit_is_refused(simple: Any) -> None:
    assert "at most" in simple.error(SOUND + b" " * (64 << 20), SOUND)
