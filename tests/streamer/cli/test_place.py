"""Which codec the records of a service's topics are read with."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamer.cli.place import place_named, place_of_sink

SERVICE = """
source: %s
pipeline: [{"@type": LOGGING}]
sink: {type: kafka, topic: out, codec: msgpack}
dead_letter: {type: kafka, topic: dead%s}
"""
ONE = "{type: kafka, topics: in, codec: {type: json, fields: {temp: /readings/temp}}}"
ALIKE = "[{type: kafka, name: a, topics: a, codec: json}, {type: kafka, name: b, topics: b, codec: json}]"
OTHERS = "[{type: kafka, name: a, topics: a, codec: json}, {type: kafka, name: b, topics: b, codec: csv}]"


@pytest.mark.parametrize(
    ("source", "more", "codec"),
    [
        (ONE, "", {"type": "json", "fields": {"temp": "/readings/temp"}}),
        (ALIKE, "", "json"),
        (OTHERS, "", "protodata"),
        (ONE, ", codec: text", "text"),
    ],
    ids=["one source", "sources alike", "sources that differ", "named"],
)
def test_dead_letters_are_read_as_the_records_that_they_are(
    tmp_path: Path, source: str, more: str, codec: object
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE % (source, more))
    assert place_of_sink(file, "dead_letter", None, {}).codec == codec
    assert place_of_sink(file, None, None, {}).codec == "msgpack"


def test_a_service_file_that_is_not_there_is_told_before_a_topic_of_its_name_is_looked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = place_named("orders.yaml", place_of_sink, None, {}, "json", "localhost:9092", None)
    assert found.topic == "orders.yaml"
    assert "there is no file orders.yaml here" in capsys.readouterr().err
    place_named("orders", place_of_sink, None, {}, "json", "localhost:9092", None)
    assert capsys.readouterr().err == ""
