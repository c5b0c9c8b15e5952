"""What only the compiled hot path can do wrong: memory that is shared, reused, released, or is not what it seems."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest

from pipelines import hotpath
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.data.data import Data
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.hotpath import choose, choosing
from pipelines.values import ValueType
from pipelines.wire.columns import decode_columns, encode_columns
from pipelines.wire.protobuf import decode, encode
from pipelines.wire.protodata import ReadColumns

pytestmark = pytest.mark.skipif(hotpath.why_not() is not None, reason=f"the compiled hot path: {hotpath.why_not()}")


@pytest.fixture(autouse=True)
def no_choice_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hotpath.VARIABLE, raising=False)


def messages_of(count: int, make: Callable[[int], dict[str, Any]]) -> list[bytes | None]:
    return [encode(Data(make(row))) for row in range(count)]


def sensors(count: int, first: int = 0, floats: int = 8) -> list[bytes | None]:
    return messages_of(
        count, lambda row: {"x": np.full(floats, first + row, np.float32), "id": f"é{first + row}", "n": first + row}
    )


def read(values: Any, *wanted: str) -> ReadColumns:
    return choosing("native")(decode_columns)(values, frozenset(wanted))


def batch_of(found: ReadColumns) -> Batch:
    return Batch(found.columns, len(found.rows), rows=found.rows)


def extension() -> Any:
    return choosing("native")(choose)().native


@pytest.mark.parametrize(
    ("start", "length"), [(0, 10**6), (10**6, 1), (-1, 4), (2**63 - 1, 2**63 - 1), (1, 2**63 - 1), (-(2**63), 5)]
)
def test_spans_that_leave_the_buffer_are_an_error(start: int, length: int) -> None:
    good = Spans.of(sensors(3))
    starts, lengths = good.starts.copy(), good.lengths.copy()
    starts[1], lengths[1] = start, length
    bad = Spans(good.buffer, starts, lengths)
    with pytest.raises(ValueError, match="position 1 does not lie in the buffer"):
        read(bad)
    native = extension()
    with pytest.raises(ValueError, match="position 1 does not lie in the buffer"):
        native.encoded(3, [(4, bad.buffer, bad.starts, bad.lengths)], [])
    with pytest.raises(ValueError, match="position 1 does not lie in the buffer"):
        native.texts(bad.buffer, bad.starts, bad.lengths, None)


def test_spans_of_another_number_type_are_an_error() -> None:
    good = Spans.of(sensors(2))
    with pytest.raises(ValueError, match="int64"):
        read(Spans(good.buffer, good.starts.astype(np.int32), good.lengths))
    with pytest.raises(ValueError, match="as many starts as lengths"):
        read(Spans(good.buffer, good.starts[:1], good.lengths))


def test_malformed_columns_are_a_python_error_of_the_extension() -> None:
    native = extension()
    key, two = b"k", np.zeros(2, np.int64)
    for column in [(1, key, two, None), (1, key, two.view(np.uint8)[:5], None), (5, [b"a"]), (3, key, True, [b"a"])]:
        with pytest.raises(ValueError, match="rows"):
            native.encoded(3, [column], [])
    for column in [(5, [b"a", 1, b""]), (3, key, False, [b"a", "b", "c"])]:
        with pytest.raises(TypeError):
            native.encoded(3, [column], [])
    with pytest.raises(ValueError, match="no such form"):
        native.encoded(3, [(9,)], [])
    with pytest.raises(IndexError):
        native.encoded(3, [(0,)], [])


def test_spans_in_steps_are_read_like_those_in_a_row() -> None:
    messages = sensors(8)
    spans = Spans.of(messages)[::-2]
    found = read(spans, "x", "id")
    assert found.columns["id"].values() == ["é7", "é5", "é3", "é1"]
    assert list(choosing("native")(encode_columns)(batch_of(found)).messages) == messages[::-2]


def test_columns_that_were_read_do_not_change_while_more_blocks_are_read() -> None:
    kept = []
    for first in range(0, 2000, 50):
        found = read(sensors(50, first), "x", "id")
        if first % 100:
            kept.append((first, found))
    for first, found in kept:
        assert [array[0] for array in found.columns["x"].values()] == list(range(first, first + 50))
        assert found.columns["id"].values() == [f"é{row}" for row in range(first, first + 50)]
        assert found.columns["n"].values() == list(range(first, first + 50))
        assert found.rows.tolist() == list(range(50))


def test_messages_that_were_written_do_not_change_while_more_are_written() -> None:
    messages = [sensors(20, first) for first in range(0, 200, 20)]
    written = [choosing("native")(encode_columns)(batch_of(read(block, "x", "id"))).messages for block in messages]
    assert [list(block) for block in written] == messages


def test_nothing_that_was_read_can_be_written_to() -> None:
    found = read(sensors(3), "x", "n", "id")
    x, n, text = (found.columns[key] for key in ("x", "n", "id"))
    assert isinstance(x, DenseColumn)
    assert isinstance(n, DenseColumn)
    assert isinstance(text, SpansColumn)
    for array in (x.array, n.array, text.spans.starts, text.spans.buffer, found.rows):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


@pytest.mark.slow
def test_a_block_is_alive_as_long_as_any_part_of_it() -> None:
    part = read(sensors(100), "x").columns["x"][99]
    kept = read(sensors(100), "id").columns["id"]
    gc.collect()
    for first in range(20):
        read(sensors(100, first * 1000), "x", "id")
    assert part.tolist() == [99.0] * 8
    assert kept[99] == "é99"


@pytest.mark.slow
def test_a_batch_of_megabytes_is_read_and_written_while_other_threads_run() -> None:
    messages = [sensors(6, 10 * number, floats=300_000) for number in range(3)]
    results: dict[int, list[bytes | None]] = {}

    def work(number: int) -> None:
        for _ in range(3):
            found = read(Spans.of(messages[number]), "x", "id", "n")
            results[number] = list(choosing("native")(encode_columns)(batch_of(found)).messages)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict(enumerate(messages))


def test_gaps_hold_zeros_and_not_what_was_in_the_block_before() -> None:
    for _ in range(5):
        read(messages_of(64, lambda row: {"x": np.full(100, -1, np.float32)}), "x")
    found = read(messages_of(64, lambda row: {"x": np.ones(100, np.float32)} if row % 2 else {}), "x")
    column = found.columns["x"]
    assert isinstance(column, DenseColumn)
    assert not column.storage[::2].any()


def test_undecoded_entries_are_decoded_out_of_their_buffer() -> None:
    found = read(messages_of(6, lambda row: {"x": np.full(2, row)} if row % 3 else {"s": "a" * row}))
    x, s = found.columns["x"], found.columns["s"]
    assert isinstance(x, WireColumn)
    assert isinstance(x.entries, Spans)
    assert isinstance(x.decoded(), DenseColumn)
    assert isinstance(s.decoded(), SpansColumn)
    assert [data.get("s") for data in batch_of(found).to_list()] == ["", None, None, "aaa", None, None]
    assert x.take(np.array([4, 0]))[0].tolist() == [4, 4]


def test_a_column_that_looks_dense_but_is_not_contiguous_is_written_all_the_same() -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2]
    mask = np.array([True, False] * 4)[::2]
    batch = Batch(
        {
            "y": DenseColumn(array),
            "n": DenseColumn(np.arange(8)[::2], ValueType.INT64, mask),
            "b": DenseColumn(np.array([True] * 8)[::2], ValueType.BOOLEAN),
            "s": SpansColumn(Spans.of([b"%d" % number for number in range(8)])[::2], ValueType.STRING),
            "half": DenseColumn(array.astype(">f2")),
            "empty": DenseColumn(np.zeros((4, 0))),
        },
        4,
    )
    written = choosing("native")(encode_columns)(batch)
    assert [decode(message or b"") for message in written.messages] == batch.to_list()
    assert list(written.messages) == list(choosing("python")(encode_columns)(batch).messages)


def test_lists_of_strings_with_gaps_are_written_like_spans_of_them() -> None:
    texts = Batch({"s": Column.of(["a", "é" * 200, "", "x"]), "y": Column.of([b"", b"\xff", b"ab", b"c"])}, 4)
    gaps = Batch({"s": Column.concat([Column.of(["a"]), Column.absent(3)])}, 4)
    for batch in (texts, gaps):
        written = choosing("native")(encode_columns)(batch)
        assert isinstance(written.messages, Spans)
        assert list(written.messages) == list(choosing("python")(encode_columns)(batch).messages)


def test_strings_from_elsewhere_become_a_column_if_they_are_text() -> None:
    column = SpansColumn.of_texts(Spans.of(["é".encode(), None, b""]))
    assert column is not None
    assert column.values() == ["é", MISSING, ""]
    assert column.mask is not None
    assert SpansColumn.of_texts(Spans.of([b"a", b"\xff"])) is None


def test_a_batch_of_no_rows_and_one_of_no_columns() -> None:
    assert read([]).columns == {}
    assert read([None]).rows.tolist() == []
    assert read([b"", None, b""]).rows.tolist() == [0, 2]
    assert list(choosing("native")(encode_columns)(Batch({}, 2)).messages) == [b"", b""]
    assert list(choosing("native")(encode_columns)(Batch({"a": Column.of([])}, 0)).messages) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_million_records_leave_no_memory_behind() -> None:
    process, began = psutil.Process(), time.monotonic()
    blocks = [sensors(512, 1000 * number, floats=32 * (number + 1)) for number in range(4)]
    for block in blocks:
        # Broken, odd and empty ones take other ways.
        block[7], block[99], block[300] = (block[0] or b"")[:-1], (block[0] or b"") * 2, None
    spans = [Spans.of(block) for block in blocks]
    total, done = 10_000_000, 0
    sizes: list[int] = []
    while done < total:
        for values in (*blocks, *spans):
            found = read(values, "x", "id")
            choosing("native")(encode_columns)(batch_of(found))
            assert found.columns["id"].values()[5].startswith("é")
            assert found.columns["n"].values()[5] % 1000 == 5
            done += len(values)
        if done // 500_000 > len(sizes):
            sizes.append(process.memory_info().rss)
            spent = time.monotonic() - began
            print(f"\r{done:,} of {total:,} records, {spent:.0f} s, {sizes[-1] >> 20} MiB", end="", file=sys.stderr)
    half = len(sizes) // 2
    assert max(sizes[half:]) - max(sizes[1:half]) < 8 << 20, [size >> 20 for size in sizes]
