"""The Open Inference Protocol over gRPC, as its clients see it."""

from __future__ import annotations

import asyncio
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as aio
from tritonclient.utils import InferenceServerException
from waiting import until

from connectors.http.endpoint.request import Answer
from protos import open_inference_pb2 as pb
from tests.connectors.http.rpc.conftest import Serve, ServedByThread

VALUES = np.arange(8, dtype=np.float32).reshape(2, 4)
INFER = "/inference.GRPCInferenceService/ModelInfer"


@pytest.fixture(scope="module")
def client(echoing: ServedByThread) -> Iterator[Any]:
    with triton.InferenceServerClient(echoing.grpc) as client:
        yield client


def inputs(values: npt.NDArray[np.float32] = VALUES) -> list[Any]:
    tensor = triton.InferInput("IN", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    return [tensor]


def raw(address: str, message: bytes = b"", method: str = INFER, **call: Any) -> bytes:
    """What a call with these bytes gets."""
    with grpc.insecure_channel(address) as channel:
        answer: bytes = channel.unary_unary(method)(message, **call)
        return answer


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def code(call: Callable[[], object]) -> str:
    """The code that Triton's client gets."""
    with pytest.raises(InferenceServerException) as caught:
        call()
    return str(caught.value.status()).removeprefix("StatusCode.")


def test_tritons_client_learns_of_server_and_models(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo", "1")
    assert client.get_server_metadata().name == "streamer"
    metadata = client.get_model_metadata("echo")
    assert (list(metadata.versions), metadata.platform) == (["1"], "streamer")
    described = [(port.name, port.datatype, list(port.shape)) for port in (*metadata.inputs, *metadata.outputs)]
    assert described == [
        ("IN", "FP32", [-1, 4]),
        ("MASK", "BOOL", [-1]),
        ("OUT", "FP32", [-1, 4]),
        ("NAME", "BYTES", [-1]),
    ]
    config = client.get_model_config("echo", as_json=True)["config"]
    assert [(port["name"], port["data_type"]) for port in config["output"]] == [
        ("OUT", "TYPE_FP32"),
        ("NAME", "TYPE_STRING"),
    ]
    (model,) = client.get_model_repository_index().models
    assert (model.name, model.version, model.state) == ("echo", "1", "READY")


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_tritons_client_gets_its_answer(client: Any, compression: str | None) -> None:
    result = client.infer("echo", inputs(), request_id="ä7", compression_algorithm=compression)
    assert result.as_numpy("OUT").tolist() == VALUES.tolist()
    assert result.get_response().id == "ä7"


def test_a_record_has_the_message_and_its_metadata(echoing: ServedByThread, client: Any) -> None:
    client.infer(
        "echo", inputs(), headers={"x-device": "d 7", "x-cut-bin": b"\xff", "inference-header-content-length": "3"}
    )
    request = echoing.requests[-1]
    headers = dict(request.headers)
    assert pb.ModelInferRequest.FromString(request.body).model_name == "echo"
    assert headers[b"content-type"] == b"application/grpc"
    assert (headers[b"x-device"], headers[b"x-cut-bin"]) == (b"d 7", b"\xff")
    assert b"inference-header-content-length" not in headers, "it would have the codec read the message as JSON"
    assert (request.protocol, request.path) == ("grpc", INFER)
    assert request.client.startswith(("127.0.0.1:", "[::1]:"))


def test_asynchronous_calls_are_answered(client: Any) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    for number in range(20):
        client.async_infer(
            "echo", inputs(VALUES + number), lambda result, error: answers.put((result, error)), request_id=str(number)
        )
    for _ in range(20):
        result, error = answers.get(timeout=10)
        assert error is None
        assert result.as_numpy("OUT")[0, 0] == int(result.get_response().id)


async def infer_by_aio(address: str) -> list[float]:
    async with aio.InferenceServerClient(address) as client:
        result = await client.infer("echo", inputs())

        async def requests() -> Any:
            yield {"model_name": "echo", "inputs": inputs(VALUES + 1)}
            yield {"model_name": "ecco", "inputs": inputs()}

        seen = [result.as_numpy("OUT")[0, 0]]
        async for answer, error in client.stream_infer(requests()):
            seen.append(-1.0 if error is not None else answer.as_numpy("OUT")[0, 0])
        return seen


def test_tritons_asyncio_client_is_answered(echoing: ServedByThread) -> None:
    assert asyncio.run(infer_by_aio(echoing.grpc)) == [0, 1, -1]


PROTOCOLS_OWN = """
import sys, grpc
from open_inference.grpc import protocol, service
stub = service.GRPCInferenceServiceStub(grpc.insecure_channel(sys.argv[1]))
request = protocol.ModelInferRequest(model_name="echo", raw_input_contents=[b"values"])
request.inputs.add(name="IN", datatype="BYTES", shape=[1])
print(stub.ServerLive(protocol.ServerLiveRequest()).live, stub.ModelInfer(request).raw_output_contents[0])
"""


def test_the_client_of_the_protocols_own_package_is_answered(echoing: ServedByThread) -> None:
    # In a process of its own: its messages have the names of those of Triton's client.
    done = subprocess.run([sys.executable, "-c", PROTOCOLS_OWN, echoing.grpc], capture_output=True, text=True)
    assert done.stdout.strip() == "True b'values'", done.stderr


def test_the_names_may_come_last_in_a_message(echoing: ServedByThread) -> None:
    body = pb.ModelInferRequest(raw_input_contents=[b"x"], id="7").SerializeToString()
    name = pb.ModelInferRequest(model_name="echo").SerializeToString()
    assert pb.ModelInferResponse.FromString(raw(echoing.grpc, body + name)).id == "7"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"\x0a\x7fabc", "in the middle"),
        (b"\x0a\x02\xff\xff", "UTF-8"),
        (b"\x0f", "wire type"),
        (b"\x3a\x00" * 10_001, "more than 10000 fields"),
    ],
)
def test_bytes_that_are_no_message_are_refused(echoing: ServedByThread, message: bytes, text: str) -> None:
    status, details = refusal(lambda: raw(echoing.grpc, message))
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert text in details


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "INVALID_ARGUMENT"),
        (413, "RESOURCE_EXHAUSTED"),
        (422, "FAILED_PRECONDITION"),
        (500, "INTERNAL"),
        (501, "UNIMPLEMENTED"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
        (599, "UNKNOWN"),
    ],
)
def test_failures_have_the_code_of_their_status(client: Any, status: int, expected: str) -> None:
    assert code(lambda: client.infer("echo", inputs(), parameters={"fail": status})) == expected


@pytest.mark.parametrize("text", ["naïve ☃ 100%\nnext line", "☃" * 5000, "a" * 20000])
def test_the_text_of_an_error_comes_whole_or_shortened(client: Any, text: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.infer("echo", inputs(), parameters={"fail": 500, "text": text})
    message = caught.value.message()
    assert message == text or (message.endswith("...") and text.startswith(message.rstrip(".")) and len(message) > 300)


def test_unknown_models_versions_and_methods_are_named(client: Any) -> None:
    for call in (client.infer, lambda name, _, version="": client.get_model_metadata(name, version)):
        with pytest.raises(InferenceServerException, match='no model "ecco"; did you mean "echo"') as caught:
            call("ecco", inputs())
        assert "NOT_FOUND" in str(caught.value.status())
        with pytest.raises(InferenceServerException, match='"echo" has no version "3"; there is 1'):
            call("echo", inputs(), "3")
    with pytest.raises(InferenceServerException, match="LogSettings is not offered here") as caught:
        client.get_log_settings()
    assert "UNIMPLEMENTED" in str(caught.value.status())


@pytest.mark.parametrize("method", ["/a.B/C", "/inference.GRPCInferenceService/Nothing", "nothing"])
def test_a_method_that_there_is_not_is_refused(echoing: ServedByThread, method: str) -> None:
    assert refusal(lambda: raw(echoing.grpc, method=method))[0] is grpc.StatusCode.UNIMPLEMENTED


def test_a_stream_is_answered_in_order_and_lives_on_after_an_error(echoing: ServedByThread) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with triton.InferenceServerClient(echoing.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(30):
            asked = {"fail": 400, "text": "☃ fails"} if number % 10 == 3 else None
            client.async_stream_infer("echo", inputs(VALUES + number), request_id=str(number), parameters=asked)
        client.async_stream_infer("none", inputs())
        for number in range(30):
            result, error = answers.get(timeout=10)
            if number % 10 == 3:
                assert error.message() == "☃ fails"
            else:
                assert error is None
                assert result.as_numpy("OUT")[0, 0] == number == int(result.get_response().id)
        assert 'no model "none"' in str(answers.get(timeout=10)[1])
        client.stop_stream()


def test_an_error_in_a_stream_names_its_request(echoing: ServedByThread) -> None:
    requests = [
        pb.ModelInferRequest(model_name="ecco", id="seven").SerializeToString(),
        b"\x0f",
        pb.ModelInferRequest(model_name="echo", id="nine").SerializeToString(),
    ]
    with grpc.insecure_channel(echoing.grpc) as channel:
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(iter(requests))
        answers = [pb.ModelStreamInferResponse.FromString(answer) for answer in stream]
    assert [answer.infer_response.id for answer in answers] == ["seven", "", "nine"]
    assert [bool(answer.error_message) for answer in answers] == [True, True, False]


def test_a_call_whose_client_goes_before_it_is_polled_is_not_run(serve: Serve) -> None:
    model = serve()
    model.polls.clear()
    time.sleep(0.05)
    with grpc.insecure_channel(model.grpc) as channel:
        message = pb.ModelInferRequest(model_name="echo").SerializeToString()
        unary = channel.unary_unary(INFER).future(message)
        ends = threading.Event()

        def requests() -> Iterator[bytes]:
            yield message
            yield message
            ends.wait(10)

        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(requests())
        until(lambda: model.inbox.waiting == 3)
        unary.cancel()
        stream.cancel()
        ends.set()
        until(lambda: model.inbox.waiting == 0)
        until(lambda: model.model.counts.cancelled == 3)
    assert model.requests == []


def test_a_call_whose_deadline_is_over_is_not_run(serve: Serve) -> None:
    model = serve()
    model.polls.clear()
    time.sleep(0.05)
    message = pb.ModelInferRequest(model_name="echo").SerializeToString()
    assert refusal(lambda: raw(model.grpc, message, timeout=0.1))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: model.inbox.waiting == 0)
    model.polls.set()
    until(lambda: model.model.counts.answered["grpc", 504] == 1)
    assert model.requests == []


def test_an_answer_that_does_not_come_in_time_is_a_deadline(serve: Serve) -> None:
    model = serve(timeout="200ms")
    with triton.InferenceServerClient(model.grpc) as client:
        assert code(lambda: client.infer("echo", inputs(), parameters={"silent": True})) == "DEADLINE_EXCEEDED"


def test_a_model_that_is_full_or_stops_is_unavailable(serve: Serve) -> None:
    model = serve(max_waiting=1)
    model.polls.clear()
    time.sleep(0.05)
    message = pb.ModelInferRequest(model_name="echo").SerializeToString()
    with grpc.insecure_channel(model.grpc) as channel:
        first = channel.unary_unary(INFER).future(message)
        until(lambda: model.inbox.waiting == 1)
        status, text = refusal(lambda: raw(model.grpc, message))
        assert (status, "too many requests" in text) == (grpc.StatusCode.UNAVAILABLE, True)
        model.inbox.refuse()
        status, text = refusal(lambda: raw(model.grpc, message))
        assert (status, "stopping" in text) == (grpc.StatusCode.UNAVAILABLE, True)
        model.polls.set()
        assert first.result(timeout=10) is not None
    assert model.model.counts.answered == {("grpc", 503): 2, ("grpc", 200): 1}


def test_a_model_that_is_not_ready_says_so_by_all_calls(serve: Serve) -> None:
    model = serve()
    model.trouble = "its broker is away"
    with triton.InferenceServerClient(model.grpc) as client:
        assert client.is_server_live()
        assert not client.is_server_ready()
        assert not client.is_model_ready("echo")
        (entry,) = client.get_model_repository_index().models
    assert (entry.state, entry.reason) == ("UNAVAILABLE", "its broker is away")
    health = "/grpc.health.v1.Health/Check"
    assert raw(model.grpc, method=health) == b"\x08\x02"
    model.trouble = None
    assert raw(model.grpc, method=health) == b"\x08\x01"
    assert raw(model.grpc, b"\x0a\x04echo", health) == b"\x08\x01"
    assert refusal(lambda: raw(model.grpc, b"\x0a\x04ecco", health))[0] is grpc.StatusCode.NOT_FOUND


def test_messages_larger_than_max_body_are_refused_compressed_or_not(serve: Serve) -> None:
    model = serve(max_body="64KiB")
    zeros = np.zeros((1, 30_000), np.float32)
    with triton.InferenceServerClient(model.grpc) as client:
        assert client.infer("echo", inputs(zeros[:, :15_000])).as_numpy("OUT").shape == (1, 15_000)
        assert code(lambda: client.infer("echo", inputs(zeros))) == "RESOURCE_EXHAUSTED"
        assert code(lambda: client.infer("echo", inputs(zeros), compression_algorithm="gzip")) == "RESOURCE_EXHAUSTED"
    assert len(model.requests) == 1


def test_konduits_predict_is_for_the_service_with_another_codec(serve: Serve) -> None:
    predict = "/ai.konduit.serving.Inference/predict"
    model = serve(lambda request: Answer(200, (), request.body[::-1]))
    status, text = refusal(lambda: raw(model.grpc, b"abc", predict))
    assert (status, "ModelInfer" in text) == (grpc.StatusCode.NOT_FOUND, True)
    model.model.codec = "protodata"
    assert raw(model.grpc, b"abc", predict) == b"cba"
    message = pb.ModelInferRequest(model_name="echo").SerializeToString()
    status, text = refusal(lambda: raw(model.grpc, message))
    assert (status, predict in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)
