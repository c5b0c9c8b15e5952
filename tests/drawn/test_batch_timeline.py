"""The picture of batches over time is drawn from the profile of a service that ran."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from drawn import batchtimeline
from drawn.batchtimeline import SHOWN, STAGES

from streamer.devbroker import Broker

FILE = Path(__file__).parents[2] / "docs" / "pictures" / "batch-timeline.svg"


@pytest.mark.slow
def test_batches_of_a_real_profile_go_through_their_stages_one_after_the_other(kafka: Broker, tmp_path: Path) -> None:
    events = batchtimeline.profile(tmp_path, kafka.bootstrap, f"digits-{uuid.uuid4().hex[:8]}", 4.0)
    batches = batchtimeline.batches_of(events)
    assert len(batches) >= SHOWN
    for batch in batches:
        assert list(STAGES) == sorted(batch.stages, key=lambda name: batch.stages[name].began)
        ends = [batch.stages[name].ended for name in STAGES]
        # Files round to a nanosecond.
        assert all(stage.began >= end - 0.001 for stage, end in zip(_stages(batch)[1:], ends, strict=False))
    drawn = batchtimeline.drawing(batchtimeline.typical(batches))
    assert _words(drawn) == _words(FILE.read_text())


def test_records_that_were_divided_on_the_way_are_not_shown_as_a_batch() -> None:
    events = [_event(name, at, 5) for at, name in enumerate(STAGES)]
    events += [_event("poll", 10, 4), _event("decode", 11, 4)]
    events += [_event(name, at, rows) for at, rows in ((12, 3), (13, 1)) for name in ("run", "encode", "send")]
    (batch,) = batchtimeline.batches_of(reversed(events))
    assert batch.records == 5
    assert batch.took == pytest.approx(4.5)
    with pytest.raises(ValueError, match="the profile has 1 batches; 5 are shown"):
        batchtimeline.typical([batch])


def _event(name: str, at: float, rows: int) -> dict[str, Any]:
    return {"ph": "X", "cat": "stage", "name": name, "ts": at * 1000, "dur": 500, "args": {"rows": rows}}


def _stages(batch: batchtimeline.Batch) -> list[batchtimeline.Stage]:
    return [batch.stages[name] for name in STAGES]


def _words(drawing: str) -> set[str]:
    """The texts of a drawing but for those that begin with a measured number."""
    return {text for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawing) if not re.match(r"\+?\d+(\D|$)", text)}
