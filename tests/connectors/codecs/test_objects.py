"""The codec `objects`: records go from one step of a process to a sink of it as they are."""

from __future__ import annotations

import numpy as np
import pytest

from connectors.codecs.registry import codec_of
from connectors.memory.block import block
from connectors.message import Message
from connectors.records import Lane
from pipelines import Batch, Data, Image
from pipelines.errors import DefinitionError
from streamer.definition.service import Service

LANE = Lane("s", "0", 0)


def test_values_are_neither_encoded_nor_copied() -> None:
    image = Image(np.zeros((4, 6, 3), np.uint8))
    encoded = codec_of("objects").encode(Batch.of([Data({"image": image, "n": 1}), Data({"n": 2})]))
    assert not encoded.failed
    assert encoded.values[0]["image"] is image
    assert [data.get("n") for data in encoded.values] == [1, 2]


def test_objects_pass_through_the_codec_unchanged() -> None:
    datas = [Data({"n": 1}), Data({"label": "cat"})]
    records = block("s", "t", {LANE: [(at, Message(data)) for at, data in enumerate(datas)]}, 0)
    decoded = codec_of("objects").decode(records, None, first=7)
    assert decoded.batch.to_list() == datas
    assert decoded.batch.rows.tolist() == [7, 8]
    assert decoded.batch.lanes() == [LANE, LANE]


def test_a_payload_that_is_no_record_fails_alone() -> None:
    records = block("s", "t", {LANE: [(0, Message(b"bytes")), (1, Message(Data({"n": 1}))), (2, Message(None))]}, 0)
    decoded = codec_of("objects").decode(records, None)
    assert decoded.batch.to_list() == [Data({"n": 1})]
    assert list(decoded.failed) == [0]
    assert "reads records (Data), but the payload is of type bytes" in str(decoded.failed[0])


def test_a_sink_of_bytes_refuses_a_codec_of_objects() -> None:
    with pytest.raises(ValueError, match="the codec objects is for objects, and a connector of type file has bytes"):
        Service(
            source={"type": "memory", "topic": "in", "codec": "objects"},
            pipeline=[],
            sink={"type": "file", "path": "x.bin", "codec": "objects"},
        )


def test_an_envelope_around_objects_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the codec objects gives objects, not bytes that could be wrapped"):
        codec_of({"type": "compressed", "algorithm": "gzip", "codec": "objects"})
