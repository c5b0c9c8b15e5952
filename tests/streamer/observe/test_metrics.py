"""What Prometheus gets."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from observed import Quiet
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

import pipelines
from connectors.measures import Measure
from connectors.memory import MemorySinkConfig, MemorySourceConfig
from pipelines.data.batch import Batch
from pipelines.errors import DefinitionError, StreamerError
from pipelines.observe.observing import StepRun
from streamer.agent.assembly import build
from streamer.definition.service import Service
from streamer.devbroker.ports import ReservedPorts
from streamer.observe.endpoint import Endpoint
from streamer.observe.metrics import Measured, ServiceMeters


def samples(meters: ServiceMeters) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    registry = CollectorRegistry()
    registry.register(meters)
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_of_a_codec_inside_another_are_exported_under_its_own_name() -> None:
    service = Service(
        name="plant",
        source=MemorySourceConfig(topic="in", codec={"type": "compressed", "codec": "sparkplug"}),
        pipeline=pipelines.Sequence([pipelines.Logging()]),
        sink=MemorySinkConfig(topic="out"),
    )
    meters = ServiceMeters("plant", ["memory"])
    meters.connectors = build(service).measured
    labels = (("part", "source memory"), ("service", "plant"))
    assert samples(meters)["streamer_sparkplug_births_missing_total", labels] == 0


def test_every_metric_has_its_fixed_name_and_the_service_label() -> None:
    meters = ServiceMeters("digits", ["kafka"])
    meters.run.outcomes["kafka", "ok"] += 7
    meters.run.step(StepRun("0:ONNX", "OnnxRunner", 0.0, 0.002, 1, (), Batch({}, 0), {"WireError": 3}))
    meters.sources["kafka"].closed["records"] += 2
    meters.sources["kafka"].batch_records.add_one(512)
    meters.lag = lambda: {("t", 3): 40}
    meters.in_flight = lambda: 1234
    found = samples(meters)

    def value(name: str, **labels: str) -> float:
        return found[name, tuple(sorted({"service": "digits", **labels}.items()))]

    assert value("streamer_records_total", source="kafka", outcome="ok") == 7
    assert value("streamer_records_total", source="kafka", outcome="dead") == 0
    assert value("streamer_batch_records_count") == 1
    assert value("streamer_batch_closed_total", reason="records") == 2
    assert value("streamer_stage_seconds_count", stage="decode") == 0
    assert value("streamer_latency_seconds_count") == 0
    assert value("streamer_lag_records", topic="t", partition="3") == 40
    assert value("streamer_in_flight_bytes") == 1234
    assert value("streamer_oldest_unacknowledged_seconds") == 0
    assert value("streamer_step_seconds_count", step="0:ONNX") == 1
    assert value("streamer_step_errors_total", step="0:ONNX", error="WireError") == 3


def test_metrics_of_connectors_are_exported_under_their_type() -> None:
    meters = ServiceMeters("digits", ["line"])
    lost, window = Measure("sessions_lost", "Lost.", 1), Measure("window_records", "Window.", 20, "gauge")
    meters.connectors = lambda: [
        Measured("source line", "mqtt", lambda: [Measure("sessions_lost", "Lost sessions.", 2)]),
        Measured("sink alerts", "mqtt", lambda: [lost, window]),
        Measured("sink other", "my-bus.v2", lambda: [Measure("sent", "Sent.", 5)]),
    ]
    found = samples(meters)
    labels = {"service": "digits"}
    assert found["streamer_mqtt_sessions_lost_total", tuple(sorted({**labels, "part": "source line"}.items()))] == 2
    assert found["streamer_mqtt_sessions_lost_total", tuple(sorted({**labels, "part": "sink alerts"}.items()))] == 1
    assert found["streamer_mqtt_window_records", tuple(sorted({**labels, "part": "sink alerts"}.items()))] == 20
    assert found["streamer_my_bus_v2_sent_total", tuple(sorted({**labels, "part": "sink other"}.items()))] == 5


def test_measures_of_one_name_are_told_apart_by_their_labels() -> None:
    meters = ServiceMeters("s", [])
    frames = [Measure("frames", "Frames.", n, labels={"camera": name}) for n, name in ((3, "gate"), (5, "dock"))]
    other = Measure("frames", "Of no camera.", 1)
    meters.connectors = lambda: [
        Measured("source one", "camera", lambda: frames),
        Measured("sink one", "camera", lambda: [other]),
    ]
    found = [sample for family in meters.collect() for sample in family.samples if "camera" in sample.name]
    assert [(one.labels, one.value) for one in found] == [
        ({"service": "s", "part": "source one", "camera": "gate"}, 3),
        ({"service": "s", "part": "source one", "camera": "dock"}, 5),
    ]
    for label in ("part", "Camera", "a-b"):
        with pytest.raises(DefinitionError, match="invalid label name"):
            Measure("frames", "Frames.", 1, labels={label: "x"})


def test_a_connector_that_cannot_tell_its_measures_does_not_take_the_others_along() -> None:
    def broken() -> list[Measure]:
        return [Measure("Not A Name", "", 1)]

    meters = ServiceMeters("digits", ["line"])
    meters.connectors = lambda: [
        Measured("source line", "bad", broken),
        Measured("sink one", "bus", lambda: [Measure("sent", "Sent.", 5), Measure("sent", "Sent.", 5, "gauge")]),
    ]
    names = {name for name, _ in samples(meters)}
    assert "streamer_bus_sent_total" in names
    assert "streamer_batch_records_count" in names
    assert not any(name.startswith("streamer_bad") for name in names)


@pytest.mark.parametrize("name", ["", "Sent", "sent-bytes", "sent_total", "1st", "sent\n"])
def test_a_measure_has_a_name_that_metrics_can_have(name: str) -> None:
    with pytest.raises(StreamerError, match="invalid measure name"):
        Measure(name, "", 1)


class StandIn(Quiet):
    def __init__(self, name: str) -> None:
        self.meters = ServiceMeters(name, ["s"])
        self.trouble: str | None = None

    def live(self) -> str | None:
        return self.trouble


@pytest.fixture
def reserved_port() -> Iterator[int]:
    """A port of 127.0.0.1 that nobody else is given."""
    reserved = ReservedPorts(1)
    yield reserved.numbers[0]
    reserved.close()


def get(endpoint: Endpoint, path: str) -> tuple[int, bytes]:
    host, port = endpoint.address
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_the_control_port_serves_metrics_and_health() -> None:
    service = StandIn("one")
    endpoint = Endpoint.join("127.0.0.1:0", "one", service)
    try:
        status, text = get(endpoint, "/metrics")
        assert status == 200
        assert b'streamer_in_flight_bytes{service="one"} 0.0' in text
        assert get(endpoint, "/live") == get(endpoint, "/health") == (200, b'{"one": "ok"}')
        service.trouble = "broker away"
        status, body = get(endpoint, "/ready")
        assert (status, json.loads(body)) == (503, {"one": "broker away"})
        assert get(endpoint, "/nothing")[0] == 404
    finally:
        endpoint.leave("one")
    with pytest.raises(urllib.error.URLError):
        get(endpoint, "/live")


def test_services_of_one_process_share_a_port(reserved_port: int) -> None:
    listen = f"127.0.0.1:{reserved_port}"
    first = Endpoint.join(listen, "one", StandIn("one"))
    second = Endpoint.join(listen, "two", StandIn("two"))
    try:
        assert first is second
        text = get(first, "/metrics")[1]
        assert b'service="one"' in text
        assert b'service="two"' in text
        first.leave("one")
        assert get(second, "/live") == (200, b'{"two": "ok"}')
    finally:
        second.leave("two")


def test_metrics_of_services_that_share_a_port_are_one_group_each(reserved_port: int) -> None:
    listen = f"127.0.0.1:{reserved_port}"
    together = [Endpoint.join(listen, name, StandIn(name)) for name in ("one", "two")]
    try:
        lines = get(together[0], "/metrics")[1].decode().splitlines()
        declared = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
        assert len(declared) == len(set(declared)) > 10
        # All lines of a metric follow its declaration.
        begun = lines.index("# TYPE streamer_in_flight_bytes gauge")
        assert lines[begun + 1 : begun + 3] == [
            'streamer_in_flight_bytes{service="one"} 0.0',
            'streamer_in_flight_bytes{service="two"} 0.0',
        ]
    finally:
        for name in ("one", "two"):
            together[0].leave(name)


def test_services_that_share_a_port_need_names_of_their_own(reserved_port: int) -> None:
    listen = f"127.0.0.1:{reserved_port}"
    first = Endpoint.join(listen, "service", StandIn("service"))
    try:
        with pytest.raises(StreamerError, match=r'a service "service" .* there already.*a name of its own'):
            Endpoint.join(listen, "service", StandIn("service"))
        assert get(first, "/live") == (200, b'{"service": "ok"}')
    finally:
        first.leave("service")
    Endpoint.join(listen, "service", StandIn("service")).leave("service")


@pytest.mark.parametrize(
    ("label", "shown"), [(5, "5"), (None, "None"), (True, "True"), (1.5, "1.5"), ("\ud800x", "?x"), ("дом", "дом")]
)
def test_any_value_of_a_record_can_be_a_label(label: object, shown: str) -> None:
    service = StandIn("one")
    service.meters.step_metrics.of("a").labels("kinds").add(label)
    service.meters.step_metrics.of("a").labels("kinds").add(shown)
    endpoint = Endpoint.join("127.0.0.1:0", "one", service)
    try:
        status, text = get(endpoint, "/metrics")
        assert status == 200
        assert f'kinds_total{{label="{shown}",service="one",step="a"}} 2.0' in text.decode()
    finally:
        endpoint.leave("one")


def test_a_port_in_use_is_an_error_that_says_what_to_do() -> None:
    endpoint = Endpoint.join("127.0.0.1:0", "one", StandIn("one"))
    try:
        with pytest.raises(StreamerError, match="choose another"):
            Endpoint(f"127.0.0.1:{endpoint.address[1]}")
    finally:
        endpoint.leave("one")


def test_metrics_of_steps_are_exported_with_service_and_step() -> None:
    meters = ServiceMeters("digits", ["kafka"])
    for step in ("a", "outer/b"):
        own = meters.step_metrics.of(step)
        own.counter("requests", "Requests seen.").add(3)
        own.gauge("level").set(0.2)
        own.timer("my.work").record(0.003)
    labels = meters.step_metrics.of("a").labels("streamer_labels", limit=1)
    labels.add("cat", 2)
    labels.add("dog", 5)
    found = samples(meters)
    for step in ("a", "outer/b"):
        own_labels = (("service", "digits"), ("step", step))
        assert found["requests_total", own_labels] == 3
        assert found["level", own_labels] == 0.2
        assert found["my_work_seconds_count", own_labels] == 1
        assert found["my_work_seconds_sum", own_labels] == 0.003
        assert found["my_work_seconds_bucket", (("le", "0.0025"), *own_labels)] == 0
        assert found["my_work_seconds_bucket", (("le", "0.005"), *own_labels)] == 1
    assert found["streamer_labels_total", (("label", "cat"), ("service", "digits"), ("step", "a"))] == 2
    assert found["streamer_labels_total", (("label", "other"), ("service", "digits"), ("step", "a"))] == 5
