"""A variant that gets a copy of the records, and whose results are compared and thrown away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from addingmodels import adding

from pipelines import Data, Onnx, Sequence

SHADOW = {"shadow": {"version": 2}}
free = threading.Event()


def careful(data: Data) -> Data:
    """Fails with 13 in version 2 alone; waits with 99 there."""
    if 2000 <= data["y"] < 3000:
        if data["y"] == 2013:
            raise ValueError("thirteen")
        if data["y"] == 2099:
            free.wait(30)
    return data


@pytest.fixture(autouse=True)
def freed() -> Iterator[None]:
    free.clear()
    yield
    free.set()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Version 1 adds 1000, 2 adds 2000, 3 adds 3000."""
    for version in (1, 2, 3):
        adding(tmp_path / str(version) / "model.onnx", 1000 * version)
    return tmp_path


def counts(serving: Any) -> dict[str, int]:
    return dict(serving.agent._loop.models.shadow.counts)


@pytest.mark.parametrize("parallel", [1, 2], ids="parallel {}".format)
def test_a_shadow_runs_the_same_records_and_says_how_its_results_differ(
    define: Any, serve: Any, eventually: Any, models: Path, parallel: int
) -> None:
    pipeline = Sequence([Onnx(model_uri=models), careful])
    serving = serve(define(pipeline, variants=SHADOW, keep="all", limits={"parallel": parallel}))
    for number in range(10, 15):
        serving.feed(number)
        eventually(lambda done=number - 9: sum(counts(serving).values()) == done)
    assert serving.results() == [3010, 3011, 3012, 3013, 3014]
    assert not serving.buried()
    assert counts(serving) == {"ok": 4, "failed": 1, "skipped": 0}
    document = serving.agent._loop.models.shadow.document()
    assert document["outputs"] == {"y": {"equal": 0, "different": 4, "missing": 0, "largest_difference": 1000.0}}
    assert (document["failed_only_here"], document["failed_only_in_service"]) == (1, 0)
    serving.stop()
    assert len(serving.agent._assembly._shared) == 0, "all sessions are closed"


def test_a_shadow_that_hangs_or_fails_harms_nobody(define: Any, serve: Any, eventually: Any, models: Path) -> None:
    serving = serve(define(Sequence([Onnx(model_uri=models), careful]), variants=SHADOW))
    serving.feed(99)
    eventually(lambda: serving.results() == [3099])
    serving.feed(*range(5))
    eventually(lambda: len(serving.results()) == 6)
    eventually(lambda: counts(serving) == {"ok": 0, "failed": 0, "skipped": 5})
    assert serving.agent.ready() is None
    assert serving.stop(20).ok == 6


def test_a_version_takes_the_place_of_the_shadow_while_it_runs(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    service = define(
        Sequence([Onnx(model_uri=models), careful]), variants={"shadow": {"version": 2}}, models={"follow": 0.02}
    )
    serving = serve(service)
    serving.feed(99)
    eventually(lambda: serving.results() == [3099])
    shadow = serving.agent._assembly.shadow
    before = shadow()
    adding(models / "2" / "model.onnx", 5000)
    eventually(lambda: shadow().label != "2")
    asked = serving.agent.following.reload()
    assert not asked.wait(0.3), "the version before is closed first, and that waits"
    assert before.executors
    free.set()
    eventually(lambda: counts(serving)["ok"] == 1)
    eventually(lambda: not before.executors)
    serving.feed(1)
    eventually(lambda: counts(serving)["ok"] == 2)
    assert serving.agent._loop.models.shadow.comparison.outputs["y"].largest == 1999.0 + 1
    assert serving.results() == [3099, 3001]
    serving.stop()
    assert len(serving.agent._assembly._shared) == 0, "all sessions are closed"


def test_requests_cannot_name_a_shadow_and_it_has_no_weight(define: Any, serve: Any, models: Path) -> None:
    serving = serve(define(Onnx(model_uri=models), variants=SHADOW))
    assert serving.agent._assembly.lineup.names == []
    assert serving.agent.variants() == []
    with pytest.raises(ValueError, match=r"shadow\.weight"):
        define(Onnx(model_uri=models), variants={"shadow": {"version": 2, "weight": 1}})
