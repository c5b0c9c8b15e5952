"""`streamer.Client` and a service that runs the digits model: over HTTP, and over Kafka in the protocol's form."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from certificates import certificate_in

import pipelines
import streamer
from connectors.http.endpoint.source import HttpSource
from pipelines import Data
from pipelines.errors import DataError
from streamer.agent.running import agent_of
from streamer.client.errors import RequestError
from streamer.devbroker import Broker

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
IMAGES = np.load(DIGITS / "digits.npz")["images"][:6]


def url_of(service: streamer.Service) -> str:
    agent = agent_of(service)
    assert agent is not None
    (source,) = [each.source for each in agent._loop.intakes if isinstance(each.source, HttpSource)]
    return "http://{}:{}".format(*source.address)


@pytest.fixture(scope="module")
def digits() -> Iterator[str]:
    text = """
    name: digits
    source: {type: http, listen: "127.0.0.1:0", token: secret}
    pipeline: [{"@type": ONNX, modelUri: digits.onnx}]
    sink: {type: http}
    """
    with streamer.loads(text, base=DIGITS) as service:
        yield url_of(service)


@pytest.fixture(scope="module")
def expected() -> list[Data]:
    with pipelines.Sequence([pipelines.Onnx(modelUri=str(DIGITS / "digits.onnx"))]).open() as executor:
        results = [executor.run(Data({"image": image})) for image in IMAGES]
    return [result for result in results if isinstance(result, Data)]


def test_a_call_gives_what_the_pipeline_gives_here(digits: str, expected: list[Data]) -> None:
    with streamer.Client(digits, "digits", token="secret") as client:
        client.wait_ready()
        assert [str(port) for port in client.ports.inputs or ()] == ["uint8 [?, 8, 8]"]
        assert client(image=IMAGES[0]) == expected[0]
        assert client(image=IMAGES[0].astype(np.int64).tolist()) == expected[0]
        together = client(image=IMAGES)
        for name, array in together.items():
            assert np.allclose(array, np.stack([result[name] for result in expected]), atol=1e-6)
        assert [*client.map({"image": image} for image in IMAGES)] == expected


def test_threads_and_tasks_ask_at_the_same_time(digits: str, expected: list[Data]) -> None:
    with streamer.Client(digits, "digits", token="secret") as client:

        async def ask() -> list[Data]:
            return await asyncio.gather(*(client.acall(image=image) for image in IMAGES))

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(lambda image: client(image=image), IMAGES)) == expected
        assert asyncio.run(ask()) == expected


def test_mistakes_are_told(digits: str) -> None:
    with streamer.Client(digits, "digits", token="secret") as client:
        with pytest.raises(
            DataError, match=r'no input "img"; it takes "image" uint8 \[\?, 8, 8\]; did you mean "image"'
        ):
            client(img=IMAGES[0])
        with pytest.raises(DataError, match=r"takes uint8 \[\?, 8, 8\], but .* uint8 \[7, 8\]"):
            client(image=IMAGES[0][:7])
    with streamer.Client(digits, "digits", token="secret", outputs=["probs"]) as client:
        with pytest.raises(RequestError, match="probs") as error:
            client(image=IMAGES[0])
        assert error.value.status == 400
    with streamer.Client(digits, "digit", token="secret") as client:
        with pytest.raises(RequestError, match="digits") as error:
            client(image=IMAGES[0])
        assert error.value.status == 404
    with streamer.Client(digits, "digits", token="wrong") as client:
        with pytest.raises(RequestError, match=r"token=") as error:
            client(image=IMAGES[0])
        assert error.value.status == 401


def test_a_certificate_is_checked_against_the_given_authority(tmp_path: Path) -> None:
    made = certificate_in(tmp_path)
    tls = {"cert": str(made.certificate), "key": str(made.key)}
    service = streamer.Service(
        name="digits",
        source={"type": "http", "listen": "127.0.0.1:0", "tls": tls},
        sink={"type": "http"},
        pipeline=pipelines.Sequence([pipelines.Onnx(modelUri=str(DIGITS / "digits.onnx"))]),
    )
    with service:
        url = url_of(service).replace("http:", "https:")
        for verify in (str(made.certificate), False):
            with streamer.Client(url, "digits", verify=verify) as client:
                assert client(image=IMAGES[0])["probabilities"].shape == (10,)
        with (
            streamer.Client(url, "digits") as client,
            pytest.raises(RequestError, match=r'is not trusted .*verify="ca\.pem"'),
        ):
            client(image=IMAGES[0])


def failing(data: Data) -> Data:
    gate.wait(20)
    if data["x"].sum() < 0:
        raise RuntimeError("the sum is negative")
    return Data({"texts": [str(value) for value in data["x"].tolist()], "one": "text"})


gate = threading.Event()


def test_functions_take_any_values_and_their_errors_come_back() -> None:
    service = streamer.Service(
        name="sums",
        source={"type": "http", "listen": "127.0.0.1:0", "max_waiting": 1},
        sink={"type": "http"},
        pipeline=pipelines.Sequence([failing]),
    )
    with service, streamer.Client(url_of(service), timeout=20) as client:
        # One runs, one or more wait, and others are refused and asked for again.
        futures = [client.submit(x=np.array([1.5, number])) for number in range(8)]
        threading.Timer(0.3, gate.set).start()
        assert [future.result()["texts"] for future in futures] == [["1.5", f"{number}.0"] for number in range(8)]
        assert client(x=[1, 2])["one"] == ["text"]
        with pytest.raises(RequestError, match="the sum is negative") as error:
            client(x=np.array([-1.0]))
        assert error.value.status == 500


def test_the_same_model_is_asked_over_kafka_in_the_protocol_s_form(
    kafka: Broker, topics: Callable[..., str], expected: list[Data]
) -> None:
    requests = topics()
    text = f"""
    name: digits
    source: {{type: kafka, bootstrap: "{kafka.bootstrap}", topics: {requests}, codec: inference}}
    pipeline: [{{"@type": ONNX, modelUri: digits.onnx}}]
    sink:
      type: kafka
      topic: "{{record.headers.reply-to}}"
      topics: ["{requests}.replies"]
      codec: inference
      errors: true
    dead_letter: {{type: memory, topic: dead}}
    errors: {{stop_ratio: 1, first: 0}}
    """
    with (
        streamer.loads(text, base=DIGITS),
        streamer.Client(f"kafka://{kafka.bootstrap}/{requests}", codec="inference", timeout=60) as client,
    ):
        result = client(image=IMAGES[:1])
        assert {name: array[0].tolist() for name, array in result.items()} == {
            name: array.tolist() for name, array in expected[0].items()
        }
        with pytest.raises(RequestError, match="image"):
            client(image=np.zeros((1, 7, 8), np.uint8))
