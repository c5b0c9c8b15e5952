"""What records of a topic say about the rows of a table, where a payload holds another number of rows than one."""

from __future__ import annotations

from connectors.codecs.registry import codec_of
from connectors.message import Message, records_of
from connectors.tables.topictable import rows_of
from pipelines.data.columns import MISSING


def test_a_payload_of_several_rows_is_none_and_an_empty_one_removes_its_row() -> None:
    payloads = [b'[{"line": "a"}, {"limit": 1}]', b"[]", b'[{"line": "c", "limit": 3}]', None, b"{"]
    records = records_of([Message(payload, b"k%d" % at) for at, payload in enumerate(payloads)], "bus")
    names = ("line", "limit")
    rows = rows_of(records, names, codec_of({"type": "json", "each": True}), frozenset(names), "text")
    assert rows.gone == {1, 3}
    assert sorted(rows.failed) == [0, 4]
    assert str(rows.failed[0]) == "the payload has 2 rows, and a record of a table is one row"
    assert [rows.columns[name][2] for name in names] == ["c", 3]
    assert [rows.columns[name][4] for name in names] == [MISSING, MISSING]
    assert rows.sizes == [29, 2, 27, 0, 1]
