"""Which codec the records of a service's topics are read with."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamer.cli.place import place_of_sink

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
