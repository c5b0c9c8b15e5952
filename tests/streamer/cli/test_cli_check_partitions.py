"""`check` says where the key of a step's states is not known to be that of the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SERVICE = """
name: pumps
source: {source}
pipeline:
  - {{"@type": {step}}}
sink: {{type: memory, topic: out}}
state: memory
"""
KAFKA = "type: kafka, topics: [pumps], codec: json"
STEPS = (
    "DEDUP, by: pump, for: 10s",
    "WINDOW, by: pump, size: 4, values: x, outputName: y",
    "CHANGE, by: pump, value: x",
    "FUNCTION, function: 'operator:add', remember: pump",
)


def noted(cli: Any, folder: Path, source: str, step: str) -> str:
    file = folder / "pumps.yaml"
    file.write_text(SERVICE.format(source="{" + source + "}", step=step))
    ended = cli("check", file, "--json")
    assert ended.code == 0, ended
    (service,) = json.loads(ended.out)["services"]
    (text,) = [one["text"] for one in service["findings"] if one["part"].startswith("step")]
    return str(text).partition("; note: ")[2]


@pytest.mark.parametrize("step", STEPS)
def test_records_of_one_key_have_to_be_in_one_partition(cli: Any, tmp_path: Path, step: str) -> None:
    said = noted(cli, tmp_path, KAFKA, step)
    assert said.startswith(
        "each partition has states of its own, so all records of one pump have to be in one partition"
    )
    assert "into: {key: pump}" in said


@pytest.mark.parametrize(
    ("source", "step"),
    [
        *((f"{KAFKA}, into: {{key: pump}}", step) for step in STEPS),
        (f"{KAFKA}, into: {{key: pump}}", "DEDUP, by: [pump, seq], for: 10s"),
        ("type: mqtt, topics: pumps/#, codec: json", STEPS[0]),
        (KAFKA, "IMAGE_TO_NDARRAY"),
    ],
)
def test_nothing_is_said_where_it_is_the_records_key_or_there_are_no_partitions(
    cli: Any, tmp_path: Path, source: str, step: str
) -> None:
    assert noted(cli, tmp_path, source, step) == ""


def test_another_value_of_the_key_is_said(cli: Any, tmp_path: Path) -> None:
    assert "all records of one pump and seq" in noted(
        cli, tmp_path, f"{KAFKA}, into: {{key: site}}", "DEDUP, by: [pump, seq], for: 10s"
    )
