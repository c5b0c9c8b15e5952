"""The codec that is named to somebody who reads with a wrong one."""

import gzip

import pytest
import yaml

import streamer
from pipelines import Data
from streamer.definition.service import Service
from streamer.delivery.fitting import LARGEST, Fitting, fitting_codec
from streamer.testing import payload
from streamer.testing.running import ServiceFailed


@pytest.mark.parametrize("written", ["json", "protodata", "msgpack"])
def test_a_payload_is_told_by_what_can_read_it(written: str) -> None:
    assert fitting_codec(payload(Data({"name": "a", "x": 1.5}), written)) == Fitting(written)


REGISTRY = 'registry: {url: "http://localhost:8081"}'


@pytest.mark.parametrize(
    ("content", "codec", "why"),
    [
        (b"\0\0\0\0\x07\x0ahello", f"{{type: avro, {REGISTRY}}}", "framed by a schema registry (schema id 7); if not"),
        (
            b"\0\0\0\1\x07\0\x0a\1a",
            f"{{type: protobuf, {REGISTRY}}}",
            "registry (schema id 263); if not protobuf, type",
        ),
        (b'\0\0\0\0\x07{"a": 1}', f"{{type: json-schema, {REGISTRY}}}", "framed by a schema registry (schema id 7)"),
        (gzip.compress(b'{"a": 1}', mtime=0), "{type: compressed, codec: json}", "gzip"),
        (gzip.compress(b"hello", mtime=0), "{type: compressed, codec: NAME}", "gzip of a payload that is not known"),
        (
            gzip.compress(b'\0\0\0\0\x07{"a": 1}', mtime=0),
            f"{{type: compressed, codec: {{type: json-schema, {REGISTRY}}}}}",
            "gzip of a payload framed by a schema registry",
        ),
        (b"m1,30.5,7", "{type: csv, names: [NAME_1, NAME_2, NAME_3]}", "a row of 3 fields"),
        (b"m1;30,5;7;8;9\n", '{type: csv, names: [NAME_1, NAME_2, "..."], delimiter: ";"}', "a row of 5 fields"),
        (b"id,temp\r\nm1,30.5\r\n", "csv", "a header and a row of 2 fields"),
        (b'{"tags": [1, "a"]}', "json", ""),
    ],
    ids=str,
)
def test_a_payload_is_told_by_how_it_looks(content: bytes, codec: str, why: str) -> None:
    found = fitting_codec(content)
    assert found is not None
    assert found.in_file == codec
    assert why in found.why
    if "NAME" not in codec:
        setting = yaml.safe_load(codec)
        assert setting == found.codec
        # The setting is one that a service file takes.
        service(codec=codec)


def test_snappy_of_a_producer_is_told_although_nothing_reads_it() -> None:
    found = fitting_codec(b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1abcdefg")
    assert found is not None
    assert found.codec is None
    assert "compression.type" in found.why


def test_a_service_says_that_its_records_are_framed_by_a_registry(caplog: pytest.LogCaptureFixture) -> None:
    framed = b"\0\0\0\0\x07" + JSON
    with pytest.raises(ServiceFailed) as raised:
        streamer.testing.run(service(codec="json"), [framed] * 5)
    assert f'read with "codec: {{type: json-schema, {REGISTRY}}}" in the source memory; they look like' in str(
        raised.value
    )
    (told,) = hints(caplog)
    assert "looks_like='framed by a schema registry (schema id 7)'" in told


def test_plain_json_under_a_codec_with_a_registry_is_told() -> None:
    codec = "{type: avro, registry: {url: 'mock://fitting'}}"
    with pytest.raises(ServiceFailed, match='such payloads are read with "codec: json" in the source memory'):
        streamer.testing.run(service(codec=codec), [JSON] * 5)


@pytest.mark.parametrize("content", [b"\xff" * 50, b"hello", b"{", b"\x00", b'{"a": 1, "b": ', b"\0" * 20])
def test_of_what_nothing_reads_nothing_is_said(content: bytes) -> None:
    assert fitting_codec(content) is None


JSON = b'{"a": 1}'
TEXT = "source: {type: memory, topic: t}\npipeline: [{'@type': LOGGING}]\nsink: {type: memory, topic: o, codec: json}\n"


def service(more: str = "", codec: str = "protodata") -> Service:
    return streamer.loads(TEXT.replace("topic: t}", f"topic: t, codec: {codec}}}") + more)


def hints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "another codec reads this record" in line]


def test_a_service_with_a_wrong_codec_says_once_which_one_reads_its_records(caplog: pytest.LogCaptureFixture) -> None:
    report = streamer.testing.run(service("dead_letter: {type: memory, topic: d}"), [JSON, JSON])
    assert len(report.dead) == 2
    (told,) = hints(caplog)
    assert "codec='json'" in told
    assert "memory[0]@0" in told


@pytest.mark.parametrize("more", ["", "dead_letter: {type: memory, topic: d}\nerrors: {over: 3}"])
def test_the_error_that_stops_a_service_names_the_codec_that_reads_its_records(more: str) -> None:
    with pytest.raises(ServiceFailed, match='such payloads are read with "codec: json" in the source memory'):
        streamer.testing.run(service(more), [JSON] * 5)


@pytest.mark.parametrize("records", [[b"hello"], [b""], [b"hello", JSON]])
def test_nothing_is_said_of_records_that_are_only_broken(
    records: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    streamer.testing.run(service("on_error: drop", codec="json"), records)
    assert not hints(caplog)


def test_nothing_is_said_of_a_damaged_payload_under_the_codec_that_decompresses_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cut = gzip.compress(b'{"a": 1}', mtime=0)[:15]
    streamer.testing.run(service("on_error: drop", codec="{type: compressed, codec: json}"), [cut])
    assert not hints(caplog)


def test_a_codec_that_breaks_costs_only_the_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr("connectors.codecs.konduitjson.KonduitJson.decode", broken)
    monkeypatch.setattr("connectors.codecs.json.Json.decode", broken)
    assert fitting_codec(JSON) is None
    assert fitting_codec(payload(Data({"a": 1}), "msgpack")) == Fitting("msgpack")


def test_other_codecs_are_not_tried_on_large_payloads(caplog: pytest.LogCaptureFixture) -> None:
    large = b'{"a": "' + b"x" * LARGEST + b'"}'
    streamer.testing.run(service("on_error: drop"), [large])
    assert not hints(caplog)


def test_the_codec_of_the_source_is_not_told_although_it_reads_what_no_step_asks_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    needing = streamer.loads(
        "source: {type: memory, topic: t, codec: json}\n"
        "pipeline: [{'@type': FEATURES, fields: [a]}]\n"
        "sink: {type: memory, topic: o, codec: json}\n"
        "on_error: drop\n"
    )
    report = streamer.testing.run(needing, [b'{"a": 1e400}'])
    assert not report.results
    assert not hints(caplog)


@pytest.mark.parametrize(
    ("codec", "content"),
    [
        ("{type: avro, registry: {url: 'mock://none'}}", b"\0\0\0\0\x07\x0ahello"),
        ("{type: protobuf, registry: {url: 'mock://none'}}", b"\0\0\0\0\x07\x0ahello"),
        ("{type: csv, names: [name, x]}", b"m1,30.5,7"),
        ("{type: compressed, codec: {type: csv, names: [name, x]}}", gzip.compress(b"m1,30.5,7", mtime=0)),
    ],
)
def test_a_codec_that_the_source_has_already_is_no_hint(
    codec: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    streamer.testing.run(service("on_error: drop", codec=codec), [content])
    assert not hints(caplog)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\3\0" + bytes(17), "AWS Glue's"),
        (b"Obj\1" + bytes(9), "a whole Avro file"),
        (b"\xc3\1" + bytes(9), "single-object"),
    ],
)
def test_payloads_of_other_registries_are_told_although_nothing_reads_them(content: bytes, told: str) -> None:
    found = fitting_codec(content)
    assert found is not None
    assert found.codec is None
    assert told in found.why
