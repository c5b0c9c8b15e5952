"""The `batch` of a pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines import Async, Data, Graph, GraphBuilder, Logging, Pipeline, Sequence, SimpleLoopTrigger
from pipelines.definitions.overriding import overridden
from pipelines.definitions.walk import batches_inside
from pipelines.errors import DefinitionError

BATCH: dict[str, Any] = {"type": "hard", "max_records": 8, "max_age": "2s"}


def built() -> Graph:
    graph = GraphBuilder()
    return graph.build(graph.input.then("log", Logging()), batch=BATCH)


@pytest.mark.parametrize(
    "pipeline",
    [
        Sequence([Logging(name="log")], batch=BATCH),
        Graph({"log": (Logging(), "input")}, batch=BATCH),
        built(),
        Async(Sequence([Logging(name="log")], batch=BATCH), SimpleLoopTrigger(frequency_ms=200)),
    ],
    ids=["sequence", "graph", "builder", "async"],
)
def test_a_batch_survives_being_written_and_changed(pipeline: Pipeline) -> None:
    assert dict(pipeline.batch) == BATCH
    for text in (pipeline.to_json(), pipeline.to_yaml()):
        assert pipelines.loads(text) == pipeline
        assert dict(pipelines.loads(text).batch) == BATCH
    assert dict(overridden(pipeline, {"log.logLevel": "DEBUG"}).batch) == BATCH


def test_a_pipeline_without_one_is_written_as_konduit_has_it() -> None:
    plain = Sequence([Logging()])
    assert dict(plain.batch) == {}
    assert plain.to_dict().keys() == {"steps"}
    assert plain != Sequence([Logging()], batch=BATCH)
    assert pipelines.loads('{"steps": [], "batch": null}') == Sequence([])


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ("\n  max_recrods: 8", 'p.yaml:3: batch.max_recrods: no such field; did you mean "max_records"?'),
        ("\n  type: hard\n  max_records: 0", "p.yaml:4: batch.max_records: must be greater than or equal to 1, not 0"),
        (" 8", "p.yaml:2: batch: must be a mapping, such as {max_records: 8}"),
        ("\n  batch: {}", "p.yaml:3: batch.batch: no such field"),
    ],
)
def test_a_mistake_is_refused_with_its_line(tmp_path: Path, batch: str, expected: str) -> None:
    (tmp_path / "p.yaml").write_text(f'steps: [{{"@type": LOGGING}}]\nbatch:{batch}')
    with pytest.raises(DefinitionError) as raised:
        pipelines.load(tmp_path / "p.yaml")
    assert str(raised.value).replace(f"{tmp_path}/", "").startswith(expected)


def test_a_plug_ins_type_may_have_fields_of_its_own() -> None:
    assert dict(Sequence([], batch={"type": "quiet", "quiet": "10ms"}).batch) == {"type": "quiet", "quiet": "10ms"}
    with pytest.raises(DefinitionError, match=r"batch\.quiet: no such field"):
        Sequence([], batch={"type": "soft", "quiet": "10ms"})


def test_the_batch_of_a_pipeline_inside_another_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text('steps: [{"@type": LOGGING}]\nbatch: {max_records: 4}')
    (tmp_path / "outer.yaml").write_text('steps:\n- {"@type": PIPELINE, name: inside, pipeline: inner.yaml}')
    outer = pipelines.load(tmp_path / "outer.yaml")
    assert dict(outer.batch) == {}
    assert batches_inside(outer) == ["inside"]
    with outer.open() as executor:
        assert executor.run(Data({"x": 1})) == Data({"x": 1})
