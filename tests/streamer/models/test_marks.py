"""A version that ended the process while it was opened is not tried at each start."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from addingmodels import adding
from waiting import until

from connectors.memory import MemorySink, MemorySource, MemoryTopic
from connectors.source import Source
from pipelines import Onnx, Sequence
from pipelines.errors import StreamerError
from pipelines.executors.executor import Executor
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.cli.findings import examined
from streamer.definition.service import Service
from streamer.models.files import ModelFiles, State
from streamer.models.marks import Caution, Marks
from streamer.models.opening import Openings

KILLED = """
import os, signal, sys, time
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from addingmodels import adding
from pipelines.runners.models import onnxsession
from test_marks import agent

load = onnxsession._loaded

def loaded(path, step):
    if path.parent.name == "2":
        os.kill(os.getpid(), signal.SIGKILL)
    return load(path, step)

onnxsession._loaded = loaded
agent(Path(sys.argv[1])).start()
adding(Path(sys.argv[1], "2", "model.onnx"), 2)
time.sleep(60)
"""


def service(folder: Path, **fields: Any) -> Service:
    memory = {"type": "memory", "topic": "adding"}
    models = {"follow": 0.02}
    return Service(
        name="adding",
        source=memory,
        sink=memory,
        pipeline=Sequence([Onnx(model_uri=folder)]),
        models=models,
        on_error="drop",
        **fields,
    )


def agent(folder: Path) -> Agent:
    definition = service(folder)
    sources: dict[str, Source] = {"memory": MemorySource(topic=MemoryTopic("in"), name="memory")}
    return Agent(definition, assembly=build(definition, sources=sources, sinks={"memory": MemorySink()}))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "opening"


def test_a_version_that_killed_the_process_waits_until_its_files_change(tmp_path: Path, cache: Path) -> None:
    models = tmp_path / "models"
    adding(models / "1" / "model.onnx", 1)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(models), str(Path(__file__).parent), *sys.path], check=False, timeout=120
    )
    assert killed.returncode == -signal.SIGKILL
    (mark,) = cache.iterdir()
    again = agent(models)
    again.start()
    try:
        assert again.version is not None
        assert again.version.label == "1"
        current, refused = again.pages()["models"]["versions"]()
        assert (current["version"], current["state"]) == ("1", "READY")
        assert (refused["version"], refused["state"]) == ("2", "UNAVAILABLE")
        assert str(mark) in refused["reason"]
        # It would take over within two looks.
        adding(models / "2" / "model.onnx", 20)
        until(lambda: again.version is not None and again.version.label == "2")
        assert again.pages()["models"]["versions"]()[0]["state"] == "READY"
    finally:
        again.stop()
        again.join(30)


def left(folder: Path, before: int | None, variant: str = "current") -> None:
    """As if the process had ended while it opened the files of `folder`, beside those of the version `before`."""
    files = ModelFiles(Sequence([Onnx(model_uri=folder)]))
    marks = Marks("adding")
    with marks.opening(variant, files.look(), None if before is None else files.look(before)):
        (mark,) = marks._open
        content = mark.read_bytes()
    mark.write_bytes(content)


def first(service: Service, caution: Caution = Caution.ALONE) -> tuple[Openings, str]:
    def opened(variant: str, state: State, opening: int) -> list[Executor]:
        return [service.pipeline.open(versions=state.versions)]

    openings = Openings(service, opened, caution)
    lineup = openings.first()
    lineup.close()
    return openings, lineup.current.label


def test_files_without_another_version_are_tried_again_and_their_mark_goes(tmp_path: Path, cache: Path) -> None:
    model = adding(tmp_path / "model.onnx", 1)
    left(model, None)
    openings, _ = first(service(model))
    assert not openings.refused
    assert not [*cache.iterdir()]


def test_a_first_version_that_ends_the_process_is_opened_again_once_and_then_left_for_another(
    tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2):
        adding(tmp_path / str(number) / "model.onnx", number)
    left(tmp_path, None)
    openings, label = first(service(tmp_path))
    assert (label, openings.refused) == ("2", {})
    assert "the process ended while it opened these models, which are opened again" in caplog.text
    # It could be opened, so that the next time is the first again.
    assert not [*cache.iterdir()]
    left(tmp_path, None)
    left(tmp_path, None)
    openings, label = first(service(tmp_path))
    assert (label, openings.refused["current"].label) == ("1", "2")
    said = {finding.part: finding.text for finding in examined(service(tmp_path)).findings}
    assert said["models"].startswith("note: version 2 is left out: the process ended while it opened these files")
    # The only one there is, is opened however often it ended the process.
    shutil.rmtree(tmp_path / "1")
    caplog.clear()
    assert first(service(tmp_path))[1] == "2"
    assert "times=2" in caplog.text


def test_what_ended_a_process_of_many_models_is_opened_only_if_somebody_asks_for_it(tmp_path: Path) -> None:
    model = adding(tmp_path / "model.onnx", 1)
    left(model, None)
    with pytest.raises(StreamerError, match="the process ended while it opened these files"):
        first(service(model), Caution.OTHERS)
    adding(model, 2)
    first(service(model), Caution.OTHERS)
    left(model, None)
    first(service(model), Caution.NONE)
    first(service(model), Caution.OTHERS)


def test_a_version_that_is_being_opened_by_another_process_is_none_that_has_ended_it(tmp_path: Path) -> None:
    for number in (1, 2):
        adding(tmp_path / str(number) / "model.onnx", number)
    files = ModelFiles(Sequence([Onnx(model_uri=tmp_path)]))
    marks = Marks("adding")
    with marks.opening("current", files.look(), files.look(1)):
        assert first(service(tmp_path))[1] == "2"
        # Nor is one whose process ends as it should.
        marks.end()
    assert first(service(tmp_path))[1] == "2"


def test_a_service_goes_back_past_all_versions_that_ended_it(tmp_path: Path) -> None:
    adding(tmp_path / "1" / "model.onnx", 1)
    for number in (2, 3):
        adding(tmp_path / str(number) / "model.onnx", number)
        left(tmp_path, 1)
    openings, label = first(service(tmp_path))
    assert label == "1"
    assert openings.refused["current"].label == "3"


def test_a_variant_of_a_version_that_ended_the_process_is_refused(tmp_path: Path) -> None:
    for number in (1, 2):
        adding(tmp_path / str(number) / "model.onnx", number)
    left(tmp_path, 1, "next")
    with pytest.raises(StreamerError, match=r"variants.next: the process ended while it opened these files"):
        first(service(tmp_path, variants={"next": {"version": 2}}))


def test_a_cache_that_cannot_be_written_keeps_no_version_from_being_opened(tmp_path: Path, cache: Path) -> None:
    cache.parent.write_bytes(b"")
    model = adding(tmp_path / "model.onnx", 1)
    left_open = ModelFiles(Sequence([Onnx(model_uri=model)])).look()
    marks = Marks("adding")
    with marks.opening("current", left_open, None):
        assert marks.left("current", left_open) is None
