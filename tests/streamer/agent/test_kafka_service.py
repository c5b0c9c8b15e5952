"""Kafka services: what the parts of a service file fill in for each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.errors import DefinitionError
from streamer.definition.loading import load, loads
from streamer.definition.nocode import NoCode

SHORTEST = """\
source:
  type: kafka
  topics: digits.images
pipeline: [{"@type": LOGGING}]
sink:
  type: kafka
  topic: digits.predictions
"""


def kafka(config: object) -> KafkaSourceConfig:
    assert isinstance(config, KafkaSourceConfig)
    return config


def kafka_sink(config: object) -> KafkaSinkConfig:
    assert isinstance(config, KafkaSinkConfig)
    return config


def test_the_shortest_kafka_service_needs_seven_lines(tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(SHORTEST)
    service = load(file)
    assert kafka(service.sources[0]).topics == ("digits.images",)
    assert kafka(service.sources[0]).group == "digits"
    assert kafka_sink(service.sinks[0]).topic == "digits.predictions"


def test_sinks_and_dead_letter_log_in_where_the_source_does(monkeypatch: pytest.MonkeyPatch) -> None:
    text = SHORTEST.replace("  type: kafka\n  topics", "  type: kafka\n  bootstrap: '${B}'\n  client: {C}\n  topics")
    text = text.replace("{C}", "{security.protocol: SASL_SSL, sasl.password: hunter22, fetch.min.bytes: 5}")
    service = loads(text + "dead_letter: {type: kafka, topic: digits.dead}", environment={"B": "broker:9093"})
    for sink in (service.sinks[0], service.dead_letter):
        assert kafka_sink(sink).brokers.address == kafka_sink(sink).bootstrap == "broker:9093"
        assert kafka_sink(sink).client.keys() == {"security.protocol", "sasl.password"}


def test_secrets_of_the_client_are_not_shown_not_even_in_errors() -> None:
    secret = SHORTEST.replace("  topics", "  client: {sasl.password: '${PASSWORD}'}\n  topics")
    service = loads(secret, environment={"PASSWORD": "hunter22"})
    assert "hunter22" not in repr(service)
    assert "hunter22" not in service._repr_html_()
    assert "hunter22" not in str(service.model_dump())
    with pytest.raises(DefinitionError) as raised:
        loads(secret.replace("  topics: digits.images\n", ""), environment={"PASSWORD": "hunter22"})
    assert "hunter22" not in str(raised.value)


def test_a_misspelt_field_is_named_with_its_line_and_the_right_name(tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(SHORTEST.replace("topics", "topcis"))
    with pytest.raises(
        DefinitionError, match=r'digits\.yaml:3: source\.topcis: no such field; did you mean "topics"\?$'
    ):
        load(file)


def test_a_topic_made_from_values_needs_its_allowed_topics() -> None:
    text = SHORTEST.replace("digits.predictions", "digits.{label}")
    with pytest.raises(DefinitionError, match=r"^<text>:7: sink\.topic: .*`topics` must list"):
        loads(text)
    allowed = loads(text + "  topics: ^digits[.]\n  timestamp: source\n  key: label\n")
    assert kafka_sink(allowed.sinks[0]).topics == ("^digits[.]",)


def test_brokers_that_no_file_names_are_those_of_the_environment_also_without_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "broker:9093")
    text = SHORTEST + "dead_letter: {type: kafka, topic: digits.dead}\n"
    for no_code in (None, NoCode.of()):
        service = loads(text, no_code=no_code)
        assert service.dead_letter is not None
        for config in (*service.sources, *service.sinks, service.dead_letter):
            assert isinstance(config, KafkaSourceConfig | KafkaSinkConfig)
            assert config.brokers.address == "broker:9093"
    given = loads(text, environment={"KAFKA_BOOTSTRAP_SERVERS": "given:9093"})
    assert kafka(given.sources[0]).brokers.address == "given:9093"
    assert kafka_sink(loads(text, environment={}).sinks[0]).brokers.address == "localhost:9092"


def test_a_wrong_address_in_the_environment_is_told_with_the_place_that_needs_it() -> None:
    with pytest.raises(
        DefinitionError, match=r"source: the environment variable KAFKA_BOOTSTRAP_SERVERS: .* is not a port"
    ):
        loads(SHORTEST, environment={"KAFKA_BOOTSTRAP_SERVERS": "k:0"})
