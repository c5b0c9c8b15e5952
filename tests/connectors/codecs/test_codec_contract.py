"""Every codec of ours keeps the contract of a codec, and an exception of any codec fails one record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import pipelines
from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import CodecConfig
from connectors.codecs.guarded import Guarded
from connectors.codecs.images.frame import FrameConfig
from connectors.codecs.images.image import ImageConfig
from connectors.codecs.inference.config import InferenceConfig
from connectors.codecs.json import JsonConfig
from connectors.codecs.konduitjson import KonduitJsonConfig
from connectors.codecs.protodata import ProtoDataConfig
from connectors.codecs.raw import RawConfig, TextConfig
from connectors.codecs.registry import CODECS, codec_of
from connectors.codecs.rows import decode_rows, encode_rows
from connectors.codecs.tensor import TensorConfig
from connectors.contract import CodecContract
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from connectors.records import Lane, Records, Span
from pipelines import Batch, Data, DataError, Image, MissingPackageError
from pipelines.data.batch import Origin
from pipelines.errors import DefinitionError, RowsFailed, WireError
from streamer import testing
from streamer.definition.service import Service


@pytest.mark.usefixtures("hot_path")
class TestProtoData(CodecContract):
    bad = (
        b"\xff",
        b"\x0a\x7f",
        "text",
        7,
    )

    @pytest.fixture
    def codec(self) -> Codec:
        return ProtoDataConfig().build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"x": np.arange(3.0), "n": 7, "t": 30.5, "who": "é", "nested": {"l": [1, 2]}})


class TestKonduitJson(CodecContract):
    bad = (
        b"",
        b"[1]",
        b"{",
        b"\xff",
        b'{"@type": 1}',
        b'{"a": null}',
        "text",
    )

    @pytest.fixture
    def codec(self) -> Codec:
        return KonduitJsonConfig().build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"x": np.arange(3.0), "n": 7, "t": 30.5, "who": "é", "nested": {"l": [1, 2]}})


@pytest.mark.usefixtures("hot_path")
class TestJson(CodecContract):
    bad = (
        b"",
        b"[1]",
        b"{",
        b"\xff",
        b'{"a": NaN}',
        "text",
    )
    unwritable = (Data({"s": "\ud800"}),)

    @pytest.fixture
    def codec(self) -> Codec:
        return JsonConfig().build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"x": [0.0, 1.5], "n": 7, "t": 30.5, "who": "é", "nested": {"l": [1, 2]}})


class TestRaw(CodecContract):
    bad = (
        7,
        object(),
    )
    unwritable = (
        Data({"bytes": 7}),
        Data({"other": b"a", "another": b"b"}),
    )

    @pytest.fixture
    def codec(self) -> Codec:
        return RawConfig().build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"bytes": b"\x00\xff"})


class TestText(CodecContract):
    bad = (
        b"\xff",
        7,
    )
    unwritable = (
        Data({"text": 7}),
        Data({"text": "\ud800"}),
    )

    @pytest.fixture
    def codec(self) -> Codec:
        return TextConfig().build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"text": "häuser"})


class TestTensor(CodecContract):
    bad = (
        b"",
        bytes(13),
        7,
    )
    unwritable = (
        Data({"x": np.zeros(3)}),
        Data({"x": "text"}),
    )

    @pytest.fixture
    def codec(self) -> Codec:
        return TensorConfig(dtype="float32", shape=(3,)).build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"x": np.array([1, 2, 3], np.float32)})


@pytest.mark.usefixtures("hot_path")
class TestInference(CodecContract):
    bad = (
        b"",
        b"[1]",
        b"{}",
        b"{",
        b"\xff",
        b'{"inputs": 7}',
        b'{"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1]}]}',
        "text",
    )
    unwritable = (
        Data({"x": np.array([np.nan])}),
        Data({"image": Image(np.zeros((1, 1, 3), np.uint8))}),
        Data({"nested": {"a": 1}}),
    )

    @pytest.fixture
    def codec(self) -> Codec:
        return InferenceConfig().build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"x": np.array([[1, 2, 3]], np.float32), "who": [["é", ""]]})


class TestImage(CodecContract):
    bad = (
        b"",
        b"no picture",
        7,
    )
    unwritable = (Data({"image": "text"}),)

    @pytest.fixture
    def codec(self) -> Codec:
        return ImageConfig().build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"image": Image(Image(np.full((3, 5, 3), 7, np.uint8)).get_as("png"))})


class TestFrame(CodecContract):
    bad = (b"", b"no picture", 7, "text")
    unwritable = (Data({"image": "text"}),)

    @pytest.fixture
    def codec(self) -> Codec:
        return FrameConfig().build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"image": Image(np.full((3, 5, 3), 7, np.uint8))})


class Careless(Codec):
    """A plug-in without handling of broken records: it raises any exception."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        self.calls += 1
        if any(value is None or b"bad" in value for value in records.values):
            raise self.error
        return decode_rows(records, first, lambda payload: Data({"text": payload.decode()}))

    def encode(self, batch: Batch) -> Encoded:
        self.calls += 1
        values = batch["text"].values()
        if any("bad" in value for value in values):
            raise self.error
        return Encoded([value.encode() for value in values], {})


class CarelessByRow(Codec):
    """The same with the helpers that go row by row."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        return decode_rows(records, first, lambda payload: Data({"text": self._checked(payload.decode())}))

    def encode(self, batch: Batch) -> Encoded:
        return encode_rows(batch, lambda data: self._checked(data["text"]).encode())

    def _checked(self, text: str) -> str:
        if "bad" in text:
            raise self.error
        return text


ERRORS = [
    ValueError("odd"),
    KeyError("x"),
    RuntimeError("odd"),
    MemoryError(),
    RecursionError("deep"),
    AssertionError(),
    StopIteration(),
    MissingPackageError("cv2", "image", "writing images"),
    RowsFailed({5: ValueError("odd")}),
]


def records_of(values: Sequence[bytes | None]) -> Records:
    middle = len(values) // 2
    return Records(
        "bus",
        list(values),
        [b"key %d" % row for row in range(len(values))],
        np.arange(100, 100 + len(values), dtype=np.int64),
        [Span(Lane("bus", "0", 0), 0, middle), Span(Lane("bus", "1", 0), middle, len(values))],
        ["first", "second"],
        [3, 4],
        0,
    )


@pytest.mark.parametrize("kind", [Careless, CarelessByRow])
@pytest.mark.parametrize("error", ERRORS, ids=lambda one: type(one).__name__)
def test_any_exception_of_a_codec_fails_its_record_with_topic_and_offset(
    kind: type[Careless | CarelessByRow], error: Exception
) -> None:
    codec = Guarded(kind(error), "careless")
    values = [b"bad" if row in (2, 9) else None if row == 7 else b"row %d" % row for row in range(10)]
    decoded = codec.decode(records_of(values), None, first=50)
    assert decoded.batch.rows.tolist() == [50, 51, 53, 54, 55, 56, 58]
    assert [data["text"] for data in decoded.batch.to_list()] == [f"row {row}" for row in (0, 1, 3, 4, 5, 6, 8)]
    assert [data.record.offset for data in decoded.batch.to_list() if data.record] == [
        100, 101, 103, 104, 105, 106, 108,
    ]  # fmt: skip
    assert sorted(decoded.failed) == [52, 59]
    cause = error.failures[5] if isinstance(error, RowsFailed) and kind is Careless else error
    told = f"the codec careless raised {type(cause).__name__}: {cause}"
    assert str(decoded.failed[52]) == f"topic first, partition 3, offset 102: {told}"
    assert str(decoded.failed[59]) == f"topic second, partition 4, offset 109: {told}"

    origin: Origin | None = decoded.batch.origin
    batch = Batch.of([Data({"text": "bad" if row == 4 else f"row {row}"}) for row in range(7)])
    encoded = codec.encode(batch.numbered(decoded.batch.rows, origin))
    assert list(encoded.values) == [b"row %d" % row if row != 4 else None for row in range(7)]
    assert list(encoded.failed) == [4]
    assert str(encoded.failed[4]) == f"topic second, partition 4, offset 105: {told}"
    # Without a record there is nothing to say about it.
    assert str(codec.encode(batch).failed[4]) == told


def test_a_data_error_that_a_codec_raises_on_purpose_stays_as_it_is() -> None:
    for error in (WireError("no such file"), DataError("too large")):
        found = Guarded(CarelessByRow(error), "careless").decode(records_of([b"bad", b"good"]), None)
        assert found.failed == {0: error}


@pytest.mark.slow
def test_a_codec_that_raises_for_every_record_ends_soon() -> None:
    codec = Careless(ValueError("odd"))
    decoded = Guarded(codec, "careless").decode(records_of([b"bad"] * 20_000), None)
    assert len(decoded.failed) == 20_000
    assert codec.calls < 1000
    assert "topic second, partition 4, offset 20099" in str(decoded.failed[19_999])


def test_ctrl_c_in_a_codec_is_raised() -> None:
    error: Any = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        Guarded(Careless(error), "careless").decode(records_of([b"bad"]), None)


def test_the_codecs_of_services_are_guarded_whoever_wrote_them() -> None:
    for setting in ("protodata", "json", "raw", {"type": "tensor", "dtype": "int8", "shape": [1]}):
        assert isinstance(codec_of(setting), Guarded)
    assert codec_of("protodata").hot_path == ProtoDataConfig().build().hot_path


class CarelessConfig(CodecConfig):
    """A codec that raises."""

    type: str = "careless"

    def build(self) -> Codec:
        return Careless(ZeroDivisionError("odd"))


def test_a_plug_ins_codec_that_raises_ends_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    original = CODECS.get
    monkeypatch.setattr(CODECS, "get", lambda name: CarelessConfig if name == "careless" else original(name))
    texts = [b"bad %d" % row if row in (3, 40) else b"row %d" % row for row in range(60)]

    def service(**fields: Any) -> Service:
        return Service(
            name="plug-in",
            source=MemorySourceConfig(topic="in", codec=fields.get("source", "text")),
            pipeline=pipelines.Sequence([pipelines.Logging()]),
            sink=MemorySinkConfig(topic="out", codec=fields.get("sink", "text")),
            dead_letter=MemorySinkConfig(topic="dead"),
        )

    for fields, step in (({"source": "careless"}, "decode"), ({"sink": "careless"}, "sink memory")):
        report = testing.run(service(**fields), texts)
        assert report.summary.ok
        assert [message.value for message in report.sinks["memory"]] == [text for text in texts if b"bad" not in text]
        assert [(one.step, one.message.value) for one in report.dead] == [(step, texts[3]), (step, texts[40])]
        for one, offset in zip(report.dead, (3, 40), strict=True):
            assert f"offset {offset}: the codec careless raised ZeroDivisionError: odd" in one.error


@pytest.mark.parametrize(
    "setting",
    [
        {"type": "raw", "key": "@Metadata"},
        {"type": "text", "key": "@type"},
        {"type": "image", "key": "@x1"},
        {"type": "tensor", "dtype": "int8", "shape": [1], "key": "@metadata"},
    ],
)
def test_a_codec_with_a_key_that_no_record_can_have_is_refused_when_it_is_loaded(setting: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="reserved for internal use only"):
        codec_of(setting)
