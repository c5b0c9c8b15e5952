"""`streamer.Client` over Kafka: answers find their calls, whoever else asks at the same topic."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

import pipelines
import streamer
from pipelines import Data
from pipelines.errors import DefinitionError
from streamer.client.errors import RequestError, RequestTimeout
from streamer.devbroker import Broker, MockKafka, create_topics

Answers = Callable[[Any], Sequence[tuple[float, bytes | None, Sequence[tuple[str, bytes]]]]]
"""For a request its answers: after how long, which payload, with which headers besides those of the request."""


@pytest.fixture
def requests(mock_kafka: MockKafka) -> str:
    name = f"requests-{uuid.uuid4().hex[:8]}"
    create_topics(mock_kafka.bootstrap, {name: 1, f"{name}.replies": 1})
    return name


@contextmanager
def answering(bootstrap: str, topic: str, answers: Answers, *, partition: int = -1) -> Iterator[None]:
    """Somebody who answers requests at the topic of their header, as a service does, in any order."""
    done, ready = threading.Event(), threading.Event()

    def run() -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "answering", "fetch.queue.backoff.ms": 5})
        consumer.assign(
            [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions]
        )
        ready.set()
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        due: list[tuple[float, int, Any, bytes | None, Sequence[tuple[str, bytes]]]] = []
        while not done.is_set():
            for message in consumer.consume(100, 0.005):
                for delay, payload, more in answers(message):
                    due.append((time.monotonic() + delay, len(due), message, payload, more))
            now = time.monotonic()
            for entry in sorted(one for one in due if one[0] <= now):
                due.remove(entry)
                _, _, message, payload, more = entry
                headers = [*message.headers(), *more]
                address = dict(headers)["reply-to"].decode()
                producer.produce(address, payload, message.key(), partition, headers=headers)
            producer.poll(0)
        producer.flush(5)
        consumer.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(30)
        yield
    finally:
        done.set()
        thread.join()


def doubled(message: Any) -> bytes:
    return json.dumps({"y": 2 * json.loads(message.value())["x"]}).encode()


def test_answers_in_any_order_find_the_calls_of_many_clients(mock_kafka: MockKafka, requests: str) -> None:
    random.seed(7)
    url = f"kafka://{mock_kafka.bootstrap}/{requests}"
    before = Producer({"bootstrap.servers": mock_kafka.bootstrap})
    before.produce(f"{requests}.replies", b"from before the clients began", partition=0)
    assert before.flush(10) == 0
    with answering(mock_kafka.bootstrap, requests, lambda one: [(random.random() / 5, doubled(one), [])]):
        clients = [streamer.Client(url, codec="json", timeout=30) for _ in range(8)]
        with ThreadPoolExecutor(8) as threads:
            asked = list(
                threads.map(
                    lambda at: [
                        (n, clients[at].submit(x=n)) for n in range(at * 100, at * 100 + (100 if at < 1 else 20))
                    ],
                    range(8),
                )
            )
        for calls in asked:
            assert [future.result()["y"] for _, future in calls] == [2 * n for n, _ in calls]
        assert strangers_of(clients[0], 140) == 140
        for client in clients:
            client.close()


def strangers_of(client: streamer.Client, count: int) -> int:
    """The answers to others, as soon as there are so many."""
    deadline = time.monotonic() + 20
    while client.strangers < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return client.strangers


def test_late_and_foreign_answers_are_dropped(mock_kafka: MockKafka, requests: str) -> None:
    def answers(message: Any) -> Sequence[tuple[float, bytes | None, Sequence[tuple[str, bytes]]]]:
        late = json.loads(message.value())["x"] == 0
        return [(0.5 if late else 0.0, doubled(message), []), (0.01, doubled(message), [])][: 1 if late else 2]

    url = f"kafka://{mock_kafka.bootstrap}/{requests}"
    with (
        answering(mock_kafka.bootstrap, requests, answers),
        streamer.Client(url, codec="json", timeout=20) as client,
    ):
        assert client(x=1)["y"] == 2
        client._timeout = 0.2
        with pytest.raises(RequestTimeout, match=f'at the topic "{requests}"'):
            client(x=0)
        client._timeout = 20
        assert [result["y"] for result in client.map({"x": n} for n in (2, 3))] == [4, 6]
        assert strangers_of(client, 4) == 4


def test_an_error_answer_raises_with_step_and_text(mock_kafka: MockKafka, requests: str) -> None:
    error = json.dumps({"error": "x is negative", "step": "halve"}).encode()
    said: list[tuple[str, bytes]] = [("streamer-error", b"ValueError")]
    for codec in ("json", "protodata"):
        with (
            answering(mock_kafka.bootstrap, requests, lambda _: [(0.0, error, said)]),
            streamer.Client(f"kafka://{mock_kafka.bootstrap}/{requests}", codec=codec) as client,
            pytest.raises(RequestError, match="step halve: ValueError: x is negative") as raised,
        ):
            client(x=1)
        assert raised.value.step == "halve"


def test_an_answer_that_cannot_be_read_is_the_error_of_its_call_only(mock_kafka: MockKafka, requests: str) -> None:
    def answers(message: Any) -> Sequence[tuple[float, bytes | None, Sequence[tuple[str, bytes]]]]:
        number = json.loads(message.value())["x"]
        return [(0.0, {0: b"{", 1: None}.get(number, doubled(message)), [])]

    with (
        answering(mock_kafka.bootstrap, requests, answers),
        streamer.Client(f"kafka://{mock_kafka.bootstrap}/{requests}", codec="json") as client,
    ):
        broken, empty, whole = [client.submit(x=n) for n in range(3)]
        assert whole.result()["y"] == 4
        for future, text in ((broken, "cannot be read"), (empty, "no payload")):
            with pytest.raises(RequestError, match=text):
                future.result()


def test_values_that_the_codec_cannot_write_are_the_error_of_the_call(mock_kafka: MockKafka, requests: str) -> None:
    with streamer.Client(f"kafka://{mock_kafka.bootstrap}/{requests}", codec="text") as client:
        with pytest.raises(pipelines.errors.StreamerError):
            client(x=np.zeros(3), y=2)
        with pytest.raises(pipelines.errors.StreamerError):
            asyncio.run(client.acall(x=np.zeros(3), y=2))


def test_closing_ends_the_calls_that_wait(mock_kafka: MockKafka, requests: str) -> None:
    client = streamer.Client(f"kafka://{mock_kafka.bootstrap}/{requests}", codec="json")
    future = client.submit(x=1)
    client.close()
    with pytest.raises(RequestError, match="the client was closed"):
        future.result()
    with pytest.raises(RequestError, match="closed; make a new one"):
        client(x=1)


def test_brokers_and_topics_that_are_not_there_are_named() -> None:
    with (
        streamer.Client("kafka://localhost:1/requests", timeout=3) as client,
        pytest.raises(RequestTimeout, match="not ready: no Kafka answers on localhost:1"),
    ):
        client.wait_ready(0.1)


@pytest.mark.parametrize(
    ("url", "arguments", "text"),
    [
        ("kafka://host:9092", {}, "names no topic"),
        ("kafka://http://host/a", {}, "names no topic"),
        ("kafka://host:9092/a", {"token": "x"}, "token is nothing"),
        ("kafka://host:9092/a", {"options": {"linger.ms": 5}}, "linger"),
        ("kafka://me:pw@host:9092/a", {}, "options"),
        ("kafka://host:9092/a", {"codec": "jsn"}, 'did you mean "json"'),
    ],
)
def test_an_argument_that_cannot_be_used_is_refused_at_once(url: str, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(DefinitionError, match=text) as error:
        streamer.Client(url, **arguments)
    assert "pw" not in str(error.value)


def halved(data: Data) -> Data:
    if data["x"] < 0:
        raise ValueError("x is negative")
    return Data({"y": data["x"] / 2})


def test_answers_in_partitions_that_the_reply_topic_gets_later_come_from_the_second_call_on(
    kafka: Broker, topics: Callable[..., str]
) -> None:
    requests = topics()
    with streamer.Client(f"kafka://{kafka.bootstrap}/{requests}", codec="json", timeout=30) as client:
        client.wait_ready()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_partitions([NewPartitions(f"{requests}.replies", 2)])[f"{requests}.replies"].result()
        with answering(kafka.bootstrap, requests, lambda one: [(0.0, doubled(one), [])], partition=1):
            client._timeout = 1.0
            with pytest.raises(RequestTimeout):
                client(x=0)
            client._timeout = 30.0
            assert client(x=1)["y"] == 2
            assert client.strangers == 1


SERVICE = {
    "name": "halve",
    "pipeline": pipelines.Sequence([halved]),
    "dead_letter": {"type": "memory", "topic": "client-dead"},
    "errors": {"stop_ratio": 1, "first": 0},
}


def test_a_service_answers_with_results_and_errors(kafka: Broker, topics: Callable[..., str]) -> None:
    requests = topics()
    service = streamer.Service(
        **SERVICE,
        source={"type": "kafka", "bootstrap": kafka.bootstrap, "topics": requests},
        sink={
            "type": "kafka",
            "bootstrap": kafka.bootstrap,
            "topic": "{record.headers.reply-to}",
            "topics": [f"{requests}.replies"],
            "errors": True,
        },
    )
    with service, streamer.Client(f"kafka://{kafka.bootstrap}/{requests}", timeout=60) as client:
        client.wait_ready()
        assert client(x=3.0)["y"] == 1.5
        with pytest.raises(RequestError, match="x is negative"):
            client(x=-1.0)
        assert [result["y"] for result in client.map({"x": float(n)} for n in range(50))] == [n / 2 for n in range(50)]
        with (
            streamer.Client(f"kafka://{kafka.bootstrap}/{requests}x") as other,
            pytest.raises(RequestError, match=f'there is no topic "{requests}x".*did you mean "{requests}"'),
        ):
            other(x=1.0)
