"""The fields `key` and `headers` of sources: which there are, and which mistakes are named."""

from __future__ import annotations

import pytest

from pipelines.errors import DefinitionError
from streamer.definition.loading import loads
from streamer.definition.service import Service


def load(source: str) -> Service:
    return loads(f"source: {{{source}}}\npipeline: []\nsink: {{type: memory, topic: out}}\non_error: drop")


KAFKA = "type: kafka, topics: in"


@pytest.mark.parametrize(
    ("source", "key", "headers"),
    [
        (KAFKA, None, {}),
        (f"{KAFKA}, headers: true", None, {}),
        (f"{KAFKA}, headers: false", None, {}),
        (f"{KAFKA}, key: long, headers: {{seq: int}}, into: {{headers.seq: seq}}", "long", {"seq": "int"}),
        ("type: memory, topic: in, key: uuid, headers: {a: text}, into: {headers.a: a}", "uuid", {"a": "text"}),
        ("type: mqtt, topics: 'a/{b}', key: b, headers: {a: text}, into: {headers.a: a}", None, {"a": "text"}),
        ("type: http, key: headers.b, headers: {a: bytes}, into: {headers.a: a}", None, {"a": "bytes"}),
        ("type: mqtt_endpoint, headers: {a: double}, into: {headers.a: a}", None, {"a": "double"}),
    ],
)
def test_sources_say_the_types_of_keys_and_headers(source: str, key: str | None, headers: dict[str, str]) -> None:
    (config,) = load(source).sources
    assert (config.key_type, config.header_types) == (key, headers)


@pytest.mark.parametrize(("headers", "read"), [("true", True), ("false", False), ("{}", True)])
def test_headers_of_kafka_are_read_unless_the_source_says_false(headers: str, read: bool) -> None:
    (config,) = load(f"{KAFKA}, headers: {headers}").sources
    assert getattr(config, "reads_headers") is read  # noqa: B009 - only Kafka's has it


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (f"{KAFKA}, key: lnog", r"<text>:1: source\.key: .*'long', 'int', 'double', 'uuid'"),
        ("type: memory, topic: in, headers: {seq: huge}, into: {headers.seq: s}", r"source\.headers\.seq"),
        (
            f"{KAFKA}, headers: {{seq: long}}, into: {{headers.sep: seq}}",
            r'the type of "seq" has no use.*did you mean "sep"\?; write into: \{headers\.seq: KEY\}',
        ),
        ("type: mqtt, topics: in, headers: {seq: long}", r'the type of "seq" has no use'),
        ("type: mqtt, topics: 'a/{b}', key: long", r'key: "long" is not a named level'),
        (f"{KAFKA}, headers: false, into: {{headers.a: a}}", "leaves all headers unread"),
    ],
)
def test_mistakes_are_named_with_what_to_do(source: str, error: str) -> None:
    with pytest.raises(DefinitionError, match=error):
        load(source)
