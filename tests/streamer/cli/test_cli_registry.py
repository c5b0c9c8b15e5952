"""What `streamer check --connect` says of schema registries."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import Schema

from connectors.codecs.schemas.registry import mock_registry

SERVICE = """
source: {{type: memory, topic: in, codec: {{type: avro, registry: {{url: "{source}"}}}}}}
pipeline: {{"@type": SEQUENCE_PIPELINE, steps: []}}
sink: {{type: memory, topic: out, codec: {{type: compressed, codec: {{type: avro, registry: {sink}}}}}}}
"""
SCORE = '{"type":"record","name":"Score","fields":[{"name":"score","type":"double"}]}'


def test_the_schema_of_results_is_shown(cli: Any, tmp_path: Path) -> None:
    url = f"mock://{uuid.uuid4()}"
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE.format(source=url, sink=f'{{url: "{url}", auto_register: true, strategy: topic}}'))
    told = " ".join(cli("check", "--connect", str(file)).out.split())
    assert "has no subject out-value yet: a schema is derived from the first results" in told
    mock_registry(url).register_schema("out-value", Schema(SCORE, "AVRO"))
    ended = cli("check", "--connect", "--json", str(file))
    assert ended.code == 0
    assert "has the subject out-value" in ended.out
    assert "score" in ended.out


def test_a_registry_that_does_not_answer_is_named(cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE.format(source="http://127.0.0.1:9", sink='{url: "http://127.0.0.1:9"}'))
    assert cli("check", str(file)).code == 0
    ended = cli("check", "--connect", str(file))
    assert ended.code == 1
    assert "http://127.0.0.1:9 does not answer" in " ".join(ended.out.split())
