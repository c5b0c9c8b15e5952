"""Services whose payloads hold their records inside: changes of a database by Debezium, and lists of meters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines import Data
from pipelines.hotpath import HotPath
from streamer.definition.loading import loads

CHANGES = """
name: orders
hot_path: HOT
source:
  type: file
  path: changes.jsonl
  format: jsonl
  codec: {type: json, at: /payload/after, outer: {op: /payload/op, lsn: /payload/source/lsn}}
pipeline: [{"@type": FUNCTION, "function": "MODULE:priced"}]
sink: {type: file, path: orders.jsonl, format: jsonl}
dead_letter: {type: file, path: dead.jsonl, format: jsonl}
batch: {max_records: 64}
"""
METERS = """
name: meters
hot_path: HOT
source:
  type: file
  path: meters.jsonl
  format: jsonl
  codec: {type: json, at: /meters, each: true, outer: {site: /site}, read_nan: missing}
pipeline: []
sink: {type: file, path: readings.jsonl, format: jsonl}
dead_letter: {type: file, path: dead.jsonl, format: jsonl}
"""


def priced(data: Data) -> Data:
    return Data({"id": data["id"], "total": data["total"] * 2, "op": data["op"], "lsn": data["lsn"]})


def change(operation: str, row: int, lsn: int) -> dict[str, Any]:
    """An event of Debezium's connector for PostgreSQL, with the schema that its JSON converter puts before it."""
    values = {"id": row, "total": row / 4, "note": None, "tags": [1, None]}
    fields = [{"type": "int32", "optional": False, "field": "id"}, {"type": "double", "field": "total"}]
    source = {"version": "2.7.0.Final", "connector": "postgresql", "name": "shop", "lsn": lsn, "xmin": None}
    return {
        "schema": {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": "after"}]},
        "payload": {
            "before": None if operation == "c" else values,
            "after": None if operation == "d" else values,
            "source": source,
            "op": operation,
            "ts_ms": 1_700_000_000_000 + lsn,
            "transaction": None,
        },
    }


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ran(folder: Path, text: str, hot_path: HotPath) -> Any:
    return loads(text.replace("HOT", hot_path).replace("MODULE", __name__), base=folder).run()


def test_new_rows_of_a_table_are_records_and_deletions_pass_by(tmp_path: Path, hot_path: HotPath) -> None:
    changes = [change("cud"[number % 3], number // 3, number) for number in range(600)]
    heartbeat = {"schema": {}, "payload": {"ts_ms": 1}}
    truncated = {**changes[0], "payload": {**changes[0]["payload"], "after": "lost"}}
    sent = [*changes[:301], heartbeat, *changes[301:], truncated]
    (tmp_path / "changes.jsonl").write_text("".join(json.dumps(payload) + "\n" for payload in sent))
    summary = ran(tmp_path, CHANGES, hot_path)
    assert summary.error is None
    assert lines(tmp_path / "orders.jsonl") == [
        {"id": number // 3, "total": number // 3 / 2, "op": "cud"[number % 3], "lsn": number}
        for number in range(600)
        if number % 3 != 2
    ]
    assert (summary.ok, summary.passed, summary.dead, summary.failed) == (400, 200, 2, 0)
    dead = lines(tmp_path / "dead.jsonl")
    assert [letter["payload"] for letter in dead] == [json.dumps(heartbeat), json.dumps(truncated)]

    assert "there is nothing at /payload/after" in str(dead[0]["headers"])
    assert "is a string" in str(dead[1]["headers"])


def test_the_meters_of_an_envelope_are_records_of_their_site(tmp_path: Path, hot_path: HotPath) -> None:
    payloads = [
        '{"site": "north", "meters": [{"id": 1, "kwh": 10.50}, {"id": 2, "kwh": nan}], "v": 2}',
        '{"meters": [], "site": "north"}',
        '{"meters": [{"id": 3, "kwh": 1e3}]}',
        '{"site": "south", "meters": [{"id": 4}, 5]}',
        '{"site": "south", "meters": null}',
    ]
    (tmp_path / "meters.jsonl").write_text("\n".join(payloads) + "\n")
    summary = ran(tmp_path, METERS, hot_path)
    assert (tmp_path / "readings.jsonl").read_text().splitlines() == [
        '{"id":1,"kwh":10.50,"site":"north"}',
        '{"id":2,"site":"north"}',
        '{"id":3,"kwh":1e3}',
    ]
    # An envelope without meters holds no record either.
    assert (summary.ok, summary.passed, summary.dead) == (2, 2, 1)
    (dead,) = lines(tmp_path / "dead.jsonl")
    assert dead["payload"] == payloads[3]
    assert "/meters/1 is a number" in str(dead["headers"])
