"""The batching that a pipeline needs is that of the services that run it, unless they say otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pipelines
import streamer
from pipelines.errors import DefinitionError
from streamer.cli.findings import examined
from streamer.definition.service import Service

HARD = "{type: hard, max_records: 8, max_age: 2s}"


def load(folder: Path, meant: str, said: str = "", source: str = "{type: memory, topic: in}") -> Service:
    (folder / "p.yaml").write_text(f'steps: [{{"@type": LOGGING}}]\nbatch: {meant}\n')
    (folder / "s.yaml").write_text(f"source: {source}\npipeline: p.yaml\nsink: {{type: memory, topic: out}}\n{said}")
    return streamer.load(folder / "s.yaml")


def checked(service: Service) -> str:
    (finding,) = (finding for finding in examined(service).findings if finding.part == "batch")
    return finding.text


@pytest.mark.parametrize(
    ("meant", "said", "expected", "told"),
    [
        (HARD, "", {"type": "hard", "max_records": 8, "max_age": 2.0}, "the pipeline says type hard, max_records 8"),
        (
            HARD,
            "batch: {max_records: 16}",
            {"type": "hard", "max_records": 16, "max_age": 2.0},
            "these of the pipeline do not count: max_records 8",
        ),
        (
            HARD,
            "batch: {type: soft, max_wait: 1ms}",
            {"type": "soft", "max_records": 8, "max_wait": 0.001},
            "do not count: type hard, max_age 2s",
        ),
        ("{target_latency: 20ms}", "batch: {max_wait: 1ms}", {"max_wait": 0.001}, "do not count: target_latency 20ms"),
        ("{max_wait: 1ms}", "batch: {target_latency: 20ms}", {"target_latency": 0.02}, "do not count: max_wait 1ms"),
    ],
)
def test_fields_that_the_service_does_not_set_are_those_of_the_pipeline(
    tmp_path: Path, meant: str, said: str, expected: dict[str, Any], told: str
) -> None:
    service = load(tmp_path, meant, said)
    assert service.batch.model_dump(exclude_unset=True) == expected
    assert told in checked(service)


def test_it_is_so_in_python_and_for_pipelines_inside_a_service_file(tmp_path: Path) -> None:
    made = Service(
        source={"type": "memory", "topic": "in"},
        pipeline=pipelines.Sequence([pipelines.Logging()], batch={"max_records": 8}),
        sink={"type": "memory", "topic": "out"},
    )
    assert made.batch.max_records == 8
    (tmp_path / "s.yaml").write_text(
        "source: {type: memory, topic: in}\nsink: {type: memory, topic: out}\n"
        'pipeline: {steps: [{"@type": LOGGING}], batch: {max_records: 8}}\n'
    )
    assert streamer.load(tmp_path / "s.yaml").batch.max_records == 8


def test_a_target_of_the_pipeline_leaves_rounds_of_cameras_as_they_are(tmp_path: Path) -> None:
    service = load(tmp_path, "{target_latency: 20ms}", source="{type: camera, cameras: {gate: 'rtsp://gate/1'}}")
    assert service.batch.for_sources(perishable=True, in_flight=1 << 30).type == "round"


@pytest.mark.parametrize(
    ("meant", "expected"),
    [
        ("{max_wait: soon}", r'pipeline\.batch\.max_wait: "soon" is not a duration'),
        ("{type: hrad}", r'there is no batcher of type "hrad"; did you mean "hard"\?'),
        ("{type: soft, max_age: 2s}", r"pipeline\.batch\.max_age: is for batches of type hard"),
    ],
)
def test_a_mistake_of_the_pipeline_names_its_field(tmp_path: Path, meant: str, expected: str) -> None:
    with pytest.raises(DefinitionError, match=expected):
        load(tmp_path, meant)


def test_a_batch_inside_a_step_is_noted(tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text('steps: [{"@type": LOGGING}]\nbatch: {max_records: 4}')
    (tmp_path / "s.yaml").write_text(
        "source: {type: memory, topic: in}\nsink: {type: memory, topic: out}\n"
        'pipeline: [{"@type": PIPELINE, name: inside, pipeline: inner.yaml}]\n'
    )
    service = streamer.load(tmp_path / "s.yaml")
    assert service.batch.max_records == 512
    assert "the batch of the pipeline inside inside does not count" in checked(service)
