"""CloudEvents: both modes are read and written, attributes become values and are made from them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from connectors.codec import Codec, Decoded, RecordsOrigin
from connectors.codecs.cloudevents.config import CloudEventsConfig
from connectors.codecs.cloudevents.events import binary, milliseconds, structured, timestamp
from connectors.codecs.registry import codec_of
from connectors.contract import CodecContract
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from connectors.message import Message
from connectors.records import Records
from pipelines import Batch, Data
from pipelines.errors import DefinitionError, WireError
from streamer import testing
from streamer.definition.service import Service

Block = Callable[..., Records]
BARE: dict[str, Any] = {"specversion": "1.0", "id": "7", "source": "/press", "type": "measured"}
HEADERS = [(f"ce_{name}", value.encode()) for name, value in BARE.items()]


def event(**more: Any) -> bytes:
    return json.dumps({**BARE, **more}).encode()


def read(block: Block, payload: bytes, headers: list[tuple[str, bytes]] | None = None, **fields: Any) -> Decoded:
    return codec_of({"type": "cloudevents", **fields}).decode(block([payload], [headers]), None)


class TestStructured(CodecContract):
    bad = (
        b"",
        b"[1]",
        b"{}",
        b"\xff",
        event(data=[1]),
        event(data={"n": 1}, data_base64="e30="),
        event(data_base64="{}"),
        event(id=""),
        event(id=7),
        event(Extension=1),
        event(extension=1.5),
        event(extension=1 << 31),
        event(extension={}),
        event(extension="\ud800"),
        event(time="yesterday"),
        event(data={"n": 1})[:-1] + b',"x":NaN}',
        b'{"a":' * 5000,
        7,
    )

    @pytest.fixture
    def codec(self) -> Codec:
        return CloudEventsConfig(attributes={"type": "kind"}, write={"id": "{n}", "type": "{kind}"}).build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"n": 7, "who": "é", "list": [1.5, 2.5], "kind": "measured"})


class TestStructuredBytes(CodecContract):
    bad = (b"", event(id=None), event(data="text", datacontenttype="image/png")[:-1])
    unwritable = (Data({"bytes": 7}),)

    @pytest.fixture
    def codec(self) -> Codec:
        return CloudEventsConfig(codec="raw", write={"id": "1"}).build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"bytes": b"\x00\xff"})


@pytest.mark.parametrize("codec", ["json", "protodata", "text", {"type": "compressed", "codec": "json"}])
@pytest.mark.parametrize("mode", ["structured", "binary"])
@pytest.mark.parametrize("prefix", ["ce_", ""])
def test_events_written_in_either_mode_are_read_by_the_same_codec(
    codec: Any, mode: str, prefix: str, block: Block
) -> None:
    same = codec_of(
        {
            "type": "cloudevents",
            "codec": codec,
            "mode": mode,
            "prefix": prefix,
            "write": {"id": "1", "count": "{text}", "on": "yes"},
            "attributes": {"on": "on", "id": "id"},
        }
    )
    encoded = same.encode(Batch.of([Data({"text": "häuser"})] * 3))
    assert not encoded.failed
    found = same.decode(block(encoded.values, encoded.headers), None)
    assert not found.failed
    expected = Data({"text": "häuser", "id": "1", "on": "yes"})
    assert found.batch.to_list() == [expected] * 3


def test_events_in_both_modes_and_without_data_stand_side_by_side(block: Block) -> None:
    codec = codec_of({"type": "cloudevents", "attributes": {"source": "device", "time": "ts", "subject": "subject"}})
    last = event(data={"n": 3}, subject="s", time="1970-01-01T00:00:01Z")
    payloads = [event(data={"n": 1}), event(), b'{"n": 2}', b"", None, b"{}", last]
    headers = [
        [("content-type", b"application/cloudevents+json; charset=UTF-8")],
        None,
        [*HEADERS, ("content-type", b"application/json")],
        HEADERS,
        HEADERS,
        None,
        [("Content-Type", b"application/json")],
    ]
    found = codec.decode(block(payloads, headers), None, first=10)
    assert found.batch.rows.tolist() == [10, 11, 12, 13, 16]
    assert found.batch.to_list() == [
        Data({"n": 1, "device": "/press"}),
        Data({"device": "/press"}),
        Data({"n": 2, "device": "/press"}),
        Data({"device": "/press"}),
        Data({"n": 3, "device": "/press", "subject": "s", "ts": 1000}),
    ]
    assert str(found.failed[15]) == "the payload is not a CloudEvent: it lacks specversion, id, source, type"


def test_headers_of_the_event_are_removed_from_the_headers_of_its_record(block: Block) -> None:
    headers = [*HEADERS, ("content-type", b"application/json"), ("trace", b"1")]
    origin = read(block, b"{}", headers).batch.origin
    assert isinstance(origin, RecordsOrigin)
    assert origin.records.context(0).headers == (("trace", b"1"),)


@pytest.mark.parametrize(
    ("payload", "headers", "told"),
    [
        (event(specversion="0.3"), None, "is of version '0.3', not '1.0'"),
        (
            b"{}",
            [("content-type", b"application/cloudevents-batch+json")],
            "application/cloudevents-batch[+]json cannot",
        ),
        (b"{}", [("ce_specversion", b"1.0"), ("ce_id", b"1")], "it lacks source, type"),
        (b"{}", [*HEADERS, ("ce_no-name", b"x")], "invalid attribute name 'no-name' of the CloudEvent"),
        (event(data=1, datacontenttype="text/plain"), None, "are text/plain, so that they should be text"),
        (event(data_base64=7), None, "not valid base64"),
        (event(subject=""), None, "the subject of the CloudEvent is not text, or is empty"),
        (event(data={"n": 1})[:-2] + b',"m":1e400}}', None, "the data of the CloudEvent cannot be read"),
    ],
)
def test_a_bad_event_says_what_is_wrong(payload: bytes, headers: Any, told: str, block: Block) -> None:
    with pytest.raises(WireError, match=told):
        raise read(block, payload, headers).failed[0]


def test_event_data_become_a_payload_by_their_datacontenttype(block: Block) -> None:
    found = [
        read(block, payload, codec="raw").batch.row(0)["bytes"]
        for payload in (
            event(data="text"),
            event(data="text", datacontenttype="text/plain"),
            event(data={"é": [1, 1.5, None]}, datacontenttype="application/vnd.x+json; v=1"),
            event(data_base64=base64.b64encode(b"\xff").decode(), datacontenttype="image/png"),
        )
    ]
    assert found == [b'"text"', b"text", '{"é":[1,1.5,null]}'.encode(), b"\xff"]


def test_extensions_keep_their_types_in_json(block: Block) -> None:
    found = read(block, event(data={}, n=7, on=True, off=None), attributes={"n": "n", "on": "on", "off": "off"})
    assert found.batch.to_list() == [Data({"n": 7, "on": True})]


def test_an_event_that_is_too_large_fails(block: Block) -> None:
    found = read(block, event(data={"text": "x" * 200}), max_bytes=100)
    assert "raise max_bytes of the codec" in str(found.failed[0])


def service(**codec: Any) -> Service:
    return Service(
        name="events",
        source=MemorySourceConfig(topic="in", codec="json"),
        pipeline=pipelines.Sequence([pipelines.Logging()]),
        sink=MemorySinkConfig(topic="out", codec={"type": "cloudevents", **codec}),
        dead_letter=MemorySinkConfig(topic="dead"),
    )


def test_events_are_made_from_values_and_records() -> None:
    content = b'{"n": 7, "line": "a b", "on": true}'
    sent = Message(content, b"press", (("content-type", b"application/json"), ("trace", b"1")), 1500)
    write = {
        "source": "/plant/{line}",
        "type": "score.{n}",
        "subject": "{record.key}",
        "on": "{on}",
        "count": "{n}",
        "trace": "{record.headers.trace}",
        "none": "{missing}",
    }
    made = {
        "specversion": "1.0",
        "source": "/plant/a b",
        "type": "score.7",
        "time": "1970-01-01T00:00:01.500Z",
        "subject": "press",
        "trace": "1",
        "datacontenttype": "application/json",
    }
    (message,) = testing.run(service(write=write), [sent]).sinks["memory"]
    found = json.loads(message.value)
    assert found.pop("id").endswith("/0/0")
    assert found == {**made, "on": True, "count": 7, "data": {"n": 7, "line": "a b", "on": True}}
    assert message.headers == (("trace", b"1"), ("content-type", b"application/cloudevents+json"))

    (message,) = testing.run(service(write=write, mode="binary"), [sent]).sinks["memory"]
    assert json.loads(message.value) == {"n": 7, "line": "a b", "on": True}
    headers = {name: (value or b"").decode() for name, value in message.headers}
    assert headers.pop("ce_id").endswith("/0/0")
    assert headers.pop("content-type") == made.pop("datacontenttype")
    ce = {f"ce_{name}": value for name, value in made.items()}
    assert headers == {"trace": "1", **ce, "ce_on": "true", "ce_count": "7"}


def test_ids_are_unique_and_those_of_a_record_that_is_tried_again_are_the_same(block: Block) -> None:
    codec = codec_of({"type": "cloudevents"})
    records = block([b"{}"] * 3)
    origin = RecordsOrigin(records, 10)
    # The second record has two results, and the last result came from two records.
    batch = Batch(
        {}, 4, rows=pipelines_rows([10, 11, 11, 11, 12]), splits=pipelines_rows([0, 1, 2, 3, 5]), origin=origin
    )
    ids = [json.loads(value or b"")["id"] for value in codec.encode(batch).values]
    assert ids == ["topic/0/100", "topic/0/101", "topic/0/101#2", "topic/0/101..topic/0/102"]
    assert [json.loads(value or b"")["id"] for value in codec.encode(batch).values] == ids


def pipelines_rows(numbers: list[int]) -> Any:
    import numpy as np

    return np.array(numbers, np.int64)


def test_a_result_that_lacks_what_an_attribute_needs_fails_alone() -> None:
    codec = codec_of({"type": "cloudevents", "write": {"id": "{id}", "time": "{time}"}})
    rows = [
        Data({"id": "1"}),
        Data({"n": 1}),
        Data({"id": ""}),
        Data({"id": 1.5}),
        Data({"id": "2", "time": "now"}),
        Data({"id": "3", "time": 1 << 60}),
        Data({"id": "4", "time": "2025-03-01T12:00:00+01:00"}),
    ]
    encoded = codec.encode(Batch.of(rows))
    assert sorted(encoded.failed) == [1, 2, 3, 4, 5]
    assert str(encoded.failed[1]) == "the id of the event cannot be made: a value that '{id}' names is missing or empty"
    assert "of type DOUBLE" in str(encoded.failed[3])
    assert json.loads(encoded.values[6] or b"")["time"] == "2025-03-01T12:00:00+01:00"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"attributes": {"Source": "x"}}, "invalid attribute name"),
        ({"attributes": {"source": "@type"}}, "reserved"),
        ({"write": {"data": "x"}}, "invalid attribute name"),
        ({"write": {"specversion": "2"}}, "is not made from values"),
        ({"write": {"id": None}}, "cannot be without id"),
        ({"write": {"subject": "{"}}, "stray brace"),
        ({"write": {"subject": "{record.keys}"}}, "there are record.key"),
        ({"codec": "jsn"}, 'did you mean "json"'),
    ],
)
def test_options_that_do_not_fit_are_refused_when_they_are_loaded(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        codec_of({"type": "cloudevents", **fields})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01.999999z", 1999),
        ("1969-12-31T23:59:59.5Z", -500),
        ("2025-03-01T12:00:00.123456789+01:30", 1740825000123),
    ],
)
def test_times_are_those_of_rfc_3339(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "2025-03-01", "2025-03-01T12:00:00", "2025-02-30T12:00:00Z", "20250301T120000Z", 7]
)
def test_times_that_are_not_rfc_3339_are_refused(text: Any) -> None:
    with pytest.raises(WireError, match="the time of the CloudEvent"):
        milliseconds(text)


@given(st.integers(-62135596800000, 253402300799999))
def test_times_are_written_as_they_are_read(moment: int) -> None:
    assert milliseconds(timestamp(moment)) == moment


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)


@given(
    document=st.dictionaries(st.sampled_from([*BARE, "data", "data_base64", "time", "x"]), JSON), whole=st.booleans()
)
def test_any_json_object_is_an_event_or_refused(document: dict[str, Any], whole: bool) -> None:
    payload = json.dumps({**BARE, **document} if whole else document).encode()
    try:
        found = structured(payload)
    except WireError:
        return
    assert {"id", "source", "type"} <= found.attributes.keys()


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8)), st.binary(max_size=20))
def test_any_headers_make_an_event_or_are_refused(more: dict[str, str], payload: bytes) -> None:
    try:
        assert binary({**BARE, **more}, None, payload).data == (payload or None)
    except WireError:
        pass


def test_headers_of_the_codec_inside_are_those_of_the_message_in_binary_mode_only() -> None:
    for mode, expected in (("binary", [b"gzip"]), ("structured", [])):
        codec = codec_of(
            {"type": "cloudevents", "mode": mode, "codec": {"type": "compressed", "codec": "json", "by": "headers"}}
        )
        (headers,) = codec.encode(Batch.of([Data({"n": 1})])).headers or ()
        assert [value for name, value in headers if name == "content-encoding"] == expected
