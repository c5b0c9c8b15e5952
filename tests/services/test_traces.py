"""One trace from sender over a service to the reader, over Kafka, MQTT 5, HTTP and gRPC, as a collector gets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from collector import Collector, attributes, collecting
from kafkatopics import QUICK, read, write
from mqttclient import MqttClient, publish_properties
from paho.mqtt.client import MQTTv5

import pipelines
import streamer
from connectors.http.endpoint.source import HttpSource
from pipelines import Data
from protos import open_inference_pb2 as pb
from streamer.agent.agent import Agent
from streamer.agent.running import agent_of
from streamer.devbroker import Broker
from streamer.devbroker.mqtt import MqttBroker
from streamer.tracing.traceparent import TraceContext
from streamer.tracing.traceparent import read as context_of

pytestmark = pytest.mark.slow

SENDER = TraceContext(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)
FAILING = TraceContext(0x4BF92F3577B34DA6A3CE929D0E0E4738, 0x00F067AA0BA902B7)
UNSAMPLED = TraceContext(0x4BF92F3577B34DA6A3CE929D0E0E4737, 0x00F067AA0BA902B7, 0)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as there:
        yield there


def service(
    collector: Collector, source: dict[str, Any], sink: dict[str, Any], name: str, **more: Any
) -> streamer.Service:
    return streamer.Service(
        name=name,
        source=source,
        sink=sink,
        pipeline=pipelines.Sequence([lambda data: Data({"y": data["x"] * 2})]),
        tracing={"endpoint": collector.endpoint, "sample": 0},
        **more,
    )


def of_record(collector: Collector) -> Any:
    """The one span that goes on from the sender's, which its batch links to."""
    (span,) = [each for each in collector.spans if int.from_bytes(each.trace_id, "big") == SENDER.trace]
    assert int.from_bytes(span.parent_span_id, "big") == SENDER.span
    links = [link for batch in collector.named("streamer batch") for link in batch.links]
    linked = [(int.from_bytes(link.trace_id, "big"), int.from_bytes(link.span_id, "big")) for link in links]
    assert [each for each in linked if each[0] != FAILING.trace] == [(SENDER.trace, SENDER.span)]
    return span


def named_by(span: Any) -> TraceContext:
    return TraceContext(SENDER.trace, int.from_bytes(span.span_id, "big"))


def test_over_kafka(kafka: Broker, topics: Any, tmp_path: Path, collector: Collector) -> None:
    source, out = topics(1, "traced-in"), topics(1, "traced-out")
    for context in (SENDER, UNSAMPLED):
        write(
            kafka.bootstrap, source, [b'{"x": 1}'], headers=[("traceparent", context.header()), ("tracestate", b"a=1")]
        )
    bus = {"type": "kafka", "bootstrap": kafka.bootstrap, "codec": "json"}
    with service(collector, {**bus, "topics": source, "start": "earliest"}, {**bus, "topic": out}, tmp_path.name):
        results = read(kafka.bootstrap, out, 2)
    span = of_record(collector)
    assert [dict(result.headers or ()) for result in results] == [
        {"traceparent": named_by(span).header(), "tracestate": b"a=1"},
        {"traceparent": UNSAMPLED.header(), "tracestate": b"a=1"},
    ]
    assert span.name == f"process {source}"
    found = attributes(span)
    assert (found["messaging.system"], found["messaging.kafka.offset"]) == ("kafka", 0)
    assert found["messaging.destination.partition.id"] == "0"


def test_exactly_once_and_while_another_process_takes_over(
    kafka: Broker, topics: Any, tmp_path: Path, collector: Collector
) -> None:
    source, out = topics(2, "traced-in"), topics(1, "traced-out")
    bus = {"type": "kafka", "bootstrap": kafka.bootstrap, "codec": "json"}
    ends = {**bus, "topics": source, "start": "earliest", "client": QUICK}, {**bus, "topic": out}
    once: dict[str, Any] = {"delivery": "exactly_once", "transaction": {"interval": "50ms"}}
    contexts = [TraceContext(number + 1, number + 1) for number in range(12)]

    def send(part: slice) -> None:
        for number in range(12)[part]:
            headers = [("traceparent", contexts[number].header())]
            write(kafka.bootstrap, source, [b'{"x": 1}'], number % 2, headers=headers)

    first, second = (service(collector, *ends, tmp_path.name, **once) for _ in range(2))
    send(slice(4))
    with first:
        read(kafka.bootstrap, out, 4)
        with second:
            send(slice(4, 8))
            read(kafka.bootstrap, out, 8)
            first.stop()
            send(slice(8, 12))
            results = read(kafka.bootstrap, out, 12)
    named = [context_of(dict(result.headers or ())["traceparent"] or b"") for result in results]
    spans = {int.from_bytes(each.span_id, "big"): each for each in collector.named(f"process {source}")}
    assert sorted(each.trace for each in named if each is not None) == [each.trace for each in contexts]
    for each in named:
        assert each is not None
        span = spans[each.span]
        assert int.from_bytes(span.trace_id, "big") == int.from_bytes(span.parent_span_id, "big") == each.trace
        assert attributes(span)["streamer.transaction"] == "committed"
    assert {attributes(each)["streamer.transaction"] for each in collector.named("streamer batch")} >= {"committed"}
    assert collector.named("commit")


def test_over_mqtt(mqtt_broker: MqttBroker, tmp_path: Path, collector: Collector) -> None:
    name = tmp_path.name
    bus = {"type": "mqtt", "url": mqtt_broker.url, "codec": "json"}
    address = (mqtt_broker.host, mqtt_broker.port)
    with MqttClient(*address, version=MQTTv5) as client:
        client.subscribe(f"{name}/out", 1)
        with MqttClient(*address, f"{name}-mqtt", version=MQTTv5, clean=False) as session:
            session.subscribe(f"{name}/in", 1)
        with service(collector, {**bus, "topics": f"{name}/in"}, {**bus, "topic": f"{name}/out"}, name):
            for context in (SENDER, UNSAMPLED):
                properties = publish_properties(UserProperty=[("traceparent", context.header().decode())])
                client.client.publish(f"{name}/in", b'{"x": 1}', 1, properties=properties)
            results = client.take(2)
    contexts = [dict(result.properties.UserProperty)["traceparent"].encode() for result in results]  # type: ignore[union-attr]
    assert contexts == [named_by(of_record(collector)).header(), UNSAMPLED.header()]
    assert context_of(contexts[0]) is not None


def asked(agent: Agent | None) -> HttpSource:
    assert agent is not None
    (source,) = agent.sources
    assert isinstance(source, HttpSource)
    return source


def test_over_http(collector: Collector) -> None:
    end = {"type": "http", "codec": "json"}
    with service(collector, {**end, "listen": "127.0.0.1:0"}, end, "doubles") as running:
        host, port = asked(agent_of(running)).address

        def ask(context: TraceContext, x: int | None, encoding: str = "identity") -> httpx2.Response:
            sent = {"traceparent": context.header().decode(), "accept-encoding": encoding}
            return httpx2.post(f"http://{host}:{port}/v1/doubles", content=json.dumps({"x": x}), headers=sent)

        answers = [ask(context, 1) for context in (SENDER, UNSAMPLED)]
        # The first goes the short way from the connection, the second by ASGI.
        failed = [ask(FAILING, None, encoding) for encoding in ("identity", "gzip")]
    span = of_record(collector)
    assert span.name == "infer doubles"
    assert [answer.json() for answer in answers] == [{"y": 2}] * 2
    assert answers[0].headers["traceparent"].encode() == named_by(span).header()
    assert "traceparent" not in answers[1].headers
    assert [answer.status_code for answer in failed] == [400] * 2
    assert [answer.headers["traceparent"] for answer in failed] == failed_spans(collector)


def test_over_grpc(collector: Collector) -> None:
    ends = {"type": "http", "listen": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    with service(collector, ends, {"type": "http"}, "doubles") as running:
        address = asked(agent_of(running)).grpc_address
        assert address is not None
        with grpc.insecure_channel("{}:{}".format(*address)) as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

            def ask(context: TraceContext, name: str = "x") -> Any:
                request = pb.ModelInferRequest(model_name="doubles")
                tensor = request.inputs.add(name=name, datatype="INT64", shape=[1])
                tensor.contents.int64_contents.append(1)
                call = infer.future(request.SerializeToString(), metadata=(("traceparent", context.header().decode()),))
                return call, dict(call.trailing_metadata())

            (done, named), (_, unnamed), (refused, failed) = ask(SENDER), ask(UNSAMPLED), ask(FAILING, "z")
    span = of_record(collector)
    assert span.name == "infer doubles"
    assert list(pb.ModelInferResponse.FromString(done.result()).raw_output_contents) == [b"\x02" + bytes(7)]
    assert named["traceparent"].encode() == named_by(span).header()
    assert "traceparent" not in unnamed
    assert refused.code() is not grpc.StatusCode.OK
    assert [failed["traceparent"]] == failed_spans(collector)


def failed_spans(collector: Collector) -> list[str]:
    """The headers that name the spans of requests that failed."""
    spans = [each for each in collector.spans if int.from_bytes(each.trace_id, "big") == FAILING.trace]
    assert all(each.status.code == 2 for each in spans)
    return [FAILING._replace(span=int.from_bytes(each.span_id, "big")).header().decode() for each in spans]
