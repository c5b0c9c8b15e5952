"""New files of models take over in services whose steps hold records or state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from addingmodels import adding
from countwindows import WindowStep, WithWindows

from connectors.memory import MemorySource
from connectors.message import Message
from pipelines import BoundingBox, Data, GraphBuilder, Onnx, PipelineStep, Sequence, Track
from pipelines.errors import DefinitionError
from pipelines.observe.metrics import counter

EVERY = 0.02
MILLION = 1_000_000


class Recurrent(WindowStep):
    """As windows of a network of its own."""

    model_uri: str = "weights.onnx"


class Edited(WithWindows):
    """A pipeline with a part in a file that somebody edits: windows of `size` records, or none."""

    size = 3
    window = WindowStep

    def open(self, *args: Any, **settings: Any) -> Any:
        steps = (
            [*self.steps, self.window(name="windows", size=self.size, stride=self.size)] if self.size else self.steps
        )
        return WithWindows(steps).open(*args, **settings)


def windows(define: Any, folder: Path, **settings: Any) -> Any:
    """A service that adds the version's millions to records, and sums up three of them at a time."""
    pipeline = Edited([Onnx(model_uri=folder, output_names={"y": "x"})])
    models = {"follow": EVERY, **settings.pop("models", {})}
    return define(models=models, **settings).model_copy(update={"pipeline": pipeline})


def ship(models: Path, version: int) -> None:
    adding(models / str(version) / "model.onnx", version * MILLION)


def version_of(serving: Any) -> str:
    label: str = serving.agent.version.label
    return label


def held(serving: Any) -> int:
    count: int = serving.agent._loop._delivery.ledger.open_rows
    return count


def test_windows_go_on_over_versions_and_no_record_is_lost_or_doubled(
    define: Any, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    ship(tmp_path, 1)
    source = MemorySource(name="memory")
    serving = serve(windows(define, tmp_path, batch={"max_records": 16, "max_wait": 0.001}), {"memory": source})
    fed = 0
    for version in range(2, 5):
        ship(tmp_path, version)
        while version_of(serving) != str(version):
            source.feed(*[Message(Data({"x": fed + number}).to_bytes()) for number in range(50)])
            fed += 50
            eventually(lambda least=(fed - 200) // 3: len(serving.results()) >= least)
    serving.feed(fed, fed + 1)
    fed += 2
    eventually(lambda: len(serving.results()) == fed // 3)
    assert serving.stop().ok == fed
    windows_of = [range(first, min(first + 3, fed)) for first in range(0, fed, 3)]
    assert [result % MILLION for result in serving.results()] == [sum(window) for window in windows_of]
    made_by = [result // MILLION for result in serving.results()]
    full = made_by[: fed // 3]
    assert full == sorted(full)
    assert full[0] == 3 * 1
    assert full[-1] == 3 * 4
    assert source.acknowledged == [fed]


def test_records_of_a_window_that_was_begun_by_another_version_come_out_with_it(
    define: Any, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    ship(tmp_path, 1)
    serving = serve(windows(define, tmp_path, models={"keep": 1}))
    serving.feed(1)
    eventually(lambda: held(serving) == 1)
    ship(tmp_path, 2)
    eventually(lambda: version_of(serving) == "2")
    serving.feed(2)
    eventually(lambda: held(serving) == 2)
    shutil.rmtree(tmp_path / "2")
    eventually(lambda: version_of(serving) == "1")
    assert serving.agent.following.outcomes["opened"] == 1, "version 1 was kept"
    serving.feed(3)
    eventually(lambda: serving.results() == [1 + 2 + 3 + 4 * MILLION])


def test_tracks_go_on(define: Any, serve: Any, eventually: Any, tmp_path: Path) -> None:
    ship(tmp_path, 1)
    builder = GraphBuilder()
    model = builder.input.then("model", Onnx(model_uri=tmp_path))
    both = builder.merge(builder.input, model)
    tracked = both.then("track", PipelineStep(Sequence([Track(bbox_name="boxes")])))
    service = define(models={"follow": EVERY}).model_copy(update={"pipeline": builder.build(tracked)})
    serving = serve(service)

    def results() -> list[Data]:
        return [Data.from_bytes(message.value) for message in serving.sink.messages]

    for at in range(8):
        if at == 4:
            ship(tmp_path, 2)
            eventually(lambda: version_of(serving) == "2")
        x = 0.2 + 0.02 * at
        values = {"x": at, "boxes": [BoundingBox.corners(x, x + 0.1, 0.4, 0.6, "cat", 0.9)]}
        serving.source.feed(Message(Data(values).to_bytes(), timestamp=1_700_000_000_000 + at * 33))
        eventually(lambda least=at + 1: len(results()) == least)
    assert [result["y"] // MILLION for result in results()] == [1] * 4 + [2] * 4
    assert [result["ids"] for result in results()] == [[0]] + [[1]] * 7


def test_a_version_with_another_stateful_step_is_refused(
    define: Any, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    ship(tmp_path, 1)
    service = windows(define, tmp_path)
    serving = serve(service)
    serving.feed(1)
    service.pipeline.size = 2
    ship(tmp_path, 2)
    eventually(lambda: serving.agent.following.failed)
    (version,) = serving.agent.following.failed.values()
    assert version.reason == (
        'it has other stateful steps than version 1: "windows" has another size, 2 and not 3; restart the '
        "service, or set models: {state: discard}, with which these steps begin anew"
    )
    serving.feed(2, 3)
    eventually(lambda: serving.results() == [1 + 2 + 3 + 3 * MILLION])


@pytest.mark.parametrize("keep", [0, 1])
def test_a_stateful_step_that_was_changed_begins_anew_where_that_is_allowed(
    define: Any, serve: Any, eventually: Any, tmp_path: Path, keep: int
) -> None:
    ship(tmp_path, 1)
    service = windows(define, tmp_path, models={"state": "discard", "keep": keep})
    serving = serve(service)
    serving.feed(1)
    eventually(lambda: held(serving) == 1)
    service.pipeline.size = 2
    ship(tmp_path, 2)
    # Held by the version before, which finishes it.
    eventually(lambda: serving.results() == [1 + MILLION])
    eventually(lambda: version_of(serving) == "2")
    serving.feed(2, 3, 4)
    eventually(lambda: serving.results()[1:] == [2 + 3 + 4 * MILLION])
    # It is kept open, and its windows are of another size.
    shutil.rmtree(tmp_path / "2")
    eventually(lambda: version_of(serving).partition(".")[0] == "1")
    serving.feed(5)
    eventually(lambda: serving.results()[2:] == [4 + 5 + 3 * MILLION])
    assert serving.stop().ok == 5


def test_a_version_with_state_does_not_take_the_place_of_one_without(
    define: Any, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    ship(tmp_path, 1)
    service = windows(define, tmp_path, models={"state": "discard"})
    service.pipeline.size = 0
    serving = serve(service)
    service.pipeline.size = 2
    ship(tmp_path, 2)
    eventually(lambda: serving.agent.following.failed)
    (version,) = serving.agent.following.failed.values()
    assert version.reason.startswith("it has steps that hold records or state, and version 1 has none")


def test_a_step_with_state_and_a_model_of_its_own_is_refused_at_the_start(
    define: Any, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    ship(tmp_path, 1)
    service = windows(define, tmp_path)
    service.pipeline.window = Recurrent
    with pytest.raises(DefinitionError, match=r'^models\.follow: "windows" has a model of its own, .* no new version'):
        serve(service)
    allowed = windows(define, tmp_path, models={"state": "discard"})
    allowed.pipeline.window = Recurrent
    serving = serve(allowed)
    serving.feed(1)
    eventually(lambda: held(serving) == 1)
    ship(tmp_path, 2)
    eventually(lambda: serving.results() == [1 + MILLION])


def counting(data: Data) -> Data:
    counter("seen").add(1)
    return data


def test_what_steps_count_is_counted_once_also_when_an_older_version_comes_back(
    define: Any, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    ship(tmp_path, 1)
    pipeline = Sequence([counting, Onnx(model_uri=tmp_path)])
    serving = serve(define(models={"follow": EVERY, "keep": 1}).model_copy(update={"pipeline": pipeline}))

    def counted() -> float:
        seen: float = sum(
            value
            for reading in serving.agent.meters.readings()
            if reading.name.removesuffix("_total") == "seen"
            for _, value in reading.samples
        )
        return seen

    serving.feed(1, 2)
    eventually(lambda: len(serving.results()) == 2)
    for records, version in enumerate(("2", "1", "2"), start=3):
        if version == "2":
            ship(tmp_path, 2)
        else:
            shutil.rmtree(tmp_path / "2")
        eventually(lambda label=version: version_of(serving).startswith(label))
        serving.feed(3)
        eventually(lambda least=records: len(serving.results()) == least)
        assert counted() == records
