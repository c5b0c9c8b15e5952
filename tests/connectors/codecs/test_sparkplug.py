"""Sparkplug B: metrics become values, aliases are those of births, gaps are counted, and bad messages fail alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.codec import Codec, Decoded
from connectors.codecs.registry import codec_of
from connectors.codecs.sparkplug.codec import Sparkplug, SparkplugConfig
from connectors.contract import CodecContract
from connectors.records import Lane, Records, Span
from pipelines import Batch, Data
from pipelines.errors import DataError, DefinitionError, WireError
from protos import sparkplug_pb2 as pb

Block = Callable[..., Records]
NODE = "spBv1.0/plant/{}/edge"
DEVICE = "spBv1.0/plant/{}/edge/press"


class TestSparkplug(CodecContract):
    bad = (b"\xff", b"{", b"\x12\x05", b"\x12\x02\x10\x07", "text", 7)
    unwritable = (Data({"x": np.zeros((2, 2))}), Data({"x": [1]}), Data({"x": "\ud800"}), Data({"x": Data()}))

    @pytest.fixture
    def codec(self) -> Codec:
        return SparkplugConfig().build()

    @pytest.fixture
    def record(self) -> Data:
        return Data(
            {
                "Motor/Speed": 30.5,
                "count": -7,
                "most": (1 << 63) - 1,
                "on": False,
                "who": "é",
                "file": b"\x00",
                "x": np.arange(3.0),
                "codes": np.array([1, 255], np.uint8),
                "bits": np.array([True, False, True]),
                "texts": ["a", "", "é"],
            }
        )


def counted(codec: Codec) -> dict[str, float]:
    """The codec's counters, by name."""
    return {one.name: one.value for one in codec.metrics()}


def message(*metrics: Mapping[str, Any], **fields: Any) -> bytes:
    written: bytes = pb.Payload(metrics=[pb.Metric(**metric) for metric in metrics], **fields).SerializeToString()
    return written


def birth(*names: str, datatype: int = pb.FLOAT, first: int = 0, **fields: Any) -> bytes:
    """Metrics of these names with the aliases `first`, `first + 1`, ..., all 1.5."""
    described = [
        {"name": name, "alias": first + at, "datatype": datatype, "float_value": 1.5} for at, name in enumerate(names)
    ]
    return message(*described, **fields)


def session(bd_seq: int, *names: str) -> bytes:
    metric = {"name": "bdSeq", "datatype": pb.INT64, "long_value": bd_seq}
    others = [{"name": name, "alias": at, "datatype": pb.FLOAT, "float_value": 0.5} for at, name in enumerate(names)]
    return message(metric, *others, seq=0)


def data(alias: int, value: float, **fields: Any) -> bytes:
    return message({"alias": alias, "float_value": value}, **fields)


def read(codec: Codec, block: Block, *sent: tuple[str, bytes]) -> Decoded:
    return codec.decode(block([payload for _, payload in sent], topics=[topic for topic, _ in sent]), None)


def values(decoded: Decoded) -> list[Data]:
    assert not decoded.failed, decoded.failed
    return decoded.batch.to_list()


def test_aliases_are_those_of_the_births(block: Block) -> None:
    codec = SparkplugConfig().build()
    found = read(
        codec,
        block,
        (NODE.format("NBIRTH"), birth("Temperature", "Load", seq=0)),
        (DEVICE.format("DBIRTH"), birth("Speed", first=2, seq=1)),
        (NODE.format("NDATA"), data(0, 20.5, seq=2)),
        (DEVICE.format("DDATA"), data(2, 99.0, seq=3)),
        (NODE.format("NDATA"), data(1, 0.0, seq=4)),
    )
    assert values(found) == [
        Data({"Temperature": 1.5, "Load": 1.5}),
        Data({"Speed": 1.5}),
        Data({"Temperature": 20.5}),
        Data({"Speed": 99.0}),
        Data({"Load": 0.0}),
    ]
    # The next block, too: the contents of births are kept.
    assert values(read(codec, block, (DEVICE.format("DDATA"), data(2, 7.0, seq=5)))) == [Data({"Speed": 7.0})]
    assert counted(codec) == {"gaps": 0, "births_missing": 0, "rebirths": 0}


def test_an_alias_whose_birth_was_not_seen_fails_its_record_and_is_counted(block: Block) -> None:
    codec = SparkplugConfig().build()
    found = read(
        codec,
        block,
        (DEVICE.format("DDATA"), data(2, 1.0)),
        (NODE.format("NBIRTH"), birth("Temperature")),
        (NODE.format("NDATA"), data(0, 2.0)),
        (NODE.format("NDATA"), data(9, 2.0)),
    )
    assert found.batch.rows.tolist() == [1, 2]
    assert "the alias 2 of plant/edge/press is not known: its birth (DBIRTH) was not seen" in str(found.failed[0])
    assert "have the edge node send it again" in str(found.failed[0])
    assert "the alias 9 of plant/edge is not known: its birth (NBIRTH)" in str(found.failed[3])
    assert counted(codec)["births_missing"] == 2


def test_an_edge_node_whose_birth_was_missed_is_asked_for_it_once_in_a_while(
    block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("connectors.codecs.sparkplug.rebirths.time.monotonic", lambda: now)
    codec = SparkplugConfig.model_validate({"rebirth": "60s"}).build()
    for _ in range(2):
        read(codec, block, (NODE.format("NDATA"), data(1, 1.0)), (DEVICE.format("DDATA"), data(2, 1.0)))
    read(codec, block, ("spBv1.0/other/NDATA/edge", data(1, 1.0)))
    requests = codec.requests()
    assert [one.topic for one in requests] == ["spBv1.0/plant/NCMD/edge", "spBv1.0/other/NCMD/edge"]
    (metric,) = pb.Payload.FromString(requests[0].payload).metrics
    assert (metric.name, metric.datatype, metric.boolean_value) == ("Node Control/Rebirth", pb.BOOLEAN, True)
    assert codec.requests() == ()
    now += 61
    read(codec, block, (NODE.format("NDATA"), data(1, 1.0)))
    assert [one.topic for one in codec.requests()] == ["spBv1.0/plant/NCMD/edge"]
    assert counted(codec)["rebirths"] == 3


def test_a_gap_in_the_sequence_asks_for_a_birth_too_and_without_the_field_nobody_is_asked(block: Block) -> None:
    for fields, asked in (({"rebirth": "1s"}, 1), ({}, 0)):
        codec = SparkplugConfig.model_validate(fields).build()
        read(codec, block, (NODE.format("NBIRTH"), birth("a", seq=0)), (NODE.format("NDATA"), data(0, 1.0, seq=3)))
        assert len(codec.requests()) == asked


@pytest.mark.slow
def test_thousands_of_new_node_names_cause_only_a_hundred_requests_for_births(block: Block) -> None:
    codec = SparkplugConfig.model_validate({"rebirth": "60s"}).build()
    for start in range(0, 12_000, 1000):
        read(codec, block, *((f"spBv1.0/plant/NDATA/{node}", data(1, 1.0)) for node in range(start, start + 1000)))
    assert len(codec.requests()) == 100


def test_a_birth_of_the_node_ends_the_aliases_of_all_its_devices_and_of_no_others(block: Block) -> None:
    codec = SparkplugConfig().build()
    other = "spBv1.0/plant/{}/other"
    found = read(
        codec,
        block,
        (NODE.format("NBIRTH"), birth("a")),
        (DEVICE.format("DBIRTH"), birth("b", first=1)),
        (other.format("NBIRTH"), birth("c")),
        (NODE.format("NBIRTH"), birth("new")),
        (DEVICE.format("DDATA"), data(1, 2.0)),
        (NODE.format("NDATA"), data(0, 2.0)),
        (other.format("NDATA"), data(0, 3.0)),
    )
    assert sorted(found.failed) == [4]
    assert found.batch.to_list()[-2:] == [Data({"new": 2.0}), Data({"c": 3.0})]


def test_alias_0_is_an_alias_and_a_metric_without_name_and_alias_fails(block: Block) -> None:
    codec = SparkplugConfig().build()
    found = read(
        codec,
        block,
        (NODE.format("NBIRTH"), birth("zero")),
        (NODE.format("NDATA"), message({"alias": 0, "float_value": 0.0})),
        (NODE.format("NDATA"), message({"float_value": 2.0})),
    )
    assert found.batch.to_list()[1:] == [Data({"zero": 0.0})]
    assert str(found.failed[2]) == "a metric has neither a name nor an alias"


def typed(datatype: int, **value: Any) -> dict[str, Any]:
    return {"name": "v", "datatype": datatype, **value}


SCALARS = [
    (typed(pb.INT8, int_value=0xFF), -1),
    (typed(pb.INT8, int_value=0xFFFFFFFF), -1),
    (typed(pb.INT8, int_value=127), 127),
    (typed(pb.INT16, int_value=0x8000), -(1 << 15)),
    (typed(pb.INT32, int_value=0x80000000), -(1 << 31)),
    (typed(pb.INT32, long_value=0xFFFFFFFFFFFFFFFF), -1),
    (typed(pb.INT64, long_value=1 << 63), -(1 << 63)),
    (typed(pb.INT64, int_value=5), 5),
    (typed(pb.UINT8, int_value=255), 255),
    (typed(pb.UINT16, int_value=65535), 65535),
    (typed(pb.UINT32, int_value=0xFFFFFFFF), 0xFFFFFFFF),
    (typed(pb.UINT32, long_value=0xFFFFFFFF), 0xFFFFFFFF),
    (typed(pb.UINT64, long_value=(1 << 63) - 1), (1 << 63) - 1),
    (typed(pb.FLOAT, float_value=0.5), 0.5),
    (typed(pb.FLOAT, double_value=0.1), 0.1),
    (typed(pb.DOUBLE, double_value=0.0), 0.0),
    (typed(pb.DOUBLE, float_value=0.0), 0.0),
    (typed(pb.BOOLEAN, boolean_value=False), False),
    (typed(pb.STRING, string_value=""), ""),
    (typed(pb.TEXT, string_value="é"), "é"),
    (typed(pb.UUID, string_value="669a3b5e"), "669a3b5e"),
    (typed(pb.DATETIME, long_value=1486144502122), 1486144502122),
    (typed(pb.BYTES, bytes_value=b"\0"), b"\0"),
    (typed(pb.FILE, bytes_value=b""), b""),
    (typed(0, int_value=3), 3),
    (typed(0, string_value="x"), "x"),
]


@pytest.mark.parametrize(("metric", "value"), SCALARS)
def test_scalars_are_read_by_their_datatype(metric: dict[str, Any], value: Any, block: Block) -> None:
    codec = SparkplugConfig().build()
    alias = {name: one for name, one in metric.items() if name not in ("name", "datatype")} | {"alias": 5}
    found = read(
        codec,
        block,
        ("anywhere", message(metric)),
        (NODE.format("NBIRTH"), message(metric | {"alias": 5})),
        (NODE.format("NDATA"), message(alias)),
    )
    for row in values(found)[: 3 if metric["datatype"] else 2]:
        assert row == Data({"v": value})
        assert type(row["v"]) is type(value)


# The examples of the specification, chapter 6.4.17.
ARRAYS: list[tuple[int, bytes, Any]] = [
    (pb.INT8_ARRAY, bytes([0xE9, 0x7B]), np.array([-23, 123], np.int8)),
    (pb.INT16_ARRAY, bytes([0x30, 0x8A, 0x2F, 0x3A]), np.array([-30160, 14895], np.int16)),
    (pb.INT32_ARRAY, (-1).to_bytes(4, "little", signed=True), np.array([-1], np.int32)),
    (pb.INT64_ARRAY, (-2).to_bytes(8, "little", signed=True), np.array([-2], np.int64)),
    (pb.UINT8_ARRAY, b"", np.zeros(0, np.uint8)),
    (pb.UINT16_ARRAY, bytes([1, 2]), np.array([513], np.uint16)),
    (pb.UINT32_ARRAY, bytes([1, 0, 0, 0]), np.array([1], np.uint32)),
    (pb.UINT64_ARRAY, bytes.fromhex("d99e02d1b27637e4"), np.array([16444743074749521625], np.uint64)),
    (pb.FLOAT_ARRAY, np.array([1.23, 89.341], "<f4").tobytes(), np.array([1.23, 89.341], np.float32)),
    (pb.DOUBLE_ARRAY, np.array([12.5], "<f8").tobytes(), np.array([12.5])),
    (
        pb.BOOLEAN_ARRAY,
        bytes([0x0C, 0, 0, 0, 0x34, 0xD0]),
        np.array([0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1], np.bool_),
    ),
    (pb.STRING_ARRAY, b"ABC\0hello\0", ["ABC", "hello"]),
    (pb.STRING_ARRAY, b"", []),
    (pb.DATETIME_ARRAY, (1256102875335).to_bytes(8, "little"), np.array([1256102875335])),
]  # fmt: skip


@pytest.mark.parametrize(("datatype", "content", "value"), ARRAYS)
def test_arrays_are_read_as_the_specification_shows(datatype: int, content: bytes, value: Any, block: Block) -> None:
    (found,) = values(read(SparkplugConfig().build(), block, ("x", message(typed(datatype, bytes_value=content)))))
    assert found == Data({"v": value})


def test_arrays_of_writers_that_order_bytes_and_bits_otherwise(block: Block) -> None:
    codec = SparkplugConfig(byte_order="big", bit_order="little").build()
    floats = bytes([0x3F, 0x9D, 0x70, 0xA4, 0x42, 0xB2, 0xAE, 0x98])
    found = read(
        codec,
        block,
        ("x", message(typed(pb.FLOAT_ARRAY, bytes_value=floats))),
        ("x", message(typed(pb.BOOLEAN_ARRAY, bytes_value=bytes([3, 0, 0, 0, 0b101])))),
    )
    first, second = values(found)
    np.testing.assert_array_equal(first["v"], np.array([1.23, 89.341], np.float32))
    assert second["v"].tolist() == [True, False, True]


def test_a_data_set_is_nested_data_with_a_value_for_each_column(block: Block) -> None:
    rows = [[{"int_value": 0xFFFFFFFE}, {"string_value": "a"}], [{"int_value": 0}, {"string_value": ""}]]
    table: dict[str, Any] = {
        "num_of_columns": 2,
        "columns": ["n", "text"],
        "types": [pb.INT32, pb.STRING],
        "rows": [{"elements": row} for row in rows],
    }
    metric = pb.Metric(name="table", datatype=pb.DATASET, dataset_value=pb.DataSet(**table))
    payload = pb.Payload(metrics=[metric]).SerializeToString()
    (found,) = values(read(SparkplugConfig().build(), block, ("x", payload)))
    assert found == Data({"table": Data({"n": np.array([-2, 0]), "text": ["a", ""]})})
    for wrong in (
        {"columns": ["n"]},
        {"columns": ["n", "n"]},
        {"rows": [{"elements": rows[0][:1]}]},
        {"types": [1, 16]},
    ):
        metric = pb.Metric(name="table", datatype=pb.DATASET, dataset_value=pb.DataSet(**{**table, **wrong}))
        decoded = read(SparkplugConfig().build(), block, ("x", pb.Payload(metrics=[metric]).SerializeToString()))
        assert '"table"' in str(decoded.failed[0])


@pytest.mark.parametrize(
    "metric",
    [
        typed(pb.INT8, int_value=300),
        typed(pb.UINT8, int_value=256),
        typed(pb.UINT64, long_value=1 << 63),
        typed(pb.FLOAT, string_value="x"),
        typed(pb.FLOAT, int_value=0),
        typed(pb.BOOLEAN, int_value=1),
        typed(pb.INT16_ARRAY, bytes_value=b"abc"),
        typed(pb.BOOLEAN_ARRAY, bytes_value=b"\xff\xff\xff\xff\x01"),
        typed(pb.BOOLEAN_ARRAY, bytes_value=b"\x01"),
        typed(pb.STRING_ARRAY, bytes_value=b"no end"),
        typed(pb.STRING_ARRAY, bytes_value=b"\xff\0"),
        typed(0, long_value=1 << 63),
    ],
)
def test_a_value_that_is_not_of_its_type_fails_its_record_and_names_the_metric(
    metric: dict[str, Any], block: Block
) -> None:
    good = message(typed(pb.FLOAT, float_value=2.0))
    found = read(SparkplugConfig().build(), block, ("x", good), ("x", message(metric)), ("x", good))
    assert found.batch.rows.tolist() == [0, 2]
    assert str(found.failed[1]).startswith('"v"')


def test_null_and_absent_values_and_templates_are_no_values(block: Block) -> None:
    template = b"\x12\x09\x0a\x01t\x20\x13\x92\x01\x01\x00"
    assert pb.Payload.FromString(template).metrics[0].datatype == pb.TEMPLATE
    found = read(
        SparkplugConfig().build(),
        block,
        ("x", message(typed(pb.FLOAT, is_null=True), {"name": "w", "datatype": pb.FLOAT, "float_value": 1.0})),
        ("x", message(typed(pb.FLOAT))),
        ("x", template),
        (NODE.format("NBIRTH"), birth("a")),
        (NODE.format("NDATA"), message({"alias": 0, "is_null": True})),
        (NODE.format("NDATA"), message({"alias": 0})),
    )
    assert values(found) == [Data({"w": 1.0}), Data(), Data(), Data({"a": 1.5}), Data(), Data()]


def test_metrics_are_chosen_and_named(block: Block) -> None:
    codec = SparkplugConfig(metrics={"Motor/Speed": "speed", "@type": "kind"}).build()
    found = read(
        codec,
        block,
        (NODE.format("NBIRTH"), birth("Motor/Speed", "@type", "other")),
        (NODE.format("NDATA"), message({"alias": 0, "float_value": 3.0}, {"alias": 2, "float_value": 4.0})),
    )
    assert values(found) == [Data({"speed": 1.5, "kind": 1.5}), Data({"speed": 3.0})]
    reserved = read(SparkplugConfig().build(), block, (NODE.format("NBIRTH"), birth("@type")))
    assert "reserved" in str(reserved.failed[0])


def test_attributes_of_a_message_become_values(block: Block) -> None:
    attributes = {
        name: name for name in ("group", "edge", "device", "message", "timestamp", "seq", "gap", "historical")
    }
    codec = codec_of({"type": "sparkplug", "attributes": attributes})
    found = read(
        codec,
        block,
        (NODE.format("NBIRTH"), message(seq=0, timestamp=1486144502122)),
        (DEVICE.format("DDATA"), message({"name": "a", "is_historical": True, "datatype": 9, "float_value": 1}, seq=3)),
        ("anywhere", message()),
    )
    node = {"group": "plant", "edge": "edge"}
    assert values(found) == [
        Data({**node, "message": "NBIRTH", "timestamp": 1486144502122, "seq": 0, "gap": 0, "historical": False}),
        Data({**node, "a": 1.0, "device": "press", "message": "DDATA", "seq": 3, "gap": 2, "historical": True}),
        Data({"gap": 0, "historical": False}),
    ]


@pytest.mark.parametrize("attributes", [{}, {"historical": "old"}])
def test_historical_metrics_never_replace_live_ones(attributes: dict[Any, str], block: Block) -> None:
    live, old = {"alias": 0, "float_value": 2.0}, {"alias": 0, "float_value": 9.0, "is_historical": True}
    for historical, expected in (("take", [2.0, 2.0, 9.0]), ("skip", [2.0, 2.0, None])):
        codec = SparkplugConfig.model_validate({"historical": historical, "attributes": attributes}).build()
        sent = [(NODE.format("NDATA"), message(*metrics)) for metrics in ((live, old), (old, live), (old,))]
        found = values(read(codec, block, (NODE.format("NBIRTH"), birth("a")), *sent))
        assert [row.get("a") for row in found[1:]] == expected


def test_gaps_in_the_sequence_are_counted_by_edge_node(block: Block) -> None:
    codec = Sparkplug(SparkplugConfig(attributes={"gap": "gap"}))
    other = "spBv1.0/plant/{}/other"
    numbers = [*range(1, 256), 0, 1, 1, 4, 5, 3]
    sent = [(NODE.format("NBIRTH"), birth("a", seq=0)), (other.format("NBIRTH"), birth("a", seq=200))]
    sent += [(NODE.format("NDATA"), data(0, 1.0, seq=seq)) for seq in numbers]
    sent += [(other.format("NDATA"), data(0, 1.0, seq=201)), (DEVICE.format("DCMD"), message(seq=77))]
    sent += [(NODE.format("NBIRTH"), birth("a", seq=9)), (NODE.format("NDATA"), data(0, 1.0, seq=10))]
    found = values(read(codec, block, *sent))
    # 4 after 1, and 3 after 5, which is 253 ahead or 2 behind.
    assert [row["gap"] for row in found if row["gap"]] == [2, 253]
    assert codec.gaps == {("plant", "edge"): 2, ("plant", "other"): 0}
    assert counted(codec)["gaps"] == 2


def test_a_death_of_an_earlier_session_changes_nothing(block: Block) -> None:
    for death, gaps in ((3, 1), (4, 0)):
        codec = SparkplugConfig().build()
        read(
            codec,
            block,
            (NODE.format("NBIRTH"), session(4, "a")),
            (NODE.format("NDEATH"), message({"name": "bdSeq", "datatype": pb.INT64, "long_value": death})),
            (NODE.format("NDATA"), data(0, 1.0, seq=100)),
        )
        assert counted(codec)["gaps"] == gaps


def test_births_that_a_server_kept_are_births_without_a_place_in_the_sequence(block: Block) -> None:
    codec = SparkplugConfig().build()
    kept = "$sparkplug/certificates/spBv1.0/plant/NBIRTH/edge"
    found = read(
        codec,
        block,
        (kept, birth("a", seq=0)),
        (NODE.format("NDATA"), data(0, 1.0, seq=77)),
        (NODE.format("NDATA"), data(0, 2.0, seq=78)),
    )
    assert values(found)[1:] == [Data({"a": 1.0}), Data({"a": 2.0})]
    assert counted(codec)["gaps"] == 0


@pytest.mark.parametrize(
    "topic",
    [
        "spBv1.0/plant/NDATA",
        "spBv1.0/plant/XDATA/edge",
        "spBv1.0/plant/NDATA/edge/press",
        "spBv1.0//NDATA/edge",
        "spBv1.0",
    ],
)
def test_a_topic_that_sparkplug_does_not_have_fails_its_record(topic: str, block: Block) -> None:
    found = read(SparkplugConfig().build(), block, (topic, message()), (NODE.format("NDATA"), message()))
    assert "is not a topic of Sparkplug" in str(found.failed[0])
    assert found.batch.rows.tolist() == [1]
    state = read(SparkplugConfig().build(), block, ("spBv1.0/STATE/host", b'{"online": true}'))
    assert "it is JSON; spBv1.0/+/+/+ and spBv1.0/+/+/+/+ in place of spBv1.0/# match" in str(state.failed[0])


def test_topics_of_records_that_a_bridge_took_to_kafka(block: Block) -> None:
    sent = [(NODE.format("NBIRTH"), birth("a")), (NODE.format("NDATA"), data(0, 2.0))]
    payloads = [payload for _, payload in sent]
    by_key = codec_of({"type": "sparkplug", "topic": "key"})
    assert values(by_key.decode(block(payloads, keys=[topic.encode() for topic, _ in sent]), None))[1] == Data(
        {"a": 2.0}
    )
    by_header = codec_of({"type": "sparkplug", "topic": "headers.Mqtt-Topic"})
    headers = [[("mqtt-topic", topic.encode())] for topic, _ in sent]
    assert values(by_header.decode(block(payloads, headers), None))[1] == Data({"a": 2.0})
    lost = by_header.decode(block(payloads), None)
    assert "the record's headers.Mqtt-Topic is not a Sparkplug topic" in str(lost.failed[1])
    with pytest.raises(DefinitionError, match="topic, key or headers"):
        codec_of({"type": "sparkplug", "topic": "value"})


def test_kept_births_are_bounded_and_the_longest_silent_nodes_are_forgotten_first(block: Block) -> None:
    codec = Sparkplug(SparkplugConfig(max_aliases=20))
    node = "spBv1.0/plant/{}/{}".format
    sent = [(node("NBIRTH", number), birth("a")) for number in range(6)]
    found = read(codec, block, *sent, (node("NDATA", 0), data(0, 1.0)), (node("NBIRTH", 6), birth("a")))
    assert not found.failed
    # A node costs three: a name, an alias and itself. The second has been silent longest.
    later = read(codec, block, *[(node("NDATA", number), data(0, 1.0)) for number in range(7)])
    assert sorted(later.failed) == [1]
    # One edge node has no room of its own either.
    devices = [(f"spBv1.0/plant/DBIRTH/edge/{number}", birth("a")) for number in range(100)]
    assert not read(codec, block, *devices).failed
    assert sum(node.size for _, node in codec._nodes) <= 20
    last = read(
        codec, block, ("spBv1.0/plant/DDATA/edge/99", data(0, 1.0)), ("spBv1.0/plant/DDATA/edge/0", data(0, 1.0))
    )
    assert sorted(last.failed) == [1]


def test_long_names_and_topics_take_no_more_room_than_is_allowed(block: Block) -> None:
    codec = Sparkplug(SparkplugConfig(max_aliases=100))
    births = [(f"spBv1.0/plant/NBIRTH/{number}", birth("x" * 10_000)) for number in range(5)]
    assert not read(codec, block, *births).failed
    assert len(list(codec._nodes)) == 1
    long = read(codec, block, (NODE.format("NDATA") + "x" * 1000, message()))
    assert "more than 1000" in str(long.failed[0])


def test_a_birth_that_gives_two_metrics_one_alias_fails(block: Block) -> None:
    twice = message({"name": "a", "alias": 1, "datatype": 9}, {"name": "b", "alias": 1, "datatype": 9})
    nameless = message({"alias": 1, "datatype": 9})
    found = read(SparkplugConfig().build(), block, (NODE.format("NBIRTH"), twice), (NODE.format("NBIRTH"), nameless))
    assert "an alias that another metric has" in str(found.failed[0])
    assert "has no name" in str(found.failed[1])


def test_a_message_that_is_too_large_fails_before_it_is_parsed(block: Block) -> None:
    found = read(SparkplugConfig(max_bytes=100).build(), block, ("x", b"\x12\x00" * 51), ("x", message()))
    assert "more than 100; raise max_bytes" in str(found.failed[0])
    assert found.batch.rows.tolist() == [1]


TOPICS = [NODE.format(kind) for kind in ("NBIRTH", "NDATA", "NDEATH", "NCMD")] + [
    DEVICE.format(kind) for kind in ("DBIRTH", "DDATA", "DDEATH", "DCMD")
]
METRICS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    name=st.sampled_from(["", "a", "b", "@type"]),
    alias=st.integers(0, 3),
    datatype=st.integers(0, 36),
    is_null=st.booleans(),
    bytes_value=st.binary(max_size=12),
)


@given(
    sent=st.lists(st.tuples(st.sampled_from(TOPICS), st.lists(METRICS, max_size=4), st.integers(0, 300)), max_size=8)
)
def test_every_row_is_read_or_fails_in_any_sequence_of_messages(
    sent: Sequence[tuple[str, list[dict[str, Any]], int]],
) -> None:
    records = records_of([message(*metrics, seq=seq) for _, metrics, seq in sent], [topic for topic, _, _ in sent])
    found = SparkplugConfig().build().decode(records, None)
    assert sorted([*found.failed, *found.batch.rows.tolist()]) == list(range(len(sent)))
    assert all(isinstance(error, (WireError, DataError)) for error in found.failed.values())


TEXTS = st.text(st.characters(codec="utf-8"))
WRITABLE = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.floats(), st.booleans(), TEXTS)


@given(content=st.dictionaries(st.text("abc/", min_size=1, max_size=8), WRITABLE, max_size=6))
def test_a_written_sparkplug_payload_is_read(content: dict[str, Any]) -> None:
    codec = SparkplugConfig().build()
    (payload,) = codec.encode(Batch.of([Data(content)])).values
    found = codec.decode(records_of([payload], ["x"]), None)
    assert found.batch.to_list() == [Data(content)]


@given(names=st.lists(st.integers(0, 1 << 40), min_size=1, max_size=12, unique=True), value=st.floats(width=32))
def test_usual_and_unusual_messages_give_the_same_values(names: list[int], value: float) -> None:
    described = [{"name": str(n), "alias": n, "datatype": pb.FLOAT, "float_value": 0.0} for n in names]
    sent = [
        (NODE.format("NBIRTH"), message(*described)),
        (NODE.format("NDATA"), message(*({"alias": n, "float_value": value} for n in names))),
    ]
    block = records_of([payload for _, payload in sent], [topic for topic, _ in sent])
    usual = Sparkplug(SparkplugConfig()).decode(block, None)
    unusual = Sparkplug(SparkplugConfig(attributes={"historical": "old"})).decode(block, None)
    assert usual.batch.to_list() == unusual.batch.without(["old"]).to_list()


def records_of(values: list[Any], topics: list[str]) -> Records:
    count = len(values)
    spans = [Span(Lane("bus", "0", 0), row, row + 1) for row in range(count)]
    return Records("bus", values, None, np.arange(count), spans, topics, [0] * count, 0)
