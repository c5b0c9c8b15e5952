"""Payload codecs: decoding, encoding, and payloads and values that fail."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.codec import Codec, Decoded
from connectors.codecs.config import CodecConfig
from connectors.codecs.registry import CODECS, codec_config, codec_of
from connectors.records import Lane, Records, Span
from pipelines import hotpath
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.data.data import Data
from pipelines.data.spans import Spans
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DefinitionError, RowsFailed, WireError
from pipelines.plugins.catalog import Catalog, NameClash, class_of, types_of
from pipelines.values import ByteBuffer, Image, ValueType

pytestmark = pytest.mark.usefixtures("hot_path")


def block(values: Sequence[Any]) -> Records:
    # The compiled source of Kafka delivers payloads in one buffer.
    spans = hotpath.choose().native is not None and {type(value) for value in values} <= {bytes, type(None)}
    return Records(
        "bus",
        Spans.of(values) if spans else list(values),
        [b"key %d" % row for row in range(len(values))],
        np.arange(100, 100 + len(values), dtype=np.int64),
        [Span(Lane("bus", "0", 0), 0, len(values))],
        ["topic"],
        [0],
        0,
    )


def decoded(codec: Codec, values: Sequence[Any], wanted: frozenset[str] | None = None, first: int = 0) -> Decoded:
    return codec.decode(block(values), wanted, first)


def sent(codec: Codec, *datas: Data) -> list[bytes | None]:
    encoded = codec.encode(Batch.of(datas))
    assert not encoded.failed
    return list(encoded.values)


@pytest.fixture
def png() -> bytes:
    return Image(np.full((3, 5, 3), 7, np.uint8)).get_as("png")


EVERY: list[tuple[str | dict[str, Any], Data]] = [
    ("protodata", Data({"x": np.arange(3, dtype=np.float32), "id": "a", "n": 7})),
    ("konduit-json", Data({"x": np.arange(3, dtype=np.float32), "id": "a", "n": 7})),
    ({"type": "konduit-json", "byte_order": "little", "pretty": True}, Data({"x": np.arange(3, dtype=np.float32)})),
    ("raw", Data({"bytes": b"\x00\xff"})),
    ("text", Data({"text": "häuser"})),
    ({"type": "tensor", "dtype": "int16", "shape": [2, 2]}, Data({"x": np.arange(4, dtype=np.int16).reshape(2, 2)})),
    ({"type": "tensor", "dtype": "float64", "shape": [], "byte_order": "big"}, Data({"x": np.array(2.5)})),
    ({"type": "tensor", "dtype": "bool", "shape": [3]}, Data({"x": np.array([True, False, True])})),
]


@pytest.mark.parametrize(("setting", "data"), EVERY)
def test_every_codec_reads_the_payloads_that_it_wrote(setting: str | dict[str, Any], data: Data) -> None:
    codec = codec_of(setting)
    payloads = sent(codec, data, data)
    assert decoded(codec, payloads).batch.to_list() == [data, data]


@pytest.mark.parametrize("setting", [setting for setting, _ in EVERY] + ["image"])
def test_tombstones_are_neither_decoded_nor_failed(setting: str | dict[str, Any]) -> None:
    found = decoded(codec_of(setting), [None, None])
    assert found.batch.size == 0
    assert not found.failed


@pytest.mark.parametrize(("setting", "data"), EVERY)
def test_rows_know_their_number_and_their_record(setting: str | dict[str, Any], data: Data) -> None:
    codec = codec_of(setting)
    (payload,) = sent(codec, data)
    found = decoded(codec, [None, payload, None, payload], first=1000)
    assert found.batch.rows.tolist() == [1001, 1003]
    assert found.batch.origin is not None
    record = found.batch.row(1).record
    assert record is not None
    assert (record.offset, record.key) == (103, b"key 3")


@pytest.mark.parametrize("setting", ["protodata", "json", "konduit-json", "raw", "text", EVERY[5][0], "image"])
def test_an_object_that_is_no_payload_fails_its_own_row_only(setting: str | dict[str, Any]) -> None:
    found = decoded(codec_of(setting), [object(), None], first=10)
    assert found.batch.size == 0
    assert list(found.failed) == [10]
    assert "bytes, " in str(found.failed[10])


@pytest.mark.parametrize(
    ("setting", "bad"),
    [
        ("protodata", b"\x0a\x05abc"),
        ("json", b'{"a": '),
        ("konduit-json", b'{"a": '),
        ("json", b"[1]"),
        ("konduit-json", b'{"a": null}'),
        ("text", b"\xff\xfe"),
        ({"type": "tensor", "dtype": "float32", "shape": [2]}, b"1234567"),
        ("image", b"not an image"),
        ("image", b"\x89PNG\r\n\x1a\n"),
    ],
)
def test_a_payload_that_cannot_be_decoded_fails_with_its_row_number(
    setting: str | dict[str, Any], bad: bytes, png: bytes
) -> None:
    good = {"json": b"{}", "konduit-json": b"{}", "image": png, "text": b"", "protodata": b""}.get(
        str(codec_config(setting).type), b"12345678"
    )
    found = decoded(codec_of(setting), [good, bad, good], first=5)
    assert found.batch.rows.tolist() == [5, 7]
    assert list(found.failed) == [6]


def test_protodata_checks_wanted_keys_and_leaves_the_others_alone() -> None:
    codec = codec_of("protodata")
    short = b"\x0a\x0e\x0a\x01x\x12\x09\x42\x07\x0a\x01\x03\x10\x01\x1a\x00"
    (other,) = sent(codec, Data({"id": "a"}))
    assert other is not None
    wanting = decoded(codec, [other, other + short], frozenset({"x"}))
    assert list(wanting.failed) == [1]
    passing = decoded(codec, [other, other + short])
    assert not passing.failed
    with pytest.raises(RowsFailed) as raised:
        passing.batch["x"]
    assert list(raised.value.failures) == [1]
    assert codec.encode(passing.batch).values == [other, other + short]


def test_protodata_keeps_an_unread_key_byte_for_byte() -> None:
    codec = codec_of("protodata")
    # The type before the value: legal, though not what we would write.
    entry = b"\x0a\x0c\x0a\x01n\x12\x07\x68\x05\x20\x80\x80\x80\x01"
    found = decoded(codec, [entry] * 3, frozenset({"x"}))
    assert isinstance(found.batch.column("n"), WireColumn)
    added = found.batch.with_columns({"y": DenseColumn(np.zeros((3, 2), np.float32))})
    for value in codec.encode(added).values:
        assert value is not None
        assert value.startswith(entry)
        assert Data.from_bytes(value) == Data({"n": 1 << 21, "y": np.zeros(2, np.float32)})


def test_protodata_reads_double_arrays_that_konduit_labels_float_if_told_to() -> None:
    array = b"\x0a\x01\x01\x10\x01\x1a\x08" + np.float64(2.5).tobytes()
    listed = b"\x32" + bytes([len(array) + 2]) + b"\x0a" + bytes([len(array)]) + array
    scheme = b"\x3a" + bytes([len(listed)]) + listed + b"\x60\x00\x68\x09"
    body = b"\x0a\x01l\x12" + bytes([len(scheme)]) + scheme
    payload = b"\x0a" + bytes([len(body)]) + body
    found = decoded(codec_of({"type": "protodata", "float_lists": "double"}), [payload], frozenset({"l"}))
    assert found.batch.row(0)["l"][0].tolist() == [2.5]
    assert list(decoded(codec_of("protodata"), [payload], frozenset({"l"})).failed) == [0]


def test_protodata_refuses_a_payload_beyond_its_limit() -> None:
    codec = codec_of({"type": "protodata", "max_bytes": "64B"})
    payloads = sent(codec, Data({"a": "x" * 100}), Data({"a": "x"}))
    found = decoded(codec, payloads)
    assert list(found.failed) == [0]
    assert "max_bytes" in str(found.failed[0])


def test_konduit_json_reads_both_byte_orders_but_only_as_told() -> None:
    text = b'{"x": {"@NDArrayType": "FLOAT", "@NDArrayShape": [3], "@NDArrayDataBase64": "AAAAAD+AAABAAAAA"}}'
    big = decoded(codec_of("konduit-json"), [text]).batch.row(0)
    assert big["x"].tolist() == [0.0, 1.0, 2.0]
    little = decoded(codec_of({"type": "konduit-json", "byte_order": "little"}), [text]).batch.row(0)
    assert little["x"].tolist() != [0.0, 1.0, 2.0]


def test_konduit_json_writes_metadata_and_leaves_out_what_a_row_lacks() -> None:
    batch = Batch.of([Data({"a": 1}, metadata={"m": True}), Data({"b": [1.5]})])
    first, second = codec_of("konduit-json").encode(batch).values
    assert json.loads(first or b"") == {"a": 1, "@Metadata": {"m": True}}
    assert json.loads(second or b"") == {"b": [1.5]}


def test_konduit_json_fails_the_rows_whose_values_it_cannot_write() -> None:
    batch = Batch({"a": Column.of(["fine", "\ud800"])}, 2)
    encoded = codec_of("konduit-json").encode(batch)
    assert encoded.values == [b'{"a":"fine"}', None]
    assert list(encoded.failed) == [1]


def test_a_value_that_cannot_be_decoded_fails_its_row_when_json_writes_it() -> None:
    proto = codec_of("protodata")
    broken = b"\x0a\x05\x0a\x01x\x12\x00"
    found = decoded(proto, [*sent(proto, Data({"x": 1})), broken])
    encoded = codec_of("konduit-json").encode(found.batch)
    assert encoded.values == [b'{"x":1}', None]
    assert isinstance(encoded.failed[1], WireError)


def test_null_in_konduit_json_can_be_left_out() -> None:
    found = decoded(codec_of({"type": "konduit-json", "nulls": "drop"}), [b'{"a": null, "b": 1}'])
    assert found.batch.to_list() == [Data({"b": 1})]


def test_raw_writes_bytes_and_strings_under_any_one_key() -> None:
    codec = codec_of({"type": "raw", "key": "payload"})
    assert decoded(codec, [b"ab"]).batch.to_list() == [Data({"payload": b"ab"})]
    assert sent(codec, Data({"label": "ä"})) == ["ä".encode()]
    assert sent(codec, Data({"payload": ByteBuffer(b"cd"), "label": "x"})) == [b"cd"]


def test_raw_says_which_value_it_could_not_choose() -> None:
    encoded = codec_of("raw").encode(Batch.of([Data({"label": "x", "prob": 0.5})]))
    assert encoded.values == [None]
    assert "label, prob" in str(encoded.failed[0])


def test_raw_refuses_values_that_are_no_bytes() -> None:
    encoded = codec_of("raw").encode(Batch.of([Data({"bytes": 5}), Data({"bytes": b"x"}), Data({"other": 1})]))
    assert encoded.values == [None, b"x", None]
    assert "INT64" in str(encoded.failed[0])
    assert '"other" is of type INT64' in str(encoded.failed[2])


def test_a_value_under_another_key_is_written_whatever_keys_other_results_have() -> None:
    datas = [Data({"bytes": b"a"}), Data({"label": "b"}), Data({}), Data({"name": "c"}), Data({"label": "d", "n": 1})]
    encoded = codec_of("raw").encode(Batch.of(datas))
    assert encoded.values == [b"a", b"b", None, b"c", None]
    assert "no values" in str(encoded.failed[2])
    assert "label, n" in str(encoded.failed[4])


def test_tensor_gives_one_dense_column() -> None:
    payloads = [np.full((2, 3), row, np.float32).tobytes() for row in range(4)]
    found = decoded(codec_of({"type": "tensor", "dtype": "float32", "shape": [2, 3], "key": "z"}), payloads)
    column = found.batch["z"]
    assert isinstance(column, DenseColumn)
    assert column.array.shape == (4, 2, 3)
    assert column.array[:, 0, 0].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_tensor_reads_any_byte_but_zero_as_true() -> None:
    found = decoded(codec_of({"type": "tensor", "dtype": "bool", "shape": [3]}), [b"\x00\x02\xff"])
    assert found.batch.row(0)["x"].tolist() == [False, True, True]


def test_tensor_refuses_another_shape_and_dtype() -> None:
    batch = Batch.of([Data({"x": np.zeros(2, np.float32)}), Data({"x": np.zeros(3, np.float32)})])
    codec = codec_of({"type": "tensor", "dtype": "float32", "shape": [2]})
    encoded = codec.encode(batch)
    assert encoded.values == [b"\0" * 8, None]
    assert "float32[3]" in str(encoded.failed[1])
    assert list(codec.encode(Batch.of([Data({"x": np.zeros(2)})])).failed) == [0]
    assert "INT64" in str(codec.encode(Batch.of([Data({"x": 1})])).failed[0])


def test_an_image_is_told_by_its_bytes_and_not_decoded(png: bytes) -> None:
    cut_short = png[:40]
    found = decoded(codec_of("image"), [png, cut_short])
    assert not found.failed
    image = found.batch.row(0)["image"]
    assert (image.format, image.width, image.height) == ("PNG", 5, 3)
    assert codec_of("image").encode(found.batch).values == [png, cut_short]


def test_an_image_of_too_many_pixels_is_refused_by_its_header(png: bytes) -> None:
    found = decoded(codec_of({"type": "image", "max_pixels": 14}), [png])
    assert "5 x 3" in str(found.failed[0])


def test_images_are_written_in_the_format_asked_for(png: bytes) -> None:
    batch = decoded(codec_of("image"), [png]).batch
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    drawn = Batch.of([Data({"image": Image(noise)})])
    (jpeg,) = codec_of({"type": "image", "format": "jpeg"}).encode(batch).values
    assert jpeg is not None
    assert Image(jpeg).format == "JPEG"
    sizes = [
        len(codec_of({"type": "image", "format": "jpeg", "quality": quality}).encode(drawn).values[0] or b"")
        for quality in (5, 95)
    ]
    assert sizes[0] < sizes[1]
    (as_png,) = codec_of("image").encode(drawn).values
    assert as_png is not None
    assert np.array_equal(Image(as_png).get_as("numpy"), noise)


def test_a_jpeg_that_came_in_is_not_compressed_again() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (16, 16, 3)).astype(np.uint8)
    jpeg = Image(noise).get_as("jpeg")
    codec = codec_of({"type": "image", "format": "jpeg", "quality": 5})
    assert codec.encode(decoded(codec, [jpeg]).batch).values == [jpeg]


@pytest.mark.parametrize("codec", ["protodata", "konduit-json"])
class TestImagesInMessages:
    """`images` of the codecs whose messages have images beside other values."""

    def written(self, codec: str, value: Any, **fields: Any) -> Any:
        """The value, written and read again."""
        encoded = codec_of({"type": codec, **fields}).encode(Batch.of([Data({"k": value, "n": 1})]))
        assert not encoded.failed
        return decoded(codec_of(codec), [encoded.values[0] or b""]).batch["k"].values()[0]

    def test_a_jpeg_that_came_in_goes_out_as_the_same_jpeg(self, codec: str) -> None:
        jpeg = noise().get_as("jpeg")
        image = Image(jpeg)
        assert image.get_as("numpy").shape == (32, 32, 3)
        assert self.written(codec, image).encoded == jpeg
        assert self.written(codec, [image, image])[1].encoded == jpeg

    def test_an_image_that_a_step_has_drawn_goes_out_as_png(self, codec: str) -> None:
        found = self.written(codec, noise())
        assert found.format == "PNG"
        assert found == noise()

    def test_all_images_are_written_in_the_format_asked_for_also_in_lists_and_nested_data(
        self, codec: str, png: bytes
    ) -> None:
        jpeg = noise().get_as("jpeg")
        for form in ("png", "jpeg"):
            for image in (noise(), Image(jpeg), Image(png)):
                assert self.written(codec, image, images=form).format == form.upper()
                assert self.written(codec, [image], images=form)[0].format == form.upper()
                assert (
                    self.written(codec, Data({"a": Data({"b": image})}), images=form)["a"]["b"].format == form.upper()
                )
        assert self.written(codec, Image(jpeg), images="jpeg", image_quality=5).encoded == jpeg

    def test_a_jpeg_has_the_quality_that_is_asked_for(self, codec: str) -> None:
        sizes = [len(self.written(codec, noise(), images="jpeg", image_quality=quality).encoded) for quality in (5, 95)]
        assert sizes[0] < sizes[1]
        with pytest.raises(DefinitionError, match="image_quality is for JPEG"):
            codec_of({"type": codec, "image_quality": 5})

    def test_values_that_are_no_images_are_written_as_without_the_setting(self, codec: str) -> None:
        for value in ("x", [1, 2], [], Data({"a": [1.5]}), np.arange(3.0), [np.arange(2)]):
            rows = Batch.of([Data({"k": value}), Data({"n": 1})])
            plain = codec_of(codec).encode(rows)
            assert list(codec_of({"type": codec, "images": "png"}).encode(rows).values) == list(plain.values)

    def test_an_image_that_cannot_be_written_fails_its_own_row(self, codec: str, png: bytes) -> None:
        rows = Batch.of([Data({"k": Image(image)}) for image in (png, png[:40], png)] + [Data({"n": 1})])
        encoded = codec_of({"type": codec, "images": "jpeg"}).encode(rows)
        assert list(encoded.failed) == [1]
        assert 'key "k" cannot be written' in str(encoded.failed[1])
        assert [value is None for value in encoded.values] == [False, True, False, False]

    def test_images_that_no_step_reads_are_written_in_the_format_asked_for_too(self, codec: str, png: bytes) -> None:
        sent = codec_of(codec).encode(Batch.of([Data({"k": Image(png), "n": 1})]))
        found = decoded(codec_of(codec), [sent.values[0] or b""])
        (again,) = codec_of({"type": codec, "images": "jpeg"}).encode(found.batch).values
        assert decoded(codec_of(codec), [again or b""]).batch["k"].values()[0].format == "JPEG"
        (kept,) = codec_of(codec).encode(found.batch).values
        assert kept == sent.values[0]


@pytest.mark.parametrize("form", ["png", "jpeg"])
def test_plain_json_has_images_in_the_format_that_is_asked_for(form: str) -> None:
    batch = Batch.of([Data({"k": noise(), "deep": Data({"many": [noise()]})})])
    (text,) = codec_of({"type": "json", "images": form}).encode(batch).values
    found = json.loads(text or b"")
    for image in (found["k"], found["deep"]["many"][0]):
        assert image["format"] == form
        assert Image(base64.b64decode(image["base64"])).format == form.upper()


def noise() -> Image:
    return Image(np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8))


def test_the_image_codec_refuses_values_that_are_no_image_and_images_it_cannot_decode(png: bytes) -> None:
    assert "STRING" in str(codec_of("image").encode(Batch.of([Data({"image": "x"})])).failed[0])
    damaged = decoded(codec_of("image"), [png[:40], png]).batch
    encoded = codec_of({"type": "image", "format": "bmp"}).encode(damaged)
    assert list(encoded.failed) == [0]
    assert (encoded.values[1] or b"").startswith(b"BM")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("jsno", 'did you mean "json"?'),
        ({"byte_order": "big"}, "type is missing"),
        ({"type": "konduit-json", "byte_oder": "big"}, 'codec.byte_oder: no such field; did you mean "byte_order"?'),
        ({"type": "tensor", "dtype": "f4", "shape": [1]}, "codec.dtype: must be 'float64'"),
        ({"type": "tensor", "dtype": "int8", "shape": [-1]}, "codec.shape"),
        ({"type": "image", "quality": 50}, "format: jpeg"),
        ({"type": "protodata", "max_depth": 0}, "codec.max_depth"),
    ],
)
def test_a_wrong_codec_setting_is_an_error_that_helps(setting: str | dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        codec_of(setting)
    assert said in str(raised.value)


def test_every_codec_has_a_model_whose_fields_are_described() -> None:
    models = CODECS.load_all()
    for name, model in models.items():
        schema = model.model_json_schema()
        assert schema["properties"]["type"]["const"] == name
        assert all("description" in field for field in schema["properties"].values())


PLUGIN = """
from typing import Literal
from connectors.codecs.config import CodecConfig
from connectors.codecs.raw import Raw

class AvroConfig(CodecConfig):
    type: Literal["avro"] = "avro"
    def build(self) -> Raw:
        return Raw()
"""


def install(folder: Path, entries: dict[str, str]) -> Catalog[type[CodecConfig]]:
    """The metadata that installing a wheel leaves behind, and a registry of the distributions that are installed
    now."""
    (folder / "plugin_avro.py").write_text(PLUGIN)
    info = folder / "streamer_avro-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: streamer-avro\nVersion: 1.0\n")
    lines = [f"{name} = {target}" for name, target in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[streamer.codecs]", *lines, ""]))
    ours = {"connectors.codecs.raw"}
    return Catalog(
        "codec", CODECS.group, class_of(CodecConfig), types_of, "connectors.codecs", ours.__contains__, by_entry=True
    )


def test_a_plug_in_adds_a_codec_and_a_broken_one_takes_nothing_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registry = install(tmp_path, {"avro": "plugin_avro:AvroConfig", "broken": "no.such.module:Codec"})
    monkeypatch.syspath_prepend(tmp_path)
    assert sorted(registry.load_all()) == ["avro", "raw", "text"]
    assert "no.such.module" in caplog.text
    assert isinstance(registry.get("avro").model_validate({}).build(), Codec)
    with pytest.raises(DefinitionError, match="streamer-avro"):
        registry.get("broken")


def test_two_codecs_of_one_name_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = install(tmp_path, {"raw": "plugin_avro:AvroConfig"})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NameClash, match="the codec raw exists twice"):
        registry.get("raw")
    assert registry.clashes == {"raw"}


def test_a_missing_value_is_not_written_by_protodata() -> None:
    batch = Batch({"a": Column.of([1, MISSING]), "b": Column.of(["x", "y"])}, 2)
    values = codec_of("protodata").encode(batch).values
    assert [Data.from_bytes(value or b"") for value in values] == [Data({"a": 1, "b": "x"}), Data({"b": "y"})]


def test_raw_columns_are_typed_as_bytes() -> None:
    assert decoded(codec_of("raw"), [b"a", b"b"]).batch["bytes"].type is ValueType.BYTES


def test_a_picture_of_more_than_40_million_pixels_is_refused_unless_the_codec_allows_it() -> None:
    claims = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 8000, 5001, 8, 2, 0, 0, 0) + bytes(8)
    found = decoded(codec_of("image"), [claims])
    assert "8000 x 5001 pixels, more than 40000000; raise max_pixels of the codec" in str(found.failed[0])
    assert not decoded(codec_of({"type": "image", "max_pixels": 50_000_000}), [claims]).failed
    # The source of the pictures had its own limit.
    assert not decoded(codec_of("frame"), [claims]).failed
