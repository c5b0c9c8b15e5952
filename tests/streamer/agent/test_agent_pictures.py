"""Pictures count as what they are once they are decoded: `limits.pixels` bounds what is run together."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pipelines
from connectors.codecs.registry import codec_of
from connectors.message import Message, records_of
from pipelines import Batch, Data, Image
from pipelines.wire.plainjson import JsonDecoder
from streamer import testing
from streamer.agent.assembly import build
from streamer.batching.pictures import picture_bytes
from streamer.definition.service import Service

pytest.importorskip("cv2")

SIDE = 100
PIXELS = SIDE * SIDE * 3
"""Bytes of one picture, decoded. As a file it has some hundred."""


def picture(number: int) -> Image:
    return Image(Image(np.full((SIDE, SIDE, 3), number, np.uint8)).get_as("png"))


class Watched:
    """A step that takes down how many rows it is given, and how many pictures are alive at most."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.most = 0
        self._alive: set[int] = set()

    def rows(self) -> Any:
        @pipelines.batched
        def looked_at(batch: Batch) -> Batch:
            self.sizes.append(batch.size)
            return batch

        return looked_at

    def decoding(self, data: Data) -> Data:
        for value in data.values():
            if isinstance(value, Image):
                self._hold(value.get_as("numpy"))
        return data

    def _hold(self, pixels: Any) -> None:
        number = id(pixels)
        self._alive.add(number)
        weakref.finalize(pixels, self._alive.discard, number)
        self.most = max(self.most, len(self._alive))


def limits(pictures: float) -> dict[str, int]:
    return {"pixels": int(pictures * PIXELS)}


def records(codec: str, *datas: Data) -> list[bytes]:
    if codec == "image":
        return [data["image"].get_as("png") for data in datas]
    return [data.to_bytes() if codec == "protodata" else data.to_json().encode() for data in datas]


@pytest.mark.parametrize("codec", ["image", "protodata", "konduit-json"])
def test_a_batch_of_large_pictures_is_run_in_parts_whose_pixels_are_let_go(
    define: Callable[..., Service], codec: str
) -> None:
    watched = Watched()
    definition = define(
        watched.decoding,
        source={"type": "memory", "topic": "in", "codec": codec},
        limits=limits(4),
        errors={"over": 999},
    )
    payloads = records(codec, *(Data({"image": picture(row)}) for row in range(30)))
    report = testing.run(definition, payloads)
    assert [int(data["image"].get_as("numpy")[0, 0, 0]) for data in report.results if data] == list(range(30))
    assert report.acknowledged == 30
    assert 1 <= watched.most <= 8


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (Data({"image": picture(1)}), 4),
        (Data({"images": [picture(1), picture(2)]}), 2),
        (Data({"frame": Data({"image": picture(1), "more": [Data({"image": picture(1)})]})}), 2),
        (Data({"image": picture(1), "n": 3, "text": "x" * 50}), 4),
        (Data({"image": Image(b"no picture" * 9)}), 12),
        (Data({"text": "x" * 99}), 12),
        (Data({"x": np.zeros(99)}), 12),
    ],
    ids=["one", "a list", "nested", "among others", "none", "a text", "an array"],
)
def test_pictures_are_counted_wherever_a_record_has_them(
    define: Callable[..., Service], data: Data, parts: int
) -> None:
    watched = Watched()
    report = testing.run(define(watched.rows(), limits=limits(4.5)), records("protodata", *[data] * 12))
    assert len(report.results) == 12
    # The first record of all is run by itself, to learn how long records take.
    assert watched.sizes == [1, parts - 1, *[parts] * (12 // parts - 1)]


def test_a_picture_beyond_the_limit_is_run_by_itself(define: Callable[..., Service]) -> None:
    watched = Watched()
    datas = [Data({"n": row}) for row in range(3)] + [Data({"image": picture(1)})] * 2 + [Data({"n": 9})]
    report = testing.run(define(watched.rows(), limits=limits(0.5)), records("protodata", *datas))
    assert report.results == datas
    assert watched.sizes == [1, 2, 1, 1, 1] or watched.sizes == [1, 2, 1, 2]


def test_a_record_of_too_many_pictures_fails_alone(
    define: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "max_pixels", SIDE * SIDE)
    datas = [Data({"images": [picture(1)] * count}) for count in (1, 3, 2)]
    report = testing.run(define(lambda data: data, limits=limits(2)), records("protodata", *datas))
    assert [len(data["images"]) for data in report.results if data] == [1, 2]
    (letter,) = report.dead
    assert letter.step == "decode"
    assert "limits.pixels is 60000" in letter.error
    assert report.acknowledged == 3


def test_records_that_fail_and_tombstones_among_pictures_keep_their_place(define: Callable[..., Service]) -> None:
    good = records("protodata", *(Data({"image": picture(row)}) for row in range(6)))
    values = [None, good[0], b"\xff", good[1], good[2], None, b"\xfe", good[3], good[4], good[5], None]
    messages = [Message(value, b"k%d" % row, (("n", b"%d" % row),)) for row, value in enumerate(values)]
    report = testing.run(define(lambda data: data, limits=limits(2), errors={"over": 999}), messages)
    (out,) = report.sinks.values()
    assert [message.key for message in out] == [
        message.key for message in messages if message.value not in (b"\xff", b"\xfe")
    ]
    assert [message.headers for message in out] == [
        message.headers for message in messages if message.value not in (b"\xff", b"\xfe")
    ]
    assert [letter.message.key for letter in report.dead] == [b"k2", b"k6"]
    assert report.acknowledged == len(messages)


def test_a_hard_batch_is_run_whole(define: Callable[..., Service]) -> None:
    watched = Watched()
    definition = define(watched.rows(), limits=limits(1), batch={"type": "hard", "max_records": 6})
    testing.run(definition, records("protodata", *[Data({"image": picture(1)})] * 6))
    assert watched.sizes == [6]


LOGGING = pipelines.loads("steps: [{'@type': LOGGING}]")
INSIDE = pipelines.Sequence([pipelines.PipelineStep(pipeline=LOGGING)])
RESIZE = pipelines.loads(
    "steps: [{'@type': PIPELINE, pipeline: {steps: [{'@type': IMAGE_RESIZE, height: 2, width: 2}]}}]"
)


def switched(function: Any) -> Any:
    builder = pipelines.GraphBuilder()
    return builder.build(builder.any(*builder.input.switch("which", function)))


@pytest.mark.parametrize(
    ("pipeline", "codec", "opens"),
    [
        (LOGGING, "protodata", False),
        (INSIDE, "protodata", False),
        (LOGGING, "json", True),
        (RESIZE, "protodata", True),
        (pipelines.Sequence([lambda data: data]), "protodata", True),
        (switched(pipelines.FunctionSwitch(lambda data: 0, num_outputs=2)), "protodata", True),
        (switched(pipelines.IntSwitch(field_name="n", num_outputs=2)), "protodata", False),
    ],
)
def test_undecoded_pictures_are_looked_for_where_somebody_may_open_them(pipeline: Any, codec: str, opens: bool) -> None:
    sink = {"type": "memory", "topic": "out", "codec": codec}
    parts = build(Service(name="test", source={"type": "memory", "topic": "in"}, pipeline=pipeline, sink=sink))
    parts.open()
    try:
        assert parts.opens_images is opens
    finally:
        parts.close()


def test_plain_json_holds_no_pictures_and_is_not_looked_into_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_into(self: Any, entries: Any) -> Any:
        raise AssertionError("a value was decoded")

    payload = json.dumps({"note": "x" * 100, "deep": {"list": list(range(100))}}).encode()
    batch = codec_of("json").decode(records_of([Message(payload)] * 3, "test"), frozenset()).batch
    monkeypatch.setattr(JsonDecoder, "__call__", looked_into)
    assert picture_bytes(batch, undecoded=True) is None
