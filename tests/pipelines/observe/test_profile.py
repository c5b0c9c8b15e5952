"""Profiles that a trace viewer opens."""

from __future__ import annotations

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipelines import Data, GraphBuilder, Sequence
from pipelines.errors import StreamerError
from pipelines.observe.profiler import Profiler


def same(data: Data) -> Data:
    return data


def refusing(data: Data) -> Data:
    raise ValueError("no")


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    return [event for event in events(path) if event["ph"] == "X"]


def nests(spans: list[dict[str, Any]]) -> bool:
    """Whether any two spans of a thread lie one inside the other, or apart."""
    edges = sorted((one["tid"], one["ts"], -one["dur"]) for one in spans)
    open_: list[tuple[int, float]] = []
    for thread, began, minus in edges:
        while open_ and (open_[-1][0] != thread or open_[-1][1] <= began):
            open_.pop()
        if open_ and began - minus > open_[-1][1] + 0.01:
            return False
        open_.append((thread, began - minus))
    return True


def test_a_profile_has_each_step_and_batch_and_steps_inside_others_lie_within_them(tmp_path: Path) -> None:
    pipeline = Sequence([same, Sequence([same, Sequence([same])]), same])
    with pipeline.open(profile=tmp_path / "run.json") as executor:
        executor.run_many([Data({"n": 1}), Data({"n": 2})])
        executor.run(Data({"n": 3}))
    spans = steps(tmp_path / "run.json")
    names = ["0:FUNCTION", "1:PIPELINE/0:FUNCTION", "1:PIPELINE/1:PIPELINE/0:FUNCTION", "1:PIPELINE/1:PIPELINE"]
    assert [span["name"] for span in spans] == [*names, "1:PIPELINE", "2:FUNCTION"] * 2
    assert [span["args"]["rows"] for span in spans] == [2] * 6 + [1] * 6
    assert {span["args"]["runner"] for span in spans} == {"FunctionRunner", "PipelineRunner"}
    assert nests(spans)
    by_name = {span["name"]: span for span in spans[:6]}
    for name, outer in (("1:PIPELINE/0:FUNCTION", "1:PIPELINE"), (names[2], names[3]), (names[3], "1:PIPELINE")):
        assert by_name[outer]["ts"] <= by_name[name]["ts"]
        assert by_name[name]["ts"] + by_name[name]["dur"] <= by_name[outer]["ts"] + by_name[outer]["dur"] + 0.01


def test_branches_that_run_at_the_same_time_are_in_threads_of_their_own(tmp_path: Path) -> None:
    meeting = threading.Barrier(2, timeout=60)

    def left(data: Data) -> Data:
        meeting.wait()
        return Data({"left": 1})

    def right(data: Data) -> Data:
        meeting.wait()
        return Data({"right": 1})

    builder = GraphBuilder()
    graph = builder.build(builder.merge(builder.input.then("left", left), builder.input.then("right", right)))
    with ThreadPoolExecutor(2, "branch") as pool, graph.open(pool=pool, profile=tmp_path / "run.json") as executor:
        executor.run(Data({"n": 1}))
    spans = {span["name"]: span for span in steps(tmp_path / "run.json")}
    assert spans["left"]["tid"] != spans["right"]["tid"]
    assert spans["left"]["ts"] < spans["right"]["ts"] + spans["right"]["dur"]
    assert spans["right"]["ts"] < spans["left"]["ts"] + spans["left"]["dur"]
    named = {one["tid"]: one["args"]["name"] for one in events(tmp_path / "run.json") if one["name"] == "thread_name"}
    assert named.keys() == {span["tid"] for span in spans.values()}
    assert named[spans["left"]["tid"]].startswith("branch")


def test_a_step_that_fails_is_in_the_profile_with_its_errors(tmp_path: Path) -> None:
    with Sequence([Sequence([refusing])]).open(profile=str(tmp_path / "run.json")) as executor:
        executor.run_many([Data({"n": 1})])
    inner, outer = steps(tmp_path / "run.json")
    assert inner["args"]["errors"] == {"ValueError": 1}
    assert "errors" not in outer["args"]


def test_a_profile_goes_on_in_further_files_and_each_can_be_read_alone(tmp_path: Path) -> None:
    with Profiler(tmp_path / "my_run.json", split=2000, files=3) as profiler:
        for number in range(200):
            profiler.event(f"event {number}", "test", number, 0.5)
        assert profiler.path.name == f"my_run_{max(numbers(tmp_path))}.json"
    kept = sorted(numbers(tmp_path))
    assert len(kept) == 3
    assert kept[-1] > 5
    names: list[str] = []
    for number in kept:
        path = tmp_path / f"my_run_{number}.json"
        assert path.stat().st_size < 2500
        assert [one["name"] for one in events(path)[:2]] == ["process_name", "thread_name"]
        names += [one["name"] for one in steps(path)]
    last = [f"event {number}" for number in range(200 - len(names), 200)]
    assert names == last


def numbers(folder: Path) -> list[int]:
    return [int(path.stem.rpartition("_")[2]) for path in folder.glob("my_run_*.json")]


def test_a_profile_without_its_end_lacks_nothing_but_the_bracket(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path / "run.json")
    for number in range(2000):
        profiler.event(f"event {number}", "test", number, 0.5)
    text = (tmp_path / "run.json").read_text()
    assert len(text) > 64 << 10
    found = json.loads(text + "]")
    assert found[-1]["name"].startswith("event")
    profiler.close()
    assert len(steps(tmp_path / "run.json")) == 2000


def test_a_profile_that_cannot_be_written_says_so_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(StreamerError, match=r"no_folder.*cannot be written: No such file"):
        Sequence([same]).open(profile=tmp_path / "no_folder" / "run.json")


def test_a_file_has_one_writer_and_what_was_there_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("something older, and longer than what comes now" * 100)
    with Profiler(path) as profiler:
        profiler.event("mine", "test", 1.0, 1.0)
        with pytest.raises(StreamerError, match=r"is being written by another service or process"):
            Profiler(path)
    assert [one["name"] for one in steps(path)] == ["mine"]
    Profiler(path).close()
    assert steps(path) == []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, the disk that is full")
def test_a_disk_that_is_full_ends_the_profile_and_not_the_work(caplog: pytest.LogCaptureFixture) -> None:
    profiler = Profiler("/dev/full", split=0)
    with caplog.at_level(logging.WARNING), Sequence([same]).open(profile=profiler) as executor:
        for _ in range(1000):
            assert executor.run(Data({"n": 1})) == Data({"n": 1})
    profiler.close()
    assert [one.message for one in caplog.records].count(
        "the profile /dev/full ends here, it cannot be written: No space left on device"
    ) == 1


def test_one_profiler_serves_several_executors_and_stays_open(tmp_path: Path) -> None:
    with Profiler(tmp_path / "run.json", process="two of them") as profiler:
        for name in ("a", "b"):
            with Sequence([same], name=name).open(profile=profiler) as executor:
                executor.run(Data({"n": 1}))
        profiler.event("after", "test", 1.0, 1.0)
    assert [one["name"] for one in steps(tmp_path / "run.json")] == ["0:FUNCTION", "0:FUNCTION", "after"]
    assert events(tmp_path / "run.json")[0]["args"]["name"] == "two of them"
