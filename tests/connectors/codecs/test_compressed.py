"""Compressed payloads: read and written, beside such as are not, and never larger than is allowed."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from connectors.codec import Codec, RecordsOrigin
from connectors.codecs.compressed import CompressedConfig
from connectors.codecs.compression import FORMATS, MOST_MEMBERS, Zstd
from connectors.codecs.registry import codec_of
from connectors.contract import CodecContract
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from connectors.message import Message
from connectors.records import Lane, Records, Span
from pipelines import Batch, Data
from pipelines.errors import DefinitionError, MissingPackageError, WireError
from pipelines.hotpath import choosing
from streamer import testing
from streamer.build.uses import used_by
from streamer.definition.schema import service_schema
from streamer.definition.service import Service
from streamer.routing.sinkroute import SinkRoute

Block = Callable[..., Records]
EACH = pytest.mark.parametrize("name", list(FORMATS))
BOMB = 64 << 20


class TestDetected(CodecContract):
    bad = (b"\x1f\x8b\x08", gzip.compress(b"no message"), gzip.compress(b"{}")[:-1], 7)

    @pytest.fixture
    def codec(self) -> Codec:
        return CompressedConfig(codec="konduit-json").build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"x": np.arange(3.0), "n": 7, "who": "é"})


@pytest.mark.usefixtures("hot_path")
class TestGzip(CodecContract):
    bad = (b"", b"{}", gzip.compress(b"\xff"))
    unwritable = ()

    @pytest.fixture
    def codec(self) -> Codec:
        return CompressedConfig(by="gzip").build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"x": np.arange(3.0), "n": 7, "nested": {"l": [1, 2]}})


class TestZstd(CodecContract):
    bad = (b"", b"some text", gzip.compress(b"some text"))
    unwritable = (Data({"text": 7}),)

    @pytest.fixture
    def codec(self) -> Codec:
        return CompressedConfig(codec="text", by="zstd", level=19).build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"text": "häuser"})


@EACH
@given(content=st.lists(st.binary(max_size=200), min_size=1, max_size=5), more=st.integers(0, 3))
def test_all_members_of_a_payload_are_read(name: str, content: list[bytes], more: int) -> None:
    form = FORMATS[name]
    whole = b"".join(content)
    payload = b"".join(form.compressed(one, None) for one in content)
    assert form.decompressed(payload, max(len(whole) + more, 1)) == whole


@EACH
@given(payload=st.binary(max_size=300), cut=st.integers(0, 400), noise=st.binary(max_size=20))
def test_damaged_bytes_are_refused_or_read_and_nothing_else(name: str, payload: bytes, cut: int, noise: bytes) -> None:
    form = FORMATS[name]
    good = form.compressed(payload, None)
    for damaged in (good[:cut], good[:cut] + noise + good[cut + len(noise) :], good + noise, form.magic + noise, noise):
        try:
            assert len(form.decompressed(damaged, 1000)) <= 1000
        except WireError:
            pass


@EACH
def test_a_payload_that_is_cut_off_is_refused_wherever_it_is_cut(name: str) -> None:
    form = FORMATS[name]
    payload = form.compressed(b"one message", None)
    for end in range(len(payload)):
        with pytest.raises(WireError, match="ends in the middle"):
            form.decompressed(payload[:end], 1000)


@EACH
def test_bytes_after_the_compressed_data_are_refused(name: str) -> None:
    form = FORMATS[name]
    for garbage in (b"x", b"\0" * 8, b"garbage"):
        with pytest.raises(WireError, match=f"{len(garbage)} bytes follow the {name} data"):
            form.decompressed(form.compressed(b"one message", None) + garbage, 1000)


@pytest.mark.slow
@EACH
def test_a_bomb_is_refused_before_it_is_memory(name: str) -> None:
    form = FORMATS[name]
    bomb = form.compressed(bytes(BOMB), None)
    assert len(bomb) < BOMB // 500
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="more than 1048576 bytes when decompressed; raise max_size"):
            form.decompressed(bomb, 1 << 20)
        # So is one that is made of many members.
        with pytest.raises(WireError, match="more than 1048576 bytes"):
            form.decompressed(form.compressed(bytes(300_000), None) * 4, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@EACH
def test_the_largest_payload_that_is_allowed_is_read(name: str) -> None:
    form = FORMATS[name]
    assert len(form.decompressed(form.compressed(bytes(1000), None), 1000)) == 1000
    with pytest.raises(WireError, match="more than 1000 bytes"):
        form.decompressed(form.compressed(bytes(1001), None), 1000)


@EACH
def test_endless_empty_members_are_refused(name: str) -> None:
    with pytest.raises(WireError, match=f"more than {MOST_MEMBERS}"):
        FORMATS[name].decompressed(FORMATS[name].compressed(b"", None) * 500_000, 1000)


def zstd() -> Any:
    return Zstd()._library


def test_zstd_frames_without_a_size_and_frames_to_skip_are_read() -> None:
    library = zstd()
    compressor = library.ZstdCompressor()
    frame = compressor.compress(b"message") + compressor.flush()
    assert library.get_frame_info(frame).decompressed_size is None
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
    assert FORMATS["zstd"].decompressed(skipped + frame + skipped, 100) == b"message"


def test_a_zstd_frame_that_asks_for_a_window_of_gigabytes_is_refused() -> None:
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x01\x00\x00"
    with pytest.raises(WireError, match="too much memory"):
        FORMATS["zstd"].decompressed(frame, 16 << 20)


def test_payloads_that_are_not_compressed_are_read_beside_others(block: Block) -> None:
    one = b'{"n": 1}'
    codec = codec_of({"type": "compressed", "codec": "json"})
    made = FORMATS["zstd"].compressed(one, None)
    found = codec.decode(block([one, gzip.compress(one), None, made, one]), None, first=10)
    assert found.batch.to_list() == [Data({"n": 1})] * 4
    assert found.batch.rows.tolist() == [10, 11, 13, 14]


@pytest.mark.parametrize(
    "headers",
    [
        [("content-encoding", b"gzip")],
        [("Content-Encoding", b"X-GZIP ")],
        [("content-encoding", b"zstd"), ("content-encoding", b"gzip")],
        [("content-type", b"application/gzip")],
        [("Content-Type", b"application/json+gzip; charset=utf-8")],
    ],
)
def test_headers_say_what_is_compressed(block: Block, headers: list[tuple[str, bytes]]) -> None:
    codec = codec_of({"type": "compressed", "codec": "raw", "by": "headers"})
    packed = gzip.compress(b"message")
    plain: list[Any] = [None, [], [("content-encoding", b"identity")], [("content-type", b"image/jpeg")]]
    found = codec.decode(block([packed] * 5, [headers, *plain]), None)
    assert [data["bytes"] for data in found.batch.to_list()] == [b"message", *[packed] * 4]


def test_an_encoding_that_is_not_known_fails_its_record_alone(block: Block) -> None:
    codec = codec_of({"type": "compressed", "codec": "raw", "by": "headers"})
    headers = [None, [("content-encoding", b"br")], [("content-encoding", b"gzip, gzip")]]
    found = codec.decode(block([b"message"] * 3, headers), None, first=5)
    assert found.batch.rows.tolist() == [5]
    assert str(found.failed[6]) == 'the content-encoding "br" is not one of gzip, zstd and identity'
    assert sorted(found.failed) == [6, 7]


def test_results_say_their_own_encoding_and_not_that_of_their_records() -> None:
    by_headers = {"type": "compressed", "codec": "text", "by": "headers"}
    service = Service(
        name="packed",
        source=MemorySourceConfig(topic="in", codec=by_headers),
        pipeline=pipelines.Sequence([pipelines.Logging()]),
        sink=[
            MemorySinkConfig(name="plain", topic="plain", codec="text"),
            MemorySinkConfig(name="zstd", topic="z", codec={**by_headers, "write": "zstd"}),
        ],
        dead_letter=MemorySinkConfig(topic="dead"),
    )
    packed = gzip.compress(b"message")
    bad = Message(packed[:-1], headers=(("content-encoding", b"gzip"), ("trace", b"2")))
    report = testing.run(service, [Message(packed, headers=(("content-encoding", b"gzip"), ("trace", b"1"))), bad])
    (plain,) = report.sinks["plain"]
    assert plain.value == b"message"
    assert plain.headers == (("trace", b"1"),)
    (made,) = report.sinks["zstd"]
    assert made.headers == (("trace", b"1"), ("content-encoding", b"zstd"))
    assert report.decoded["zstd"] == [Data({"text": "message"})]
    # The record that failed goes to the dead letter as it came.
    assert [one.message.value for one in report.dead] == [packed[:-1]]
    assert ("content-encoding", b"gzip") in report.dead[0].message.headers


def test_records_of_a_batch_keep_their_own_payloads_as_origin(block: Block) -> None:
    records = block([gzip.compress(b"message")])
    origin = codec_of({"type": "compressed", "codec": "raw"}).decode(records, None).batch.origin
    assert isinstance(origin, RecordsOrigin)
    assert origin.records.values == records.values


def test_a_higher_level_compresses_more() -> None:
    batch = Batch.of([Data({"text": "".join(str(number**3) for number in range(20_000))})])
    for form, levels in (("gzip", (0, 9)), ("zstd", (1, 22))):
        quick, hard = (
            CompressedConfig.model_validate({"codec": "text", "by": form, "level": level})
            .build()
            .encode(batch)
            .values[0]
            for level in levels
        )
        assert quick is not None
        assert hard is not None
        assert len(hard) < len(quick)


def test_the_same_payload_makes_the_same_bytes() -> None:
    assert FORMATS["gzip"].compressed(b"message", 6) == FORMATS["gzip"].compressed(b"message", None)
    assert zlib.decompress(FORMATS["gzip"].compressed(b"message", 0), wbits=31) == b"message"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"codec": "jsn"}, 'did you mean "json"'),
        ({"codec": {"type": "json", "prety": True}}, 'did you mean "pretty"'),
        ({"level": 22}, "level 22 does not exist for gzip: 0 to 9"),
        ({"by": "zstd", "level": 0}, "level 0 does not exist for zstd: 1 to 22"),
        ({"write": "none", "level": 1}, "there is none to choose"),
        ({"max_size": 0}, "greater than 0"),
        ({"codec": {"type": "tensor", "dtype": "int8", "shape": [1]}}, "by chance"),
    ],
)
def test_options_that_do_not_fit_are_refused_when_they_are_loaded(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        codec_of({"type": "compressed", **fields})


def test_gzip_needs_no_package_and_zstd_says_which(monkeypatch: pytest.MonkeyPatch, block: Block) -> None:
    monkeypatch.setattr("pipelines.plugins.requirements._installed", lambda name: False)
    codec_of({"type": "compressed", "by": "gzip"})
    with pytest.raises(MissingPackageError, match=r"zstd\]"):
        codec_of({"type": "compressed", "by": "zstd"})
    # One that comes unasked for is the failure of its record.
    codec = codec_of({"type": "compressed", "codec": "raw"})
    payload = FORMATS["zstd"].compressed(b"message", None)
    monkeypatch.setattr(Zstd, "_library", property(lambda self: self._absent()), raising=False)
    monkeypatch.setattr(Zstd, "_absent", _absent, raising=False)
    found = codec.decode(block([payload, b"plain"]), None)
    assert "zstd]" in str(found.failed[0])
    assert found.batch.rows.tolist() == [1]


def _absent(self: Zstd) -> None:
    raise MissingPackageError("backports.zstd", "zstd", "payloads that are compressed with zstd")


@pytest.mark.parametrize("outer", ["compressed", "cloudevents"])
def test_the_codec_inside_takes_the_services_hot_path(outer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMER_NATIVE", raising=False)
    with choosing("python"):
        assert codec_of({"type": outer, "codec": "protodata"}).hot_path == ("python", "hot_path: python")
        assert codec_of({"type": outer, "codec": "text"}).hot_path == codec_of("text").hot_path


def test_a_folder_to_deploy_takes_along_what_the_codecs_inside_need() -> None:
    packed: dict[str, Any] = {"type": "compressed", "by": "zstd", "codec": "image"}
    service = Service(
        name="packed",
        source=MemorySourceConfig(topic="in", codec={"type": "cloudevents", "codec": packed}),
        pipeline=pipelines.Sequence([pipelines.Logging()]),
        sink=MemorySinkConfig(topic="out"),
    )
    assert {package.extra for package in used_by(service).packages} >= {"zstd", "image"}


@pytest.mark.slow
def test_editors_know_the_codecs_inside() -> None:
    defs = service_schema()["$defs"]
    for name in ("compressed", "cloudevents"):
        inside = defs[f"codec-{name}"]["properties"]["codec"]
        assert {"$ref": "#/$defs/codec"} in inside["anyOf"]
        assert inside["description"]


def test_the_content_encoding_of_the_codec_replaces_that_of_the_record() -> None:
    codec = codec_of({"type": "compressed", "codec": "text", "by": "headers"})
    route = SinkRoute.of(MemorySinkConfig(topic="out"), MemorySinkConfig(topic="out").build(), codec, "out")
    origin = RecordsOrigin(records_of([b"a", b"b"], [[("Content-Encoding", b"br"), ("trace", b"1")], None]), 0)
    batch = Batch.of([Data({"text": "a"}), Data({"text": "b"})], 0).with_origin(origin)
    messages, failed = route.messages(route.selection.apply(batch))
    assert not failed
    said = ("content-encoding", b"gzip")
    assert [list(each or ()) for each in messages.headers or ()] == [[("trace", b"1"), said], [said]]


def records_of(values: list[Any], headers: list[Any]) -> Records:
    count = len(values)
    spans = [Span(Lane("bus", "0", 0), 0, count)]
    return Records("bus", values, None, np.arange(count), spans, ["topic"], [0], 0, headers=lambda: headers)
