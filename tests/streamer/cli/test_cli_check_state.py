"""`check` says where the state of which steps is kept, and where there is none to keep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SERVICE = """
name: pumps
source: {{type: kafka, topics: [pumps], codec: json, into: {{key: pump}}}}
pipeline:
{steps}
sink: {{type: kafka, topic: out}}
state: {state}
"""
DEDUP = '  - {"@type": DEDUP, by: [pump, seq], for: 10s}'
WINDOW = '  - {"@type": WINDOW, name: windows, by: pump, size: 4, values: x, outputName: y}'
LOGGING = '  - {"@type": LOGGING}'


def said(cli: Any, folder: Path, state: str, *steps: str) -> str:
    file = folder / "pumps.yaml"
    file.write_text(SERVICE.format(state=state, steps="\n".join(steps)))
    ended = cli("check", file, "--json")
    assert ended.code == 0, ended
    (service,) = json.loads(ended.out)["services"]
    (text,) = [one["text"] for one in service["findings"] if one["part"] == "state"]
    return str(text)


def test_the_place_the_interval_and_the_steps_are_named(cli: Any, tmp_path: Path) -> None:
    text = said(cli, tmp_path, "{path: pumps.state, interval: 2s}", DEDUP, LOGGING, WINDOW)
    assert text == f"{tmp_path / 'pumps.state'}, saved every 2000 ms: 0:DEDUP, windows"
    assert said(cli, tmp_path, "{topic: pumps.state}", WINDOW) == "topic pumps.state, saved every 1000 ms: windows"
    assert said(cli, tmp_path, "memory", WINDOW) == "in memory: it begins anew with each start"


@pytest.mark.parametrize("state", ["{path: pumps.state}", "{topic: pumps.state}"])
def test_a_place_that_no_step_needs_is_noted(cli: Any, tmp_path: Path, state: str) -> None:
    assert said(cli, tmp_path, state, LOGGING).startswith("note: no step of the pipeline has state that is saved")
