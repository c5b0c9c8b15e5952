"""Keys that few records have: what becomes of a record, and what it costs, is the same whatever batch it falls into."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.codecs.json import Json
from connectors.codecs.konduitjson import KonduitJson
from connectors.codecs.protodata import ProtoData
from connectors.codecs.registry import codec_of
from connectors.records import Lane, Records, Span
from pipelines import loads
from pipelines.data.batch import Batch
from pipelines.data.columns import DenseColumn
from pipelines.data.data import Data
from pipelines.data.sparsecolumn import RARE, SparseColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import RowsFailed
from pipelines.executors.keep import kept
from pipelines.values import Image
from pipelines.wire.columns import decode_columns, encode_columns
from pipelines.wire.protobuf import decode, encode

pytestmark = pytest.mark.usefixtures("hot_path")

CODECS = ["protodata", "json"]


def block(values: list[bytes]) -> Records:
    spans = [Span(Lane("bus", "0", 0), 0, len(values))]
    return Records("bus", values, None, np.arange(len(values), dtype=np.int64), spans, ["topic"], [0], 0)


def payloads(codec: str, datas: list[Data]) -> list[bytes]:
    return [data.to_bytes() if codec == "protodata" else data.to_json().encode() for data in datas]


def through(codec: Any, values: list[bytes], wanted: frozenset[str] = frozenset()) -> list[bytes | None]:
    """What comes out when what came in is written again."""
    found = codec.decode(block(values), wanted)
    assert not found.failed
    written = codec.encode(found.batch)
    assert not written.failed
    return list(written.values)


def read(codec: str, payload: bytes | None) -> Data:
    assert payload is not None
    return Data.from_bytes(payload) if codec == "protodata" else Data.from_json(payload)


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_thousands_of_devices_are_no_dead_letters(codec: str) -> None:
    datas = [Data({"ts": 1.0, f"dev-{row * 7919 % 3000}": 2.0 + row}) for row in range(6000)]
    passed = through(codec_of(codec), payloads(codec, datas))
    assert [read(codec, payload) for payload in passed] == datas


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("place", [0, 1, 511])
@pytest.mark.slow
def test_a_record_of_thousands_of_keys_harms_no_neighbour(codec: str, place: int) -> None:
    datas = [Data({"a": float(row)}) for row in range(512)]
    datas[place] = Data({f"k{number}": number for number in range(8000)})
    passed = through(codec_of(codec), payloads(codec, datas), frozenset({"a"}))
    assert [read(codec, payload) for payload in passed] == datas


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.slow
def test_records_with_keys_of_their_own_take_memory_for_their_values_only(codec: str) -> None:
    count = 1000
    values = payloads(codec, [Data({"ts": row, f"own {row}": 1.0}) for row in range(count)])
    made = codec_of(codec)
    through(made, values[:10])
    tracemalloc.start()
    try:
        batch = made.decode(block(values), frozenset({"ts"})).batch
        # All that a batch goes through: halves, portions, a row left out, groups of one row each, joined again.
        halves = [batch.take(slice(0, count // 2)), batch.take(slice(count // 2, None))]
        portions = list(batch.parts([range(start, start + 8) for start in range(0, count, 8)]))
        rest = Batch.concat([Batch.concat(portions), *halves]).take(np.arange(2 * count) % count != 7)
        groups = [part for _, part in batch.with_columns({"n": _of_all_lengths(count)}).groups(["n"])]
        assert len(groups) == count
        joined = Batch.concat([rest, *groups])
        assert made.encode(joined).values[0] is not None
        assert len(joined.to_list()) == joined.size
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A place for every row of each key would take 8 MB in one batch, and 60 MB in all of them.
    assert peak < 30 << 20


def _of_all_lengths(count: int) -> Any:
    return Batch.of([Data({"n": np.zeros(row, np.int8)}) for row in range(count)]).column("n")


VALUES = st.one_of(
    st.integers(-9, 9), st.floats(allow_nan=False), st.text(max_size=3), st.lists(st.integers(0, 3), max_size=2)
)
ROWS = st.lists(
    st.dictionaries(st.sampled_from([f"k{number}" for number in range(30)]), VALUES, max_size=6), max_size=40
)


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(ROWS, st.sets(st.sampled_from(["k0", "k1", "k2"])), st.data())
def test_a_record_is_the_same_alone_and_among_others(
    rows: list[dict[str, Any]], wanted: set[str], data: st.DataObject
) -> None:
    datas = [Data(row) for row in rows]
    messages = [encode(one) for one in datas]
    found = decode_columns(messages, frozenset(wanted))
    assert not found.failed
    batch = Batch(found.columns, len(found.rows))
    assert batch.to_list() == datas
    assert [batch.row(row) for row in range(batch.size)] == datas
    assert [decode(message or b"") for message in encode_columns(batch).messages] == datas
    index = data.draw(st.lists(st.integers(0, len(datas) - 1), max_size=50)) if datas else []
    taken = batch.take(np.array(index, np.int64))
    assert taken.to_list() == [datas[row] for row in index]
    assert [decode(message or b"") for message in encode_columns(taken).messages] == [datas[row] for row in index]
    again = Batch.concat([taken, batch, Batch.of(datas)])
    assert again.to_list() == [datas[row] for row in index] + datas + datas


def test_keys_are_rare_by_their_rows_alone_on_both_hot_paths() -> None:
    for count, form in ((1, WireColumn), (2, SparseColumn)):
        size = count * RARE * (1 if form is WireColumn else 2)
        messages = [encode(Data({"ts": row, **({"rare": row} if row < count else {})})) for row in range(size)]
        assert type(decode_columns(messages).columns["rare"]) is form
        # What fails counts no more, and what is read is read into a place for every row.
        assert type(decode_columns([*messages, b"\xff"]).columns["rare"]) is form
        column = Batch(decode_columns(messages, frozenset({"rare"})).columns, size)["rare"]
        assert isinstance(column, DenseColumn)


def test_a_key_of_few_rows_is_an_ordinary_column() -> None:
    batch = Batch.of([Data({"ts": row, **({"x": np.full(2, row)} if row == 70 else {})}) for row in range(100)])
    column = batch["x"]
    assert isinstance(column, DenseColumn)
    assert np.flatnonzero(column.present).tolist() == [70]
    assert column.filled(0)[69:71].tolist() == [[0, 0], [70, 70]]
    with pytest.raises(RowsFailed) as caught:
        _ = batch.column("x").array
    assert len(caught.value.failures) == 99
    assert caught.value.of is not None
    assert batch.holds(caught.value.of)


def test_a_broken_entry_of_a_rare_key_fails_its_record_alone() -> None:
    messages = [encode(Data({"ts": row})) for row in range(100)]
    # A string that is none, and one whose key is replaced by another.
    messages[40] += b"\x0a\x0b\x0a\x01s\x12\x06\x12\x02\xff\xfeh\x01"
    messages[50] += b"\x0a\x0c\x0a\x01a\x12\x04\x20\x07\x68\x05\x0a\x01b"
    found = decode_columns(messages)
    assert list(found.failed) == [40]
    rows = Batch(found.columns, len(found.rows), rows=found.rows)
    assert rows.to_list()[49] == decode(messages[50])


def test_a_rare_key_that_no_data_may_have_fails_its_record_alone() -> None:
    messages = [encode(Data({"ts": row})) for row in range(100)]
    messages[3] += encode(Data({"x": 1})).replace(b"\x01x", b"\x05@type").replace(b"\x0a\x09", b"\x0a\x0d", 1)
    assert list(decode_columns(messages).failed) == [3]


def test_an_undecodable_value_of_a_rare_key_is_told_with_its_row() -> None:
    wrong = b"\x0a\x07\x0a\x01w\x12\x02\x68\x05"
    found = decode_columns([encode(Data({"ts": row})) + (wrong if row in (5, 60) else b"") for row in range(100)])
    batch = Batch(found.columns, len(found.rows))
    failed: dict[int, Exception] = {}
    assert batch.row_values(failed)[6] == {"ts": 6}
    assert sorted(failed) == [5, 60]
    assert sorted(encode_columns(batch.with_columns({"v": batch.column("w")})).failed) == [5, 60]


def devices(count: int = 200) -> list[Data]:
    """Records of which a few have the same key."""
    return [Data({"n": float(row), f"dev-{row % 61}": float(row), "name": f"r{row}"}) for row in range(count)]


def alone_and_together(definition: str, datas: list[Data]) -> None:
    with loads(definition).open() as executor:
        for data, found in zip(datas, executor.run_many(datas), strict=True):
            (alone,) = executor.run_many([data])
            assert found == alone if isinstance(alone, Data) else str(found) == str(alone)


@pytest.mark.slow
def test_a_step_that_looks_for_images_finds_those_under_rare_keys() -> None:
    picture = np.zeros((4, 4, 3), np.uint8)
    datas = [Data({f"cam-{row % 70}": Image(picture + row), "n": row}) for row in range(140)]
    alone_and_together("steps: [{'@type': IMAGE_RESIZE, inputNames: [], height: 2, width: 2}]", datas)


@pytest.mark.slow
def test_a_step_that_takes_the_only_array_finds_it_under_rare_keys() -> None:
    datas = [Data({f"x-{row % 70}": np.full(2, row, "f4"), "n": row}) for row in range(140)]
    datas[9] = Data({"n": 9})
    alone_and_together("steps: [{'@type': CLASSIFIER_OUTPUT, returnIndex: true, returnProb: true}]", datas)


def test_a_logged_record_has_its_own_keys(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), loads("steps: [{'@type': LOGGING, log: KEYS}]").open() as executor:
        executor.run_many(devices())
    assert set(caplog.records[62].message.split(", ")) == {'"n"', '"name"', '"dev-1"'}


def test_rare_values_that_the_pipeline_dropped_are_put_back() -> None:
    datas = devices()
    given_batch = Batch.of(datas)
    result = given_batch.select({"n": given_batch.column("n")})
    assert kept(result, given_batch, "all").to_list() == datas
    some = result.take(np.array([150, 3, 3, 199], np.int64))
    assert kept(some, given_batch, "all").to_list() == [datas[row] for row in (150, 3, 3, 199)]
    # What the pipeline made stays, and so does what it left in place.
    made = Batch.of(
        [Data({"dev-3": -1.0}) if row == 3 else Data({"dev-5": data["n"]}) for row, data in enumerate(datas)]
    )
    filled = kept(made, given_batch, "all").to_list()
    assert (filled[3]["dev-3"], filled[64]["dev-3"]) == (-1.0, 64.0)
    assert kept(given_batch, given_batch, "all").to_list() == datas


@pytest.mark.parametrize("codec", [Json, KonduitJson, ProtoData])
def test_a_rare_value_that_cannot_be_written_fails_its_row(codec: Callable[[], Any]) -> None:
    datas = [Data({"n": row, **({"s": "\ud800"} if row == 30 else {})}) for row in range(100)]
    written = codec().encode(Batch.of(datas))
    assert list(written.failed) == [30]
    assert [row for row, value in enumerate(written.values) if value is None] == [30]
