"""New files of models take over while the service runs."""

from __future__ import annotations

import json
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from addingmodels import adding

from connectors.memory import MemorySource
from connectors.message import Message
from pipelines import Data, Onnx

EVERY = 0.02
VERSION = "streamer-version"


def follow(define: Any, models: Path, **settings: Any) -> Any:
    return define(Onnx(model_uri=models), models={"follow": EVERY}, **settings)


def version_of(serving: Any) -> str:
    label: str = serving.agent.version.label
    return label


def headers(serving: Any) -> list[str]:
    return [dict(message.headers)[VERSION].decode() for message in serving.sink.messages]


@pytest.mark.parametrize("parallel", [1, 3], ids="parallel {}".format)
def test_a_new_version_folder_takes_over_and_no_record_is_lost_or_doubled(
    define: Any, serve: Any, eventually: Any, tmp_path: Path, parallel: int
) -> None:
    adding(tmp_path / "1" / "model.onnx", 1_000_000)
    source = MemorySource(name="memory")
    batch = {"max_records": 16, "max_wait": 0.001}
    service = follow(define, tmp_path, batch=batch, limits={"parallel": parallel})
    serving = serve(service, {"memory": source})
    fed = 0
    for version in range(2, 6):
        adding(tmp_path / str(version) / "model.onnx", version * 1_000_000)
        while version_of(serving) != str(version):
            source.feed(*[Message(Data({"x": fed + number}).to_bytes()) for number in range(50)])
            fed += 50
            eventually(lambda least=fed - 200: len(serving.results()) >= least)
    serving.feed(fed)
    eventually(lambda: len(serving.results()) == fed + 1)
    results = serving.results()
    assert [result % 1_000_000 for result in results] == list(range(fed + 1))
    made_by = [result // 1_000_000 for result in results]
    assert made_by == sorted(made_by)
    assert made_by[-1] == 5
    assert headers(serving) == list(map(str, made_by))
    # Batches are of 16 at most: none has rows of two versions, or its rows would not stand in one place.
    assert serving.stop().ok == fed + 1
    assert source.acknowledged == [fed + 1]


def test_a_file_that_is_replaced_is_a_new_version(define: Any, serve: Any, eventually: Any, tmp_path: Path) -> None:
    file = adding(tmp_path / "model.onnx", 10)
    serving = serve(follow(define, file))
    serving.feed(1)
    eventually(lambda: serving.results() == [11])
    adding(file, 20)
    eventually(lambda: version_of(serving) == "2")
    serving.feed(2)
    eventually(lambda: serving.results() == [11, 22])
    assert headers(serving) == ["1", "2"]


def test_a_link_that_is_swapped_is_a_new_version(define: Any, serve: Any, eventually: Any, tmp_path: Path) -> None:
    adding(tmp_path / "a" / "model.onnx", 10)
    adding(tmp_path / "b" / "model.onnx", 20)
    (tmp_path / "data").symlink_to("a")
    serving = serve(follow(define, tmp_path / "data" / "model.onnx"))
    (tmp_path / "new").symlink_to("b")
    (tmp_path / "new").rename(tmp_path / "data")
    eventually(lambda: version_of(serving) == "2")
    serving.feed(1)
    eventually(lambda: serving.results() == [21])


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda folder: (folder / "model.onnx").write_bytes(b"half of a mo"), "it is not an ONNX model"),
        (lambda folder: adding(folder / "model.onnx", 20, output="z"), "gives z int64 [N], but version 1"),
    ],
    ids=["cut short", "another output"],
)
def test_a_version_that_cannot_be_used_leaves_the_current_one_at_work_until_its_files_change(
    define: Any, serve: Any, eventually: Any, tmp_path: Path, broken: Any, reason: str
) -> None:
    adding(tmp_path / "1" / "model.onnx", 10)
    serving = serve(follow(define, tmp_path, control={"listen": "127.0.0.1:0"}))
    (tmp_path / "2").mkdir()
    broken(tmp_path / "2")
    outcomes = serving.agent.following.outcomes
    eventually(lambda: outcomes["failed"] == 1)
    serving.feed(1)
    eventually(lambda: serving.results() == [11])
    host, port = serving.agent.endpoint
    with urllib.request.urlopen(f"http://{host}:{port}/models") as answer:
        shown = json.load(answer)["test"]
    assert (shown["current"], [each["state"] for each in shown["versions"]]) == ("1", ["READY", "UNAVAILABLE"])
    assert reason in shown["versions"][1]["reason"]
    adding(tmp_path / "2" / "model.onnx", 20)
    eventually(lambda: version_of(serving) == "2")
    serving.feed(1)
    eventually(lambda: serving.results() == [11, 21])
    assert outcomes["failed"] == 1, "it is tried once"
    (tmp_path / "3").mkdir()
    broken(tmp_path / "3")
    eventually(lambda: outcomes["failed"] == 2)
    assert [version.state for version in serving.agent.following.versions] == ["READY", "UNAVAILABLE"]
    shutil.rmtree(tmp_path / "3")
    eventually(lambda: [version.state for version in serving.agent.following.versions] == ["READY"])
    with urllib.request.urlopen(f"http://{host}:{port}/metrics") as answer:
        text = answer.read().decode()
    assert 'streamer_model_version_info{service="test",version="2"} 1.0' in text
    assert 'streamer_model_loads_total{outcome="failed",service="test"} 2.0' in text


def test_the_way_back_is_to_remove_the_folder_of_the_new_version(
    define: Any, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    adding(tmp_path / "1" / "model.onnx", 10)
    adding(tmp_path / "2" / "model.onnx", 20)
    serving = serve(follow(define, tmp_path))
    assert version_of(serving) == "2"
    shutil.rmtree(tmp_path / "2")
    eventually(lambda: version_of(serving) == "1")
    serving.feed(1)
    eventually(lambda: serving.results() == [11])


def test_files_that_go_altogether_leave_the_current_version_at_work(
    define: Any, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    adding(tmp_path / "1" / "model.onnx", 10)
    serving = serve(follow(define, tmp_path))
    shutil.rmtree(tmp_path / "1")
    eventually(lambda: serving.agent.following.outcomes["failed"] == 1)
    serving.feed(1)
    eventually(lambda: serving.results() == [11])


def test_without_follow_the_highest_version_stays_and_results_do_not_name_it(
    define: Any, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    adding(tmp_path / "2" / "model.onnx", 20)
    adding(tmp_path / "10" / "model.onnx", 30)
    (tmp_path / "latest").mkdir()
    serving = serve(define(Onnx(model_uri=tmp_path)))
    serving.feed(1)
    eventually(lambda: serving.results() == [31])
    assert version_of(serving) == "10"
    assert not serving.agent.following.is_alive
    assert VERSION not in dict(serving.sink.messages[0].headers)


def test_what_the_steps_of_earlier_versions_counted_is_not_lost(
    define: Any, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    adding(tmp_path / "1" / "model.onnx", 10)
    serving = serve(follow(define, tmp_path))
    serving.feed(*range(5))
    eventually(lambda: len(serving.results()) == 5)

    def counted() -> dict[str, float]:
        return {
            f"{reading.name}{labels}": value
            for reading in serving.agent.meters.readings()
            for labels, value in reading.samples
            if reading.kind == "counter" and "step" in reading.labels
        }

    before = counted()
    adding(tmp_path / "2" / "model.onnx", 20)
    eventually(lambda: version_of(serving) == "2")
    after = counted()
    assert all(after[name] >= value for name, value in before.items())


def test_a_service_that_ends_closes_a_version_that_nobody_took_over(
    define: Any, serve: Any, eventually: Any, tmp_path: Path
) -> None:
    adding(tmp_path / "1" / "model.onnx", 10)
    serving = serve(follow(define, tmp_path))
    following = serving.agent.following
    adding(tmp_path / "2" / "model.onnx", 20)
    serving.stop()
    assert following.offered is None
    assert not following._thread.is_alive()
    assert len(serving.agent._assembly._shared) == 0, "all sessions are closed"
