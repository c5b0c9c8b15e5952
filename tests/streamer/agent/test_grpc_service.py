"""A service that is asked over gRPC by Triton's client, which nothing of ours has changed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import pipelines
import streamer
from pipelines import Data
from tests.streamer.agent.test_http_service import source_of

Array = npt.NDArray[Any]


def passed_on(data: Data) -> Data:
    if "bad" in data and data["bad"].max() > 0:
        raise RuntimeError("☃ is bad")
    return Data({"same": data["x"], "size": np.array([np.size(data["x"])])})


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    service = streamer.Service(
        name="same",
        source={"type": "http", "listen": "127.0.0.1:0", "grpc": "127.0.0.1:0"},
        sink={"type": "http"},
        pipeline=pipelines.Sequence([passed_on]),
    )
    with service:
        bound = source_of(service).grpc_address
        assert bound is not None
        yield f"127.0.0.1:{bound[1]}"


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Any]:
    with triton.InferenceServerClient(address) as client:
        yield client


def tensor(name: str, array: Array) -> Any:
    made = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    made.set_data_from_numpy(array)
    return made


ARRAYS: list[Array] = [
    np.array([[True, False]]),
    *(
        np.array([[np.iinfo(kind).min, np.iinfo(kind).max]], kind)
        for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    ),
    np.array([[1.5, np.inf]], np.float16),
    np.array([[1e-45, np.nan]], np.float32),
    np.array([[0.1, -0.0]], np.float64),
    np.array([["ä☃".encode(), b"", b"\xff\x00"]], np.object_),
    np.zeros((1, 0), np.float32),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{array.size}")
def test_arrays_of_every_datatype_come_back_as_they_were(client: Any, array: Array) -> None:
    same = client.infer("same", [tensor("x", array)]).as_numpy("same")
    assert (same.dtype, same.shape) == (array.dtype, array.shape)
    assert same.tolist() == array.tolist() if array.dtype == object else same.tobytes() == array.tobytes()


def test_a_request_gets_the_outputs_that_it_names_and_its_id(client: Any) -> None:
    array = np.ones((2, 3), np.float32)
    wanted = [triton.InferRequestedOutput("size"), triton.InferRequestedOutput("same")]
    answer = client.infer("same", [tensor("x", array)], request_id="ä", outputs=wanted, compression_algorithm="gzip")
    assert [output.name for output in answer.get_response().outputs] == ["size", "same"]
    assert (answer.get_response().id, answer.as_numpy("size").tolist()) == ("ä", [6])
    only = client.infer("same", [tensor("x", array)], outputs=wanted[1:]).get_response()
    assert [output.name for output in only.outputs] == ["same"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "code", "text"),
    [
        ({"bad": np.ones(1, np.float32), "x": np.ones(1, np.float32)}, [], "INTERNAL", "RuntimeError: ☃ is bad"),
        ({"y": np.ones(1, np.float32)}, [], "INVALID_ARGUMENT", '"x"'),
        ({"x": np.ones(1, np.float32)}, ["none"], "INVALID_ARGUMENT", '"none"'),
    ],
)
def test_what_was_wrong_with_a_request_is_said(
    client: Any, inputs: dict[str, Array], outputs: list[str], code: str, text: str
) -> None:
    tensors = [tensor(name, array) for name, array in inputs.items()]
    with pytest.raises(InferenceServerException) as caught:
        client.infer("same", tensors, outputs=[triton.InferRequestedOutput(name) for name in outputs])
    assert code in str(caught.value.status())
    assert text in caught.value.message()


def test_requests_at_the_same_time_get_their_results(client: Any) -> None:
    def asked(number: int) -> bool:
        array = np.full((1 + number % 3, 4), number, np.int32)
        same = client.infer("same", [tensor("x", array)]).as_numpy("same")
        return bool(np.array_equal(same, array))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(asked, range(100)))
