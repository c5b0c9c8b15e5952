"""When new files of models count, and what is opened for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from addingmodels import adding
from waiting import until

from pipelines import Onnx, Sequence, Shared
from pipelines.executors.executor import Executor
from streamer.models.files import ModelFiles, State
from streamer.models.following import Following
from streamer.models.lineup import Lineup
from streamer.models.version import Version
from streamer.observe.logs import logger


def follow(pipeline: Sequence, opened: Callable[[State], None] = lambda state: None) -> Following:
    """The pipeline is opened in one `Shared`, as a service does it."""
    files, shared = ModelFiles(pipeline), Shared()

    def opener(variant: str, state: State, opening: int) -> list[Executor]:
        opened(state)
        return [pipeline.open(shared=shared, versions=state.versions, opening=opening)]

    state = files.look()
    current = Version(state.label or "1", state, opener("current", state, 0))

    def look() -> dict[str, State]:
        return {"current": files.look()}

    return Following(look, Lineup({"current": current}), opener, 0.05, lambda: None, logger())


@pytest.fixture
def following() -> Any:
    begun: list[Following] = []

    def begin(*arguments: Any) -> Following:
        begun.append(follow(*arguments))
        begun[-1].start()
        return begun[-1]

    yield begin
    for each in begun:
        each.end()
        for executor in each.current.executors:
            executor.close()


def test_a_file_that_is_still_being_written_does_not_count(tmp_path: Path) -> None:
    adding(tmp_path / "1" / "model.onnx", 10)
    content = adding(tmp_path / "whole.onnx", 20, weights=100).read_bytes()
    opened: list[State] = []
    each = follow(Sequence([Onnx(model_uri=tmp_path)]), opened.append)
    (tmp_path / "2").mkdir()
    with (tmp_path / "2" / "model.onnx").open("wb") as file:
        # Not started, so that each look sees another size.
        for at in range(5):
            file.write(content[at * len(content) // 5 : (at + 1) * len(content) // 5])
            file.flush()
            each._look()
    assert [state.versions[tmp_path] for state in opened] == [1]
    each._look()
    assert [state.versions[tmp_path] for state in opened] == [1, 2]
    assert each.offered is not None
    assert each.outcomes == {"opened": 1, "failed": 0}
    for executor in (*each.current.executors, *each.offered.executors):
        executor.close()


def test_models_whose_files_have_not_changed_are_not_loaded_again(
    following: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.runners.models import onnxsession

    loaded: list[str] = []
    load = onnxsession._loaded

    def counted(path: Path, step: Any) -> Any:
        loaded.append(path.name)
        return load(path, step)

    monkeypatch.setattr(onnxsession, "_loaded", counted)
    first, second = adding(tmp_path / "a.onnx", 10), adding(tmp_path / "b.onnx", 100, output="z")
    each = following(Sequence([Onnx(model_uri=first, output_names={"y": "x"}), Onnx(model_uri=second)]))
    adding(first, 20)
    until(lambda: each.offered is not None)
    assert loaded == ["a.onnx", "b.onnx", "a.onnx"]
    old, new = each.lineup, each.take()
    each.retire(old)
    assert new.executors[0].run({"x": 1})["z"] == 121


def test_a_look_that_fails_is_followed_by_others(
    following: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adding(tmp_path / "1" / "model.onnx", 10)
    failures = [RuntimeError("a plug-in's fault"), OSError("no file server")]
    look = ModelFiles.look

    def failing(self: ModelFiles, *arguments: Any) -> State:
        if each is not None and failures:
            raise failures.pop()
        return look(self, *arguments)

    each = None
    monkeypatch.setattr(ModelFiles, "look", failing)
    each = following(Sequence([Onnx(model_uri=tmp_path)]))
    adding(tmp_path / "2" / "model.onnx", 20)
    until(lambda: each.offered is not None)
    assert not failures


def test_who_asks_for_a_look_after_the_end_does_not_wait(following: Any, tmp_path: Path) -> None:
    each = following(Sequence([Onnx(model_uri=adding(tmp_path / "model.onnx", 10))]))
    asked = each.reload()
    each.end()
    assert asked.wait(10)
    assert each.reload().wait(10)
