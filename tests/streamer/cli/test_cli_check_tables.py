"""`streamer check` and `build` of services with tables: rows and types are told, and files taken along."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars
import pytest

SERVICE = """
source: {{type: memory, topic: in, codec: {{type: csv, names: [machine, temp]}}}}
pipeline: [{{"@type": LOOKUP, {fields}}}, {{"@type": FEATURES, fields: [floor], output: x}}]
sink: {{type: memory, topic: out, codec: json}}
dead_letter: {{type: memory, topic: dead}}
"""


def service(folder: Path, fields: str) -> Path:
    file = folder / "service.yaml"
    file.write_text(SERVICE.format(fields=fields))
    (folder / "machines.csv").write_text("id,floor,line\nm1,1,north\nm2,2,south\n")
    return file


def findings(ended: Any) -> dict[str, dict[str, Any]]:
    (report,) = json.loads(ended.out)["services"]
    return {one["part"]: one for one in report["findings"]}


def test_check_says_how_many_rows_a_table_has_and_of_which_types(cli: Any, tmp_path: Path) -> None:
    ended = cli("check", service(tmp_path, "path: machines.csv, by: {machine: id}, take: [floor, line]"), "--json")
    assert ended.code == 0, ended
    text = findings(ended)["step 0:LOOKUP"]["text"]
    assert text == "tables, 2 rows, machine (text) -> floor (integer), line (text)"


@pytest.mark.parametrize(
    ("fields", "part", "text"),
    [
        ("path: machines.csv, by: {machine: id}, take: [flor]", "0:LOOKUP", 'no column "flor"; did you mean "floor"?'),
        ("path: machine.csv, by: {machine: id}, take: [floor]", "0:LOOKUP", "machine.csv is not there; relative"),
        ("path: machines.csv, by: {machin: id}, take: [floor]", "0:LOOKUP", 'needs "machin", but records have'),
        ("path: machines.csv, by: {machine: id}, take: [line]", "1:FEATURES", 'needs "floor", but records have'),
    ],
)
def test_check_finds_columns_files_and_keys_that_are_not_there(
    cli: Any, tmp_path: Path, fields: str, part: str, text: str
) -> None:
    ended = cli("check", service(tmp_path, fields), "--json")
    assert ended.code == 2
    (report,) = json.loads(ended.out)["services"]
    wrong = [one for one in report["findings"] if not one["ok"]]
    assert wrong[0]["part"] == f"step {part}"
    assert text in wrong[0]["text"]


@pytest.mark.slow
def test_build_takes_the_table_along_and_polars_only_for_parquet(cli: Any, tmp_path: Path) -> None:
    file = service(tmp_path, "path: machines.csv, by: {machine: id}, take: [floor]")
    ended = cli("build", file, "--out", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    built = json.loads(ended.out)
    assert {name.rpartition("/")[2] for name in built["files"]} == {"service.yaml", "machines.csv"}
    assert built["extras"] == []

    polars.DataFrame({"id": ["m1"], "floor": [1]}).write_parquet(tmp_path / "machines.parquet")
    file = service(tmp_path, "path: machines.parquet, by: {machine: id}, take: [floor]")
    ended = cli("build", file, "--out", tmp_path / "again", "--json")
    assert ended.code == 0, ended.err
    built = json.loads(ended.out)
    assert {name.rpartition("/")[2] for name in built["files"]} == {"service.yaml", "machines.parquet"}
    assert built["extras"] == ["map"]
    assert any(line.startswith("polars") for line in built["requirements"])
