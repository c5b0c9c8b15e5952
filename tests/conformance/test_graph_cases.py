"""What Konduit Serving's graphs made of recorded inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines import Data, DefinitionError, StepError

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "vectors" / "graph-cases.jsonl").read_text(encoding="utf-8").splitlines()
]
# Konduit loads these, and one it even "runs", by returning its input.
REFUSED = {"graph_unreachable_output", "graph_single_unreachable_step_returns_input"}


def data(form: dict[str, Any]) -> Data:
    return Data.from_json(json.dumps(form), byte_order="little")


@pytest.mark.parametrize("row", [row for row in ROWS if row["name"] not in REFUSED], ids=lambda row: row["name"])
def test_a_recorded_input_gives_the_recorded_output_or_error(row: dict[str, Any]) -> None:
    with pipelines.loads(json.dumps(row["pipeline"])).open() as executor:
        (found,) = executor.run_many([data(row["input"])])
        # The same among other records, as in a stream.
        crowd = executor.run_many([Data(), data(row["input"]), Data(), data(row["input"])])
    if "error" in row:
        assert isinstance(found, StepError)
        assert str(found).endswith(row["error_message"])
        assert [str(one) for one in crowd[1::2]] == [str(found)] * 2
    else:
        assert found == data(row["output"])
        assert crowd[1::2] == [found] * 2


@pytest.mark.parametrize("row", [row for row in ROWS if row["name"] in REFUSED], ids=lambda row: row["name"])
def test_a_graph_whose_output_cannot_be_reached_does_not_load(row: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=r'steps\.a\.@input: there is no step "nosuch"'):
        pipelines.loads(json.dumps(row["pipeline"]))
