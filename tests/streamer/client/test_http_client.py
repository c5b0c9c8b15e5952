"""`streamer.Client` over HTTP: what users give, what is sent, and what they get."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from v2server import METADATA, Reply, V2Server, reply, v2_server

import streamer
from pipelines import Data
from pipelines.errors import DataError, DefinitionError
from streamer.client.errors import RequestError, RequestTimeout

IMAGE = np.arange(4, dtype=np.float32)


@pytest.fixture
def v2() -> Iterator[V2Server]:
    with v2_server() as server:
        yield server


@pytest.fixture
def client(v2: V2Server) -> Iterator[streamer.Client]:
    with streamer.Client(v2.url, "digits", timeout=5) as made:
        yield made


def test_a_sample_without_the_axis_of_samples_has_a_result_without_it(client: streamer.Client) -> None:
    result = client(image=IMAGE, label="cat")
    assert isinstance(result, Data)
    assert result["doubled"].tolist() == [0, 2, 4, 6]
    assert result["label"] == "cat"


def test_several_samples_of_a_record_have_several_results(client: streamer.Client) -> None:
    result = client({"image": np.stack([IMAGE, IMAGE + 1])}, label=np.array(["a", "b"]))
    assert result["doubled"].tolist() == [[0, 2, 4, 6], [2, 4, 6, 8]]
    assert result["label"] == ["a", "b"]
    assert client(image=IMAGE[None], label=["a"])["doubled"].shape == (1, 4)


def test_tensors_go_as_bytes_and_only_asked_outputs_come(v2: V2Server) -> None:
    with streamer.Client(v2.url, "digits", outputs=["doubled"], token="secret") as client:
        assert [*client(image=IMAGE, label="")] == ["doubled"]
    sent = v2.asked[-1]
    assert sent.document["parameters"] == {"binary_data_output": True}
    assert sent.document["outputs"] == [{"name": "doubled"}]
    assert sent.document["inputs"][0] == {
        "name": "image",
        "shape": [1, 4],
        "datatype": "FP32",
        "parameters": {"binary_data_size": 16},
    }
    assert {one.headers["authorization"] for one in v2.asked} == {"Bearer secret"}


def test_lists_and_wider_floats_are_sent_as_what_the_model_takes(client: streamer.Client, v2: V2Server) -> None:
    assert client(image=[0, 1, 2, 3], label="")["doubled"].dtype == np.float32
    client(image=np.arange(4, dtype=np.float64), label="")
    assert [one.document["inputs"][0]["datatype"] for one in v2.asked[-2:]] == ["FP32", "FP32"]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (
            {"imgae": IMAGE, "label": ""},
            ('has no input "imgae"; it takes "image" float32 [?, 4]', 'did you mean "image"?'),
        ),
        ({"image": IMAGE}, ('needs the input "label"', '"image" was given')),
        ({"image": IMAGE[:3], "label": ""}, ("takes float32 [?, 4]", "float32 [3]", "length 4")),
        ({"image": np.zeros((1, 1, 4), "f4"), "label": ""}, ("float32 [1, 1, 4]", "2 or 1 dimensions")),
        ({"image": IMAGE, "label": np.zeros(1)}, ("takes string [?]", "float64 [1]")),
        ({"image": np.array([1e300] * 4), "label": ""}, ("beyond its range",)),
    ],
)
def test_values_that_do_not_fit_are_refused_before_anything_is_sent(
    client: streamer.Client, v2: V2Server, values: dict[str, object], texts: tuple[str, ...]
) -> None:
    with pytest.raises(DataError) as error:
        client(values)
    assert [text for text in texts if text not in str(error.value)] == []
    assert not [one for one in v2.asked if one.path.endswith("/infer")]


def test_a_server_that_tells_no_ports_gets_values_as_they_are(v2: V2Server) -> None:
    v2.metadata = {"name": "digits", "inputs": [], "outputs": []}
    with streamer.Client(v2.url, "digits") as client:
        assert client.ports.inputs is None
        result = client(image=IMAGE, label=["a", "b"])
    assert result["doubled"].tolist() == [0, 2, 4, 6]
    assert result["label"] == ["a", "b"]


def test_the_ports_are_those_of_the_server(client: streamer.Client, v2: V2Server) -> None:
    assert [str(port) for port in client.ports.inputs or ()] == ["float32 [?, 4]", "string [?]"]
    assert [port.name for port in client.ports.outputs or ()] == ["doubled", "label"]
    client(image=IMAGE, label="")
    assert [one.path for one in v2.asked] == ["/v2/models/digits", "/v2", "/v2/models/digits/infer"]


def test_a_server_without_binary_tensors_is_asked_in_json(v2: V2Server) -> None:
    v2.extensions = []
    output = {"name": "doubled", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1e-45]}
    v2.replies.append(reply(200, {"outputs": [output, {**METADATA["outputs"][1], "shape": [1], "data": ["é"]}]}))
    with streamer.Client(v2.url, "digits") as client:
        result = client(image=IMAGE, label="a")
    assert (result["doubled"].tolist(), result["label"]) == ([0.5, float(np.float32(1e-45))], "é")
    sent = json.loads(v2.asked[-1].body)
    assert [entry["data"] for entry in sent["inputs"]] == [[0, 1, 2, 3], ["a"]]


def test_a_service_that_only_takes_requests_in_has_an_empty_result(client: streamer.Client, v2: V2Server) -> None:
    v2.replies.append((202, {}, b""))
    assert dict(client(image=IMAGE, label="")) == {}


def test_an_optional_input_may_be_left_out(v2: V2Server) -> None:
    image, label = METADATA["inputs"]
    v2.metadata = {**METADATA, "inputs": [image, {**label, "optional": True}]}
    with streamer.Client(v2.url, "digits") as client:
        assert [*client(image=IMAGE)] == ["doubled"]
        assert [*client(image=IMAGE, label="a")] == ["doubled", "label"]


def test_an_input_of_one_unknown_length_may_have_any_rank(v2: V2Server) -> None:
    image, label = METADATA["inputs"]
    v2.metadata = {"inputs": [{**image, "shape": [-1]}, label]}
    with streamer.Client(v2.url, "digits") as client:
        assert client(image=np.stack([IMAGE, IMAGE]), label=["a", "b"])["doubled"].shape == (2, 4)


def test_the_only_model_of_a_server_needs_no_name(v2: V2Server) -> None:
    with streamer.Client(v2.url) as client:
        client(image=IMAGE, label="")
    assert v2.asked[-1].path == "/v2/models/digits/infer"


def test_model_and_version_may_stand_in_the_address_or_beside_it(v2: V2Server) -> None:
    with streamer.Client(f"{v2.url}/v2/models/digits", version="2") as client:
        client(image=IMAGE, label="")
    assert v2.asked[-1].path == "/v2/models/digits/versions/2/infer"


def test_an_error_of_the_server_is_raised_with_its_text_and_status(client: streamer.Client, v2: V2Server) -> None:
    v2.replies.append(reply(400, {"error": 'input "image" has 3 values'}))
    with pytest.raises(RequestError, match='input "image" has 3 values') as error:
        client(image=IMAGE, label="")
    assert error.value.status == 400
    v2.replies.append((500, {}, b"<html>oh"))
    with pytest.raises(RequestError, match="500 Internal Server Error <html>oh"):
        client(image=IMAGE, label="")
    with pytest.raises(RequestError, match='no model "digit"') as error:
        streamer.Client(v2.url, "digit")(image=IMAGE)
    assert error.value.status == 404


def test_after_an_error_it_is_asked_again_what_the_model_takes(client: streamer.Client, v2: V2Server) -> None:
    client(image=IMAGE, label="")
    v2.metadata = {**METADATA, "inputs": [{**METADATA["inputs"][0], "name": "picture"}]}
    v2.replies.append(reply(400, {"error": 'there is no input "image"'}))
    with pytest.raises(RequestError, match="no input"):
        client(image=IMAGE, label="")
    with pytest.raises(DataError, match='it takes "picture" float32'):
        client(image=IMAGE, label="")


def test_a_broken_answer_is_an_error(client: streamer.Client, v2: V2Server) -> None:
    for headers in ({"Inference-Header-Content-Length": "99"}, {"Inference-Header-Content-Length": "x"}, {}):
        v2.replies.append((200, headers, b"{}"))
        with pytest.raises(RequestError, match="cannot be read"):
            client(image=IMAGE, label="")


def test_a_busy_server_is_asked_again_until_the_deadline(v2: V2Server) -> None:
    busy = reply(503, {"error": "too many requests wait"}, Retry_After="0")
    v2.replies += [busy, busy]
    with streamer.Client(v2.url, "digits", timeout=5) as client:
        assert client(image=IMAGE, label="")["label"] == ""
    v2.replies.append(reply(503, {"error": "too many requests wait"}, Retry_After="60"))
    with streamer.Client(v2.url, "digits", timeout=5) as client:
        with pytest.raises(RequestError, match="too many requests wait") as error:
            client(image=IMAGE, label="")
        assert error.value.status == 503


def test_a_service_that_does_not_answer_in_time_is_a_timeout(v2: V2Server) -> None:
    gate = threading.Event()
    late: Reply = reply(500, {})

    def wait() -> Reply:
        gate.wait(5)
        return late

    v2.replies.append(wait)
    with streamer.Client(v2.url, "digits", timeout=0.2) as client:
        assert client.ports.inputs
        with pytest.raises(RequestTimeout, match="has not answered") as error:
            client(image=IMAGE, label="")
    assert isinstance(error.value, TimeoutError)
    gate.set()


def test_where_nothing_listens_the_error_says_what_to_look_at() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with streamer.Client(url, "digits") as client:
            with pytest.raises(RequestError, match=f"nothing answers at {url} .*; is the service running") as error:
                client(image=IMAGE)
            assert error.value.status is None
            with pytest.raises(RequestTimeout, match="is not ready: nothing answers"):
                client.wait_ready(0.1)


def test_wait_ready_returns_when_the_model_is_ready(client: streamer.Client, v2: V2Server) -> None:
    client.wait_ready(2)
    assert v2.asked[-1].path == "/v2/models/digits/ready"


def test_results_of_map_come_in_order_and_records_are_read_as_needed(client: streamer.Client) -> None:
    read = []

    def records() -> Iterator[dict[str, object]]:
        for number in range(20):
            read.append(number)
            yield {"image": IMAGE * 0 + number, "label": str(number)}

    results = client.map(records(), pending=3)
    assert read == []
    assert next(results)["label"] == "0"
    assert len(read) <= 4
    assert [result["label"] for result in results] == [str(number) for number in range(1, 20)]


def test_the_first_error_ends_a_map(client: streamer.Client) -> None:
    results = client.map([{"image": IMAGE, "label": ""}, {"image": IMAGE}, {"image": IMAGE, "label": ""}])
    next(results)
    with pytest.raises(DataError, match="needs the input"):
        next(results)
    assert list(results) == []


def test_threads_and_tasks_share_a_client(v2: V2Server) -> None:
    with streamer.Client(v2.url, "digits", pending=4) as client:
        futures = [client.submit(image=IMAGE + number, label=str(number)) for number in range(20)]

        async def ask() -> list[Data]:
            return await asyncio.gather(*(client.acall(image=IMAGE, label=f"t{number}") for number in range(20)))

        assert [result["label"] for result in asyncio.run(ask())] == [f"t{number}" for number in range(20)]
        assert [future.result()["label"] for future in futures] == [str(number) for number in range(20)]


def test_a_call_that_cannot_begin_in_time_says_so_and_gives_its_slot_back(v2: V2Server) -> None:
    gate = threading.Event()
    v2.replies.append(lambda: (gate.wait(5), reply(200, {"outputs": []}))[1])
    with streamer.Client(v2.url, "digits", timeout=5, pending=1) as client:
        assert client.ports.inputs
        held = client.submit(image=IMAGE, label="")
        client._timeout = 0.05
        with pytest.raises(RequestTimeout, match="1 calls were under way"):
            client(image=IMAGE, label="")
        with pytest.raises(RequestTimeout, match="1 calls were under way"):
            asyncio.run(client.acall(image=IMAGE, label=""))
        gate.set()
        assert dict(held.result()) == {}
        client._timeout = 5.0
        assert client(image=IMAGE, label="free")["label"] == "free"


def test_a_task_that_is_cancelled_gives_its_slot_back(v2: V2Server) -> None:
    gate = threading.Event()
    v2.replies.append(lambda: (gate.wait(5), reply(200, {"outputs": []}))[1])
    with streamer.Client(v2.url, "digits", timeout=5, pending=1) as client:
        assert client.ports.inputs

        async def ask() -> None:
            first = asyncio.create_task(client.acall(image=IMAGE, label=""))
            second = asyncio.create_task(client.acall(image=IMAGE, label=""))
            await asyncio.sleep(0.05)
            for task in (first, second):
                task.cancel()
            await asyncio.gather(first, second, return_exceptions=True)

        asyncio.run(ask())
        gate.set()
        assert client(image=IMAGE, label="free")["label"] == "free"


def test_a_closed_client_says_so(client: streamer.Client) -> None:
    client.close()
    client.close()
    with pytest.raises(RequestError, match="closed"):
        client(image=IMAGE)


@pytest.mark.parametrize(
    ("url", "arguments", "text"),
    [
        ("localhost:8000", {}, "http://localhost:8000"),
        ("htttp://host", {}, 'did you mean "http"'),
        ("http://", {}, "not the address of a service"),
        ("http://me:pw@host", {}, "use token"),
        ("http://host", {"reply_to": "x"}, "reply_to is nothing"),
        ("http://host/v2/models/a", {"model": "b"}, "leave one out"),
        ("https://host", {"verify": "nofile.pem"}, "verify: .*nofile.pem"),
        ("http://host", {"timeout": 0}, "above 0"),
    ],
)
def test_an_argument_that_cannot_be_used_is_refused_at_once(url: str, arguments: dict[str, object], text: str) -> None:
    with pytest.raises(DefinitionError, match=text) as error:
        streamer.Client(url, **arguments)  # type: ignore[arg-type]
    assert "pw" not in str(error.value)
