"""Messages of MLServer on Kafka get the answers that MLServer 1.7.1 gave on the same broker, or else an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafkatopics import read
from waiting import until

import pipelines
import streamer
from connectors.message import Message
from pipelines import Data
from streamer.devbroker import Broker

pytestmark = pytest.mark.slow

MODEL = ("mlserver-model", b"sum-model")
HEADERS = {
    "Ce-Specversion": "0.3",
    "Ce-Source": "io.seldon.serving.deployment.mlserver",
    "Ce-Type": "io.seldon.serving.inference.response",
    "Ce-Modelid": "sum-model",
    "Ce-Inferenceservicename": "mlserver",
    "Ce-Endpoint": "sum-model",
    "Ce-Id": "{record.key}",
    "Ce-Requestid": "{record.key}",
}
"""What MLServer's answers have."""


def total(data: Data) -> Data:
    x = data["input-0"]
    if x.max() > 1000:
        raise ValueError("more than 1000")
    return Data({"total": x.sum(axis=1, keepdims=True)})


def tensor(data: list[Any], shape: list[int], datatype: str = "INT32") -> dict[str, Any]:
    return {"name": "input-0", "shape": shape, "datatype": datatype, "parameters": None, "data": data}


def message(
    key: str, *inputs: dict[str, Any], headers: tuple[tuple[str, bytes], ...] = (MODEL,), **more: Any
) -> Message:
    """As MLServer itself writes requests: what is not given is null."""
    body = {"id": key, "parameters": None, "inputs": list(inputs), "outputs": None, **more}
    return Message(json.dumps(body).encode(), key.encode(), headers)


ONE = tensor([1, 2, 3], [1, 3])
ANSWERED: list[tuple[Message, list[int], str, list[float]]] = [
    (message("plain", ONE), [1, 1], "INT64", [6]),
    (message("version", ONE, headers=(MODEL, ("mlserver-version", b"v1.2.3"))), [1, 1], "INT64", [6]),
    (message("samples", tensor([1, 2, 3, 4, 5, 6], [2, 3])), [2, 1], "INT64", [6, 15]),
    (message("nested", tensor([[1, 2, 3], [4, 5, 6]], [2, 3])), [2, 1], "INT64", [6, 15]),
    (message("floats", tensor([1.5, 2, 3], [1, 3], "FP64")), [1, 1], "FP64", [6.5]),
    (message("asked", ONE, outputs=[{"name": "total", "parameters": None}]), [1, 1], "INT64", [6]),
    (message("content", ONE, parameters={"content_type": "np", "headers": None}), [1, 1], "INT64", [6]),
    # MLServer 1.7.1 refuses the only method that it knows, when it is given.
    (message("method", ONE, headers=(MODEL, ("mlserver-method", b"infer"))), [1, 1], "INT64", [6]),
]
"""Requests, and shape, datatype and data of the answers."""
UNANSWERED: list[tuple[Message, str]] = [
    (message("count", tensor([1, 2], [1, 3])), 'input "input-0" has 3 values by its shape [1, 3]'),
    (Message(b'{"id": "lacking"}', b"lacking", (MODEL,)), 'the request has no "inputs"'),
    (Message(b"{", b"broken", (MODEL,)), "the request is not valid JSON"),
    (Message(b"\xff\xfe", b"binary", (MODEL,)), "the request is not valid JSON"),
    (message("large", tensor([1001, 2, 3], [1, 3])), "more than 1000"),
]
"""Requests whose error MLServer writes into its log only, and the beginning of our answer's."""


def test_mlservers_messages_get_its_answers_and_failures_are_answered_too(
    kafka: Broker, topics: Callable[..., str]
) -> None:
    requests, answers, dead = topics(1, "mlserver-input"), topics(1, "mlserver-output"), topics(1, "mlserver-dead")
    codec = {"type": "inference", "model": "sum-model"}
    service = streamer.Service(
        name="sum-model",
        source={"type": "kafka", "bootstrap": kafka.bootstrap, "topics": requests, "group": requests, "codec": codec},
        pipeline=pipelines.Sequence([total]),
        sink={"type": "kafka", "topic": answers, "codec": codec, "errors": True, "add_headers": HEADERS},
        dead_letter={"type": "kafka", "topic": dead},
        errors={"stop_ratio": 1, "first": 0},
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
    sent = [*(request for request, *_ in ANSWERED), *(request for request, _ in UNANSWERED)]
    for each in sent:
        producer.produce(requests, each.value, each.key, headers=list(each.headers))
    assert producer.flush(30) == 0
    with service:
        given = {each.key: each for each in read(kafka.bootstrap, answers, len(sent))}
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": requests})
        until(lambda: consumer.committed([TopicPartition(requests, 0)], 30)[0].offset == len(sent), "the commit")
        consumer.close()
    assert set(given) == {each.key for each in sent}
    for request, shape, datatype, data in ANSWERED:
        answer = given[request.key]
        name = (request.key or b"").decode()
        body = json.loads(answer.value or b"")
        assert (body["model_name"], body["id"]) == ("sum-model", name)
        (output,) = body["outputs"]
        assert output == {"name": "total", "shape": shape, "datatype": datatype, "data": data}
        headers = {header: value.replace("{record.key}", name).encode() for header, value in HEADERS.items()}
        assert headers.items() <= dict(answer.headers).items()
        assert "streamer-error" not in dict(answer.headers)
    for request, text in UNANSWERED:
        answer = given[request.key]
        assert json.loads(answer.value or b"")["error"].startswith(text)
        assert dict(answer.headers)["streamer-error"] in {b"WireError", b"ValueError"}
    assert {each.key for each in read(kafka.bootstrap, dead, len(UNANSWERED))} == {each.key for each, _ in UNANSWERED}
