"""Requests over Kafka, MQTT and HTTP: one service answers all of them, each where it came from."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafkatopics import read
from mqttclient import MqttClient, publish_properties
from paho.mqtt.client import MQTTMessage, MQTTv5
from waiting import until

import pipelines
import streamer
from connectors.http.endpoint.source import HttpSource
from pipelines import Data
from streamer.agent.running import agent_of
from streamer.devbroker import Broker
from streamer.devbroker.mqtt import MqttBroker
from streamer.devbroker.ports import ReservedPorts

pytestmark = pytest.mark.slow

CODEC = "inference"
PATH = "/v2/models/halves/infer"


def halved(data: Data) -> Data:
    if data["x"][0] < 0:
        raise ValueError("x is negative")
    return Data({"y": data["x"] / 2})


def request(name: str, x: float) -> bytes:
    tensor = {"name": "x", "shape": [1], "datatype": "FP64", "data": [x]}
    return json.dumps({"id": name, "inputs": [tensor]}).encode()


def result(name: str, x: float) -> dict[str, Any]:
    tensor = {"name": "y", "shape": [1], "datatype": "FP64", "data": [x / 2]}
    return {"model_name": "halves", "model_version": "1", "id": name, "outputs": [tensor]}


def correlation(message: MQTTMessage) -> bytes:
    return bytes(message.properties.CorrelationData)  # type: ignore[union-attr]


def mqtt_entries(url: str, topic: str) -> tuple[dict[str, Any], dict[str, Any]]:
    source = {"type": "mqtt", "url": url, "topics": f"{topic}/requests", "codec": CODEC}
    sink = {"type": "mqtt", "url": url, "topic": "{record.response_topic}", "topics": [f"^{topic}/answers/"]}
    return source, {**sink, "correlation": "record.correlation", "codec": CODEC, "errors": True}


def test_requests_of_mqtt_5_get_results_and_errors_with_their_correlation_data(
    mqtt_broker: MqttBroker, tmp_path: Path
) -> None:
    topic = tmp_path.name
    source, sink = mqtt_entries(mqtt_broker.url, topic)
    service = streamer.Service(
        name="halves",
        source={**source, "client_id": topic},
        sink={**sink, "client_id": f"{topic}-out"},
        pipeline=pipelines.Sequence([halved]),
        dead_letter={"type": "memory", "topic": f"{topic}-dead"},
        errors={"stop_ratio": 1, "first": 0},
    )
    with service, MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as client:
        client.subscribe(f"{topic}/answers/#", 1)
        asked = {
            b"\x00good": ("a", request("good", 3)),
            b"\xffbad": ("b", request("bad", -3)),
            b"broken": ("a", b"{"),
            b"nowhere": ("../elsewhere", request("nowhere", 1)),
            b"last": ("b", request("last", 5)),
        }
        for data, (place, body) in asked.items():
            address = f"{topic}/answers/{place}" if "." not in place else f"{topic}/elsewhere"
            client.publish(f"{topic}/requests", body, 1, ResponseTopic=address, CorrelationData=data)
        answers = {correlation(each): each for each in client.take(4)}
        assert client.nothing()
    assert set(answers) == asked.keys() - {b"nowhere"}
    assert {each.topic for each in answers.values()} == {f"{topic}/answers/a", f"{topic}/answers/b"}
    bodies = {data: json.loads(each.payload) for data, each in answers.items()}
    assert bodies[b"\x00good"] == result("good", 3)
    assert bodies[b"last"] == result("last", 5)
    assert bodies[b"\xffbad"] == {"error": "x is negative", "step": "0:FUNCTION"}
    assert bodies[b"broken"]["step"] == "decode"
    properties = {data: dict(each.properties.UserProperty) for data, each in answers.items()}  # type: ignore[union-attr]
    assert (properties[b"\xffbad"]["streamer-error"], "streamer-error" in properties[b"last"]) == ("ValueError", False)


class Mixed:
    """A service with sources and sinks of Kafka, MQTT and HTTP."""

    def __init__(self, kafka: Broker, topics: Callable[..., str], mqtt: MqttBroker, name: str) -> None:
        self.kafka, self.mqtt, self.topic = kafka, mqtt, name
        self.requests, self.answers = topics(1, "mixed-in"), topics(1, "mixed-out")
        source, sink = mqtt_entries(mqtt.url, name)
        bus = {"type": "kafka", "bootstrap": kafka.bootstrap, "codec": CODEC}
        self.service = streamer.Service(
            name="halves",
            source=[
                {**bus, "topics": self.requests, "group": self.requests},
                {**source, "client_id": name},
                {"type": "http", "listen": "127.0.0.1:0"},
            ],
            sink=[
                {**bus, "topic": self.answers, "sources": ["kafka"], "errors": True},
                {**sink, "sources": ["mqtt"], "client_id": f"{name}-out"},
                {"type": "http"},
            ],
            pipeline=pipelines.Sequence([halved]),
            dead_letter={"type": "memory", "topic": f"{name}-dead"},
            errors={"stop_ratio": 1, "first": 0},
        )

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "linger.ms": 1})
        for number in range(count):
            producer.produce(self.requests, request(f"kafka-{number}", number), b"%d" % number)
        assert producer.flush(60) == 0

    def publish(self, client: MqttClient, count: int) -> None:
        for number in range(count):
            told = publish_properties(ResponseTopic=f"{self.topic}/answers/a", CorrelationData=b"%d" % number)
            client.client.publish(f"{self.topic}/requests", request(f"mqtt-{number}", number), 1, properties=told)

    @property
    def address(self) -> tuple[str, int]:
        """Of HTTP, as soon as requests are accepted there."""
        agent = agent_of(self.service)
        assert agent is not None
        address = next(each.source.address for each in agent._loop.intakes if isinstance(each.source, HttpSource))
        until(lambda: is_ready(address))
        return address


def is_ready(address: tuple[str, int]) -> bool:
    try:
        connection = http.client.HTTPConnection(*address, timeout=60)
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False


def asked_over_http(address: tuple[str, int], numbers: range) -> list[dict[str, Any]]:
    connection = http.client.HTTPConnection(*address, timeout=60)
    bodies = []
    for number in numbers:
        connection.request("POST", PATH, request(f"http-{number}", number))
        bodies.append(json.loads(connection.getresponse().read()))
    connection.close()
    return bodies


def killed_in_the_middle(address: tuple[str, int], count: int) -> None:
    """Clients that send a request and are gone, as a killed program is."""
    for number in range(count):
        body = request(f"gone-{number}", number)
        client = socket.create_connection(address, timeout=60)
        client.sendall(
            b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (PATH.encode(), len(body), body)
        )
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()


def test_nothing_crosses_over_among_10000_records_of_kafka_mqtt_and_http(
    kafka: Broker, topics: Callable[..., str], mqtt_broker: MqttBroker, tmp_path: Path
) -> None:
    mixed = Mixed(kafka, topics, mqtt_broker, tmp_path.name)
    of_kafka, of_mqtt, of_http = 6000, 3000, 1000
    with mixed.service, MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as client:
        client.subscribe(f"{mixed.topic}/answers/#", 1)
        with ThreadPoolExecutor(8) as pool:
            buses = [pool.submit(mixed.produce, of_kafka), pool.submit(mixed.publish, client, of_mqtt)]
            gone = pool.submit(killed_in_the_middle, mixed.address, 50)
            parts = [
                pool.submit(asked_over_http, mixed.address, range(at, at + of_http // 4))
                for at in range(0, of_http, of_http // 4)
            ]
            of_clients = [body for part in parts for body in part.result()]
            for each in (*buses, gone):
                each.result()
        published = client.take(of_mqtt)
        answered = read(kafka.bootstrap, mixed.answers, of_kafka)
        assert client.nothing(0.1)
    assert of_clients == [result(f"http-{number}", number) for number in range(of_http)]
    assert {correlation(each): json.loads(each.payload) for each in published} == {
        b"%d" % number: result(f"mqtt-{number}", number) for number in range(of_mqtt)
    }
    assert [(each.key, json.loads(each.value or b"")) for each in answered] == [
        (b"%d" % number, result(f"kafka-{number}", number)) for number in range(of_kafka)
    ]


def test_the_same_request_gets_the_same_answer_from_kafka_mqtt_and_http(
    kafka: Broker, topics: Callable[..., str], mqtt_broker: MqttBroker, tmp_path: Path
) -> None:
    mixed = Mixed(kafka, topics, mqtt_broker, tmp_path.name)
    bodies = [request("a", 3), b'{"id": "b", "inputs": [{"name": "x"}]}', request("c", -3)]
    with mixed.service, MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as client:
        client.subscribe(f"{mixed.topic}/answers/#", 1)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
        for number, body in enumerate(bodies):
            producer.produce(mixed.requests, body, b"%d" % number)
            client.publish(
                f"{mixed.topic}/requests",
                body,
                1,
                ResponseTopic=f"{mixed.topic}/answers/a",
                CorrelationData=b"%d" % number,
            )
        assert producer.flush(60) == 0
        connection = http.client.HTTPConnection(*mixed.address, timeout=60)
        of_http: list[Any] = []
        for body in bodies:
            connection.request("POST", PATH, body)
            answer = connection.getresponse()
            of_http.append((answer.status, answer.read()))
        connection.close()
        of_mqtt = {correlation(each): bytes(each.payload) for each in client.take(3)}
        of_kafka = {each.key: each.value for each in read(kafka.bootstrap, mixed.answers, 3)}
    assert of_kafka == of_mqtt
    assert of_http[0] == (200, of_kafka[b"0"])
    error = json.loads(of_kafka[b"1"] or b"")["error"]
    assert (of_http[1][0], json.loads(of_http[1][1])) == (400, {"error": error})
    assert "x" in error
    error = json.loads(of_kafka[b"2"] or b"")["error"]
    assert (of_http[2][0], json.loads(of_http[2][1])) == (500, {"error": f"step 0:FUNCTION: ValueError: {error}"})


SLOW = """
import time
from pathlib import Path


def slow(data):
    with Path("run.txt").open("a") as file:
        file.write("x")
    time.sleep(0.15)
    return data
"""


def test_a_service_that_is_told_to_end_answers_what_it_accepted_and_refuses_the_rest(
    start: Any, tmp_path: Path
) -> None:
    (tmp_path / "steps_of_test.py").write_text(SLOW)
    ports = ReservedPorts(1)
    (port,) = ports.numbers
    (tmp_path / "service.yaml").write_text(f"""
name: halves
source: {{type: http, listen: "127.0.0.1:{port}"}}
pipeline: [{{"@type": FUNCTION, function: "steps_of_test:slow"}}]
batch: {{max_records: 2}}
sink: {{type: http}}
""")
    ports.close()
    process = start("run", "service.yaml")
    statuses: list[int] = []
    refused: list[OSError] = []

    def ask() -> None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", PATH, request("a", 1))
            statuses.append(connection.getresponse().status)
        except ConnectionRefusedError as error:
            refused.append(error)

    until(lambda: is_ready(("127.0.0.1", port)))
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: (tmp_path / "run.txt").exists())
    process.send_signal(signal.SIGTERM)
    while not (503 in statuses or refused):
        threads.append(threading.Thread(target=ask))
        threads[-1].start()
        time.sleep(0.03)
    for thread in threads:
        thread.join(60)
    assert process.wait(60) == 0
    assert set(statuses) == {200, 503}
    assert len((tmp_path / "run.txt").read_text()) == statuses.count(200)
    assert len(statuses) + len(refused) == len(threads)
