"""A new version of a model takes over while clients ask."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import tritonclient.grpc
from addingmodels import adding
from confluent_kafka import Producer
from kafkatopics import read
from waiting import until

from connectors.http.endpoint.source import HttpSource
from pipelines import Onnx, Sequence
from streamer.agent.agent import Agent
from streamer.definition.service import Service
from streamer.devbroker import Broker


def test_no_request_fails_while_versions_take_over_and_each_answer_names_its_own(tmp_path: Path) -> None:
    adding(tmp_path / "1" / "model.onnx", 1000)
    failures: list[str] = []
    seen: list[str] = []
    ends = threading.Event()

    def ask(url: str) -> None:
        body = {"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [7]}]}
        with httpx2.Client(base_url=url) as client:
            while not ends.is_set():
                answer = client.post("/v2/models/adding/infer", json=body)
                document = answer.json()
                version = document.get("model_version")
                good = answer.status_code == 200 and document["outputs"][0]["data"] == [7 + 1000 * int(version)]
                if not good or answer.headers["streamer-version"] != version:
                    failures.append(answer.text)
                    return
                seen.append(version)

    def asked(version: str) -> bool:
        return bool(failures) or version in seen

    http = {"type": "http", "listen": "127.0.0.1:0"}
    pipeline = Sequence([Onnx(model_uri=tmp_path)])
    models = {"follow": 0.02}
    agent = Agent(Service(name="adding", source=http, sink={"type": "http"}, pipeline=pipeline, models=models))
    agent.start()
    try:
        until(lambda: agent.ready() is None)
        (source,) = agent.sources
        assert isinstance(source, HttpSource)
        url = f"http://127.0.0.1:{source.address[1]}"
        clients = [threading.Thread(target=ask, args=(url,)) for _ in range(4)]
        for client in clients:
            client.start()
        for version in range(1, 5):
            if version > 1:
                adding(tmp_path / str(version) / "model.onnx", 1000 * version)
            until(partial(asked, str(version)))
        assert httpx2.get(f"{url}/v2/models/adding").json()["versions"] == ["4"]
        assert httpx2.get(f"{url}/v2/models/adding/versions/4/ready").status_code == 200
        gone = httpx2.get(f"{url}/v2/models/adding/versions/1")
        assert (gone.status_code, gone.json()["error"]) == (404, 'the model "adding" has no version "1"; there is 4')
        ends.set()
        for client in clients:
            client.join(30)
    finally:
        ends.set()
        agent.stop()
        agent.join(30)
    assert not failures
    assert set(seen) == {"1", "2", "3", "4"}


@pytest.mark.parametrize(
    ("delivery", "variants"),
    [("at_least_once", {}), ("exactly_once", {}), ("exactly_once", {"steady": {"version": 9, "weight": 30}})],
    ids=["at least once", "exactly once", "exactly once beside a variant"],
)
def test_no_record_of_kafka_is_lost_or_doubled_while_versions_take_over(
    kafka: Broker, topics: Callable[..., str], tmp_path: Path, delivery: str, variants: dict[str, Any]
) -> None:
    adding(tmp_path / "1" / "model.onnx", 1_000_000)
    if variants:
        adding(tmp_path / "9" / "model.onnx", 9_000_000)
    topic, results = topics(2), topics(1)
    bus = {"type": "kafka", "bootstrap": kafka.bootstrap, "codec": "json"}
    agent = Agent(
        Service(
            name=topic,
            source={**bus, "topics": topic},
            sink={**bus, "topic": results},
            pipeline=Sequence([Onnx(model_uri=tmp_path)]),
            models={"follow": 0.02},
            variants=variants,
            delivery=delivery,
            on_error="drop",
            batch={"max_records": 32},
        )
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        for _ in range(count):
            producer.produce(topic, b'{"x": %d}' % sent, partition=sent % 2)
            sent += 1
        producer.flush(60)

    agent.start()
    try:
        for version in range(2, 5):
            adding(tmp_path / str(version) / "model.onnx", 1_000_000 * version)
            while agent.version is None or agent.version.label != str(version):
                send(40)
        send(40)
        until(lambda: agent.meters.total("ok") == sent)
    finally:
        agent.stop()
        agent.join(60)
    came = [json.loads(message.value or b"")["y"] for message in read(kafka.bootstrap, results, sent)]
    assert sorted(y % 1_000_000 for y in came) == list(range(sent))
    steady = sum(y // 1_000_000 == 9 for y in came)
    assert 0.2 * sent < steady < 0.4 * sent if variants else steady == 0
    made_by = [y // 1_000_000 for y in came if y // 1_000_000 != 9]
    assert made_by == sorted(made_by)
    assert made_by[-1] == 4


def test_requests_may_name_a_version_or_a_variant_and_others_are_divided(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        adding(tmp_path / str(version) / "model.onnx", 1000 * version)
    http = {"type": "http", "listen": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    agent = Agent(
        Service(
            name="adding",
            source=http,
            sink={"type": "http"},
            pipeline=Sequence([Onnx(model_uri=tmp_path)]),
            models={"follow": 0.02, "keep": 1},
            variants={"next": {"version": 2, "weight": 50}},
        )
    )
    agent.start()
    try:
        until(lambda: agent.ready() is None)
        (source,) = agent.sources
        assert isinstance(source, HttpSource)
        host, port = source.address
        body = {"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [7]}]}

        def ask(of: str = "") -> tuple[str, str, int]:
            answer = httpx2.post(f"http://{host}:{port}/v2/models/adding{of}/infer", json=body)
            assert answer.status_code == 200, answer.text
            document = answer.json()
            assert answer.headers["streamer-version"] == document["model_version"]
            return document["model_version"], answer.headers["streamer-variant"], document["outputs"][0]["data"][0]

        assert {ask() for _ in range(40)} == {("3", "current", 3007), ("2", "next", 2007)}
        assert ask("/versions/2") == ask("/versions/next") == ("2", "next", 2007)
        assert ask("/versions/3") == ask("/versions/current") == ("3", "current", 3007)
        adding(tmp_path / "4" / "model.onnx", 4000)
        until(lambda: "4" in {ask()[0]})
        assert ask("/versions/3") == ("3", "current", 3007), "it is kept"
        about = httpx2.get(f"http://{host}:{port}/v2/models/adding").json()
        assert about["versions"] == ["4", "current", "next", "2", "3"]
        gone = httpx2.post(f"http://{host}:{port}/v2/models/adding/versions/1/infer", json=body)
        assert (gone.status_code, gone.json()["error"].partition("; ")[0]) == (
            404,
            'the model "adding" has no version "1"',
        )
        assert source.grpc_address is not None
        with tritonclient.grpc.InferenceServerClient("{}:{}".format(*source.grpc_address)) as client:
            tensor = tritonclient.grpc.InferInput("x", [1], "INT64")
            tensor.set_data_from_numpy(np.array([7]))
            results = {v: client.infer("adding", [tensor], model_version=v) for v in ("2", "3", "4", "next")}
        assert {v: result.as_numpy("y").tolist() for v, result in results.items()} == {
            "2": [2007],
            "3": [3007],
            "4": [4007],
            "next": [2007],
        }
        assert results["next"].get_response().model_version == "2"
        adding(tmp_path / "2" / "model.onnx", 2500)
        until(lambda: ask("/versions/2")[2] == 2507)
        assert ask("/versions/2")[:2] == ask("/versions/next")[:2] != ("2", "next"), "it is another version 2"
    finally:
        agent.stop()
        agent.join(30)
