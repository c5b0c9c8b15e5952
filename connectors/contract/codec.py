"""The contract of a codec: it reads and writes each valid record, regardless of other records in the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from connectors.codec import Codec, Decoded
from connectors.codecs.guarded import Guarded
from connectors.contract.cycles import check_no_cycles
from connectors.records import Header, Lane, Records, Span
from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.errors import WireError

HOSTILE: tuple[bytes, ...] = (b"", b"\x00", b"\xff" * 64, b"{", b'{"a": null}', b"[" * 5000, bytes(range(256)))
"""Malformed payloads, and payloads of other formats. A codec may be able to read some of them."""


class CodecContract:
    """Tests for any codec. It is used as in services: an exception fails one record (`Guarded`).

    A codec's test module derives a class with the fixtures `codec` and `record`, and lists in `bad` and `unwritable`
    payloads and records that the codec refuses:

        class TestMyCodec(CodecContract):
            bad = (b"no such file",)
            unwritable = (Data({"x": "text"}),)

            @pytest.fixture
            def codec(self) -> Codec:
                return MyConfig().build()

            @pytest.fixture
            def record(self) -> Data:
                return Data({"x": np.zeros(3)})
    """

    bad: Sequence[Any] = ()
    """Payloads that this codec refuses; empty if it reads any bytes."""
    unwritable: Sequence[Data] = ()
    """Records that this codec cannot write; empty if it writes any."""

    cycles: str = ""
    """Why its library leaves small reference cycles for each record, without its payload; empty if it leaves none."""

    @pytest.fixture
    def codec(self) -> Codec:
        """The codec, as its configuration builds it."""
        raise NotImplementedError(f"{type(self).__name__} has no fixture `codec`")

    @pytest.fixture
    def record(self) -> Data:
        """A record that it can write and read."""
        raise NotImplementedError(f"{type(self).__name__} has no fixture `record`")

    def test_a_codec_reads_the_records_that_it_wrote(self, codec: Codec, record: Data) -> None:
        """One record, and many, with the headers that the codec sets."""
        for count in (1, 50):
            encoded = Guarded(codec, "codec").encode(Batch.of([record] * count))
            assert not encoded.failed
            assert encoded.headers is None or len(encoded.headers) == count
            decoded = _decoded(codec, encoded.values, headers=encoded.headers)
            assert not decoded.failed
            assert decoded.batch.to_list() == [record] * count

    def test_rows_have_their_numbers_and_their_records(self, codec: Codec, record: Data) -> None:
        """Numbers begin at `first`; a tombstone is no row and no failure."""
        (payload,) = _written(codec, [record])
        decoded = _decoded(codec, [payload, None, payload], first=700)
        assert decoded.batch.rows.tolist() == [700, 702]
        assert not decoded.failed
        origin = decoded.batch.origin
        assert origin is not None
        contexts = [origin.record(row) for row in (700, 702)]
        assert [context and context.offset for context in contexts] == [1000, 1002]

    def test_keys_that_are_wanted_make_no_difference_to_values(self, codec: Codec, record: Data) -> None:
        """Values are the same whether they are decoded now or later."""
        payloads = _written(codec, [record, record])
        for wanted in (None, frozenset[str](), frozenset(record), frozenset(["another key"])):
            assert _decoded(codec, payloads, wanted).batch.to_list() == [record, record]

    def test_a_payload_that_is_no_record_fails_alone(self, codec: Codec, record: Data) -> None:
        """The first, a middle and the last payload, and all of them."""
        (payload,) = _written(codec, [record])
        for bad in self.bad:
            decoded = _decoded(codec, [bad, payload, bad, payload, payload, bad], first=10)
            assert sorted(decoded.failed) == [10, 12, 15]
            assert decoded.batch.rows.tolist() == [11, 13, 14]
            assert decoded.batch.to_list() == [record] * 3
            assert sorted(_decoded(codec, [bad] * 3).failed) == [0, 1, 2]

    def test_a_row_that_its_source_found_to_be_wrong_fails_and_is_not_decoded(self, codec: Codec, record: Data) -> None:
        """Even if its payload is valid; its neighbours keep their numbers."""
        (payload,) = _written(codec, [record])
        wrong = WireError("no topic")
        for rows in ([0], [1], [2], [0, 1, 2]):
            decoded = _decoded(codec, [payload] * 3, first=40, faults=dict.fromkeys(rows, wrong))
            assert decoded.failed == {40 + row: wrong for row in rows}
            assert decoded.batch.rows.tolist() == [row for row in (40, 41, 42) if row - 40 not in rows]
            assert decoded.batch.to_list() == [record] * (3 - len(rows))

    def test_nothing_that_a_stranger_sends_raises_or_harms_a_neighbour(self, codec: Codec, record: Data) -> None:
        """Each payload is read or refused, objects that are no bytes too, and every row is accounted for."""
        (payload,) = _written(codec, [record])
        given: list[Any] = [item for hostile in (*HOSTILE, 7, object(), "text") for item in (hostile, payload)]
        decoded = _decoded(codec, given)
        assert sorted([*decoded.failed, *decoded.batch.rows.tolist()]) == list(range(len(given)))
        left = dict(zip(decoded.batch.rows.tolist(), range(decoded.batch.size), strict=True))
        for row in range(1, len(given), 2):
            assert decoded.batch.row(left[row]) == record

    def test_a_record_that_cannot_be_written_fails_alone(self, codec: Codec, record: Data) -> None:
        """There is a payload for each of the others, in its place."""
        (payload,) = _written(codec, [record])
        for wrong in self.unwritable:
            encoded = Guarded(codec, "codec").encode(Batch.of([record, wrong, record]))
            assert list(encoded.failed) == [1]
            assert list(encoded.values) == [payload, None, payload]

    def test_records_make_no_reference_cycles(self, codec: Codec, record: Data) -> None:
        """Reading and writing leaves nothing that only the garbage collector frees."""
        if self.cycles:
            return
        (payload,) = _written(codec, [record])

        def read_and_write(count: int) -> None:
            for _ in range(count):
                _written(codec, _decoded(codec, [payload]).batch.to_list())

        check_no_cycles(read_and_write)

    def test_no_rows_are_no_payloads(self, codec: Codec, record: Data) -> None:
        """A block without records is a batch without rows, and a batch without rows gives no payloads."""
        assert list(Guarded(codec, "codec").encode(Batch({}, 0)).values) == []
        decoded = _decoded(codec, [])
        assert decoded.batch.size == 0
        assert not decoded.failed


def _written(codec: Codec, datas: Sequence[Data]) -> list[bytes | None]:
    encoded = Guarded(codec, "codec").encode(Batch.of(datas))
    assert not encoded.failed
    return list(encoded.values)


def _decoded(
    codec: Codec,
    values: Sequence[Any],
    wanted: frozenset[str] | None = None,
    first: int = 0,
    headers: Sequence[Sequence[Header]] | None = None,
    faults: Mapping[int, Exception] | None = None,
) -> Decoded:
    count = len(values)
    records = Records(
        "bus",
        list(values),
        None,
        np.arange(1000, 1000 + count, dtype=np.int64),
        [Span(Lane("bus", "0", 0), 0, count)],
        ["topic"],
        [0],
        sum(len(value) for value in values if isinstance(value, bytes)),
        headers=lambda: headers,
        faults=faults or {},
    )
    return Guarded(codec, "codec").decode(records, wanted, first)
