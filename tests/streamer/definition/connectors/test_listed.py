"""The sink of a shadow's results is read and checked as every other connector of a service is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from addingmodels import adding

import streamer
from pipelines.errors import DefinitionError
from streamer.build.uses import used_by
from streamer.cli.place import place_of_sink
from streamer.definition.circles import circle
from streamer.definition.connectors.listed import connectors_of
from streamer.definition.connectors.written import Written
from streamer.definition.nocode import NoCode
from streamer.definition.refusals import refused
from streamer.definition.service import Service
from streamer.faust.fitting import check_service
from streamer.observe.configuration import configuration
from streamer.testing.registries import registries_in_memory
from streamer.workers.division import refusals

SERVICE = """\
source: {type: kafka, topics: [in], bootstrap: "b:9092"}
pipeline: [{"@type": ONNX, modelUri: models}]
sink: {type: kafka, topic: out}
dead_letter: {type: kafka, topic: dead}
variants:
  shadow:
    version: 2
    sink:
      type: kafka
      topic: in
      client: {sasl.password: hunter2hunter2}
      outbox: {path: shadow.outbox}
      codec:
        type: avro
        schema: shadow.avsc
        registry: {url: "http://registry.invalid"}
"""
PLAIN = SERVICE.partition("      client")[0]


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Service]:
    """Loads a service file with this text."""

    def loaded(text: str = SERVICE, **options: Any) -> Service:
        file = tmp_path / "service.yaml"
        file.write_text(text)
        schema = {"type": "record", "name": "R", "fields": [{"name": "y", "type": "long"}]}
        (tmp_path / "shadow.avsc").write_text(json.dumps(schema))
        return streamer.load(file, **options)

    return loaded


@pytest.mark.parametrize(
    ("written", "instead", "line", "says"),
    [
        ("topic: in\n", "toppic: in\n", 10, 'shadow.sink.toppic: no such field; did you mean "topic"?'),
        ("type: kafka\n      topic: in", "type: http", 9, "shadow.sink.type: a sink of type http answers clients"),
        ("type: kafka\n", "type: mqtt_endpoint\n", 9, "shadow.sink.type: a sink of type mqtt_endpoint answers"),
        ("topic: in\n", "topic: in\n      errors: true\n", 11, "shadow.sink.errors: a shadow answers nobody"),
        ("topic: in\n", "topic: in\n      when_full: wait\n", 11, "shadow.sink.when_full: nothing ever waits"),
        ("topic: in\n", "topic: in\n      name: dead_letter\n", 11, 'shadow.sink.name: a sink has the name "dead_let'),
        ("topic: in\n", 'topic: "s.{y}"\n', 10, '"s.{y}" is made from values, so `topics` must list'),
        ("topic: in\n", "topic: in\n      sources: [camera]\n", 11, 'the service has no source "camera"'),
        ("  shadow:\n", "  next:\n", 8, "variants.next.sink: only shadow has a sink of its own"),
    ],
)
def test_a_sink_that_a_shadow_cannot_have_is_an_error_with_file_line_and_key(
    load: Callable[..., Service], written: str, instead: str, line: int, says: str
) -> None:
    with pytest.raises(DefinitionError) as raised:
        load(PLAIN.replace(written, instead))
    assert f"service.yaml:{line}: variants." in str(raised.value)
    assert says in str(raised.value)


def test_a_sink_of_a_shadow_is_checked_in_python_too() -> None:
    kafka = {"type": "kafka", "bootstrap": "b:9092"}
    parts: dict[str, Any] = {"source": {**kafka, "topics": "in"}, "pipeline": [], "sink": {**kafka, "topic": "out"}}
    with pytest.raises(ValueError, match=r"variants\.shadow\.sink\.type\s+a sink of type http answers clients"):
        Service(**parts, variants={"shadow": {"version": 2, "sink": {"type": "http"}}})
    service = Service(**parts, variants={"shadow": {"version": 2, "sink": {"type": "kafka", "topic": "shadow"}}})
    assert service.shadow_sink is not None
    assert (service.shadow_sink.label, service.shadow_sink.place) == ("shadow", "shadow")
    assert service.shadow_sink.model_dump()["bootstrap"] == "b:9092", "it has the address of the source"


def test_what_is_asked_of_every_connector_is_asked_of_the_sink_of_a_shadow(
    load: Callable[..., Service], tmp_path: Path
) -> None:
    service = load()
    assert [each.part for each in connectors_of(service)] == [
        "source kafka",
        "sink kafka",
        "sink dead_letter",
        "sink shadow",
    ]
    shown = json.dumps(configuration(service))
    assert '"topic": "in"' in shown
    assert "hunter2" not in shown
    assert "fastavro" in {package.name for package in used_by(service).packages}
    assert place_of_sink(tmp_path / "service.yaml", "shadow", None, {}).topic == "in"
    (why,) = refusals(service, service)
    assert "service.yaml:12: " in why
    assert 'sink "shadow": outbox.path: all workers would have ' in why
    assert service.shadow_sink is not None
    back = circle(service.shadow_sink, service)
    assert back == "the source kafka reads in, too: results come back"
    parts = {refusal.part for refusal in refused(service.without_code(NoCode.of()))}
    assert "sink shadow" in parts
    with registries_in_memory(service, {}) as changed:
        assert changed.shadow_sink is not None
        assert "registry.invalid" not in str(changed.shadow_sink.codec)


def test_a_service_in_a_faust_app_has_no_sink_for_a_shadow(load: Callable[..., Service], tmp_path: Path) -> None:
    service = load(PLAIN)
    with pytest.raises(DefinitionError, match=r"service.yaml:8: variants\.shadow\.sink: not possible inside Faust"):
        check_service(service, Written.of(tmp_path / "service.yaml"))


def test_check_looks_at_the_sink_of_a_shadow(tmp_path: Path, cli: Any) -> None:
    for number in (1, 2):
        adding(tmp_path / "models" / str(number) / "model.onnx", number)
    (tmp_path / "service.yaml").write_text(
        """
source: {type: memory, topic: in}
pipeline: [{"@type": ONNX, modelUri: models}]
sink: {type: memory, topic: out}
on_error: drop
variants:
  shadow: {version: 2, sink: {type: kafka, bootstrap: "b:9092", topic: "shadow.{z}", topics: ["^shadow"]}}
"""
    )
    ended = cli("check", tmp_path / "service.yaml", "--json")
    (report,) = json.loads(ended.out)["services"]
    looked, keys = (each for each in report["findings"] if each["part"] == "sink shadow")
    assert looked["ok"]
    assert looked["text"].startswith("kafka shadow.{z}, codec protodata")
    assert not keys["ok"]
    assert "z" in keys["text"]
    (variants,) = (each["text"] for each in report["findings"] if each["part"] == "variants")
    assert variants.endswith("gets a copy, and its results are compared and sent to kafka shadow.{z}")
    assert ended.code == 2
