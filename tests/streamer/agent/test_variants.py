"""Versions of a service's models that run side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from addingmodels import adding
from countwindows import WindowStep, WithWindows

from connectors.message import Message
from pipelines import Data, Onnx, Sequence
from pipelines.errors import DefinitionError, StreamerError

NEXT = {"current": {"weight": 70}, "next": {"version": 2, "weight": 30}}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Version 1 adds 1000, 2 adds 2000, 3 adds 3000."""
    for version in (1, 2, 3):
        adding(tmp_path / str(version) / "model.onnx", 1000 * version)
    return tmp_path


def made_by(serving: Any) -> list[tuple[str, str]]:
    """Version and variant as the headers of each result say."""
    headers = [dict(message.headers) for message in serving.sink.messages]
    return [(each["streamer-version"].decode(), each["streamer-variant"].decode()) for each in headers]


@pytest.mark.parametrize("parallel", [1, 2], ids="parallel {}".format)
def test_each_record_goes_through_one_variant_and_results_keep_their_order(
    define: Any, serve: Any, eventually: Any, models: Path, parallel: int
) -> None:
    batch = {"max_records": 64, "max_wait": 0.01}
    service = define(Onnx(model_uri=models), variants=NEXT, batch=batch, limits={"parallel": parallel})
    serving = serve(service)
    serving.feed(*range(500))
    eventually(lambda: len(serving.results()) == 500)
    results = serving.results()
    assert [result % 1000 for result in results] == list(range(500))
    said = {("3", "current"): 3, ("2", "next"): 2}
    assert [said[by] for by in made_by(serving)] == [result // 1000 for result in results]
    assert 90 < sum(result // 1000 == 2 for result in results) < 210
    (current, other) = serving.agent.variants()
    assert (current["version"], other["version"]) == ("3", "2")
    assert current["ok"] + other["ok"] == 500
    assert serving.stop().ok == 500


def test_weights_that_change_count_from_the_next_batch_on(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    serving = serve(define(Onnx(model_uri=models), variants=NEXT))
    serving.agent.weigh("current", 0)
    serving.feed(*range(50))
    eventually(lambda: len(serving.results()) == 50)
    serving.agent.weigh("current", 5)
    serving.agent.weigh("next", 0)
    serving.feed(*range(50))
    eventually(lambda: len(serving.results()) == 100)
    assert [result // 1000 for result in serving.results()] == [2] * 50 + [3] * 50
    with pytest.raises(StreamerError, match=r'no variant "nxt".*current, next'):
        serving.agent.weigh("nxt", 1)


def test_a_record_that_fails_in_one_variant_harms_none_in_the_other(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    def odd(data: Data) -> Data:
        if data["y"] >= 3000 and data["y"] % 10 == 7:
            raise ValueError("seven")
        return data

    serving = serve(define(Sequence([Onnx(model_uri=models), odd]), variants=NEXT, errors={"stop_ratio": 1}))
    serving.feed(*range(200))
    eventually(lambda: len(serving.results()) + len(serving.buried()) == 200)
    assert all(number % 10 == 7 for number in serving.buried())
    assert sorted([result % 1000 for result in serving.results()] + serving.buried()) == list(range(200))
    current, other = serving.agent.variants()
    assert (current["failed"], other["failed"]) == (len(serving.buried()), 0)


def test_a_new_version_takes_over_as_current_while_a_variant_stays(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    serving = serve(define(Onnx(model_uri=models), variants=NEXT, models={"follow": 0.02}))
    adding(models / "4" / "model.onnx", 4000)
    eventually(lambda: serving.agent.version.label == "4")
    serving.feed(*range(100))
    eventually(lambda: len(serving.results()) == 100)
    assert {result // 1000 for result in serving.results()} == {2, 4}
    assert set(made_by(serving)) == {("4", "current"), ("2", "next")}
    serving.stop()
    assert len(serving.agent._assembly._shared) == 0, "all sessions are closed"


def test_a_variant_may_have_other_fields_and_the_version_of_all(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    other = adding(models / "other.onnx", 9000)
    service = define(Onnx(model_uri=models), variants={"tuned": {"weight": 100, "set": {"ONNX.modelUri": str(other)}}})
    serving = serve(service)
    serving.feed(1)
    eventually(lambda: serving.results() == [9001])
    assert made_by(serving) == [("1", "tuned")]


def test_removing_the_newest_version_brings_a_kept_one_back_without_loading_it(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    serving = serve(define(Onnx(model_uri=models), models={"follow": 0.02, "keep": 1}))
    adding(models / "4" / "model.onnx", 4000)
    eventually(lambda: serving.agent.version.label == "4")
    opened = serving.agent.following.outcomes["opened"]
    (models / "4").rename(models / "away")
    eventually(lambda: serving.agent.version.label == "3")
    serving.feed(1)
    eventually(lambda: serving.results() == [3001])
    assert serving.agent.following.outcomes["opened"] == opened
    serving.stop()
    assert len(serving.agent._assembly._shared) == 0


def test_the_version_of_a_variant_that_is_gone_is_said_to_be_and_goes_on(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    serving = serve(define(Onnx(model_uri=models), variants=NEXT, models={"follow": 0.02}))
    (models / "2").rename(models / "away")
    eventually(lambda: serving.agent.following.failed)
    (gone,) = serving.agent.following.failed.values()
    assert gone.number == "2"
    assert gone.reason == f"there is no version 2; {models} has 1, 3"
    assert [variant["version"] for variant in serving.agent.variants()] == ["3", "2"]


def test_reloading_looks_for_new_files_of_a_service_that_does_not_follow_them(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    serving = serve(define(Onnx(model_uri=models)))
    adding(models / "4" / "model.onnx", 4000)
    serving.agent.reload()
    eventually(lambda: serving.agent.version.label == "4")
    serving.agent.reload()
    serving.feed(1)
    eventually(lambda: serving.results() == [4001])


@pytest.mark.parametrize(
    ("variants", "more", "error"),
    [
        ({"next": {"version": 2, "weight": -1}}, {}, "greater than or equal to 0"),
        ({"next": {"version": 2, "weight": "many"}}, {}, "valid number"),
        ({"current": {"weight": 0}, "next": {"version": 2}}, {}, "all weights are 0"),
        ({"current": {"version": 2}}, {}, "newest version"),
        ({"next": {"weight": 1}}, {"models": {"sticky": "device"}}, "must be key, or values.NAME"),
        (
            {"shadow": {"version": 2}},
            {"models": {"sticky": "key"}},
            r"models\n.*sticky: key decides .* and all get current",
        ),
        ({"2": {"version": 2}}, {}, "begins with a letter"),
        ({"next": {"set": {"ONNX.modelUrl": "a"}}}, {}, "modelUrl"),
        ({"next": {"version": 2, "weight": 1}}, {"batch": {"type": "hard", "max_records": 4}}, "type hard"),
    ],
)
def test_variants_that_cannot_be_are_refused_when_the_service_is_defined(
    define: Any, models: Path, variants: Any, more: Any, error: str
) -> None:
    with pytest.raises((ValueError, DefinitionError), match=error):
        define(Onnx(model_uri=models), variants=variants, **more)


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (7, r"variants\.next: there is no version 7; .* has 1, 2, 3"),
        (4, r"variants\.next: it takes x .* gives y int64 \[N\]$"),
    ],
)
def test_a_variant_that_cannot_run_beside_the_others_is_refused_at_the_start(
    define: Any, serve: Any, models: Path, version: int, error: str
) -> None:
    adding(models / "4" / "model.onnx", 4000, output="z")
    adding(models / "5" / "model.onnx", 5000)
    with pytest.raises(DefinitionError, match=error):
        serve(define(Onnx(model_uri=models), variants={"next": {"version": version, "weight": 10}}))


def test_steps_that_hold_records_cannot_be_divided(define: Any, serve: Any) -> None:
    service = define(variants={"next": {"weight": 10}}).model_copy(
        update={"pipeline": WithWindows([WindowStep(stride=3)])}
    )
    with pytest.raises(DefinitionError, match="variants: a step of the pipeline holds records"):
        serve(service)


def test_a_canary_that_fails_more_often_than_the_current_version_gets_no_records_any_more(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    def odd(data: Data) -> Data:
        if data["y"] // 1000 == 2 and data["y"] % 4 == 0:
            raise ValueError("four")
        return data

    canary = {"weights": [40, 80], "each": 60, "records": 50}
    variants = {"next": {"version": 2, "weight": 10, "canary": canary}}
    serving = serve(define(Sequence([Onnx(model_uri=models), odd]), variants=variants, errors={"stop_ratio": 1}))
    assert [each["weight"] for each in serving.agent.variants()] == [60, 40]
    serving.feed(*range(500))
    eventually(lambda: [each["weight"] for each in serving.agent.variants()] == [100, 0])
    (_, other) = serving.agent.variants()
    assert other["state"] == "REJECTED"
    assert "records failed" in other["reason"]
    before = len(serving.buried())
    eventually(lambda: len(serving.results()) + len(serving.buried()) == 500)
    before = len(serving.buried())
    serving.feed(*range(100))
    eventually(lambda: len(serving.results()) + len(serving.buried()) == 600)
    assert len(serving.buried()) == before
    assert serving.agent.ready() is None


@pytest.mark.parametrize(
    ("variants", "error"),
    [
        ({"current": {"canary": {}}}, r"current\.canary"),
        ({"shadow": {"version": 2, "canary": {}}}, r"shadow\.canary"),
        ({"a": {"version": 1, "canary": {}}, "b": {"version": 2, "canary": {}}}, r"b\.canary: a has one"),
    ],
)
def test_a_canary_is_one_variant_beside_the_current(define: Any, models: Path, variants: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        define(Onnx(model_uri=models), variants=variants)


def test_a_batch_of_records_that_cannot_be_read_harms_no_variant(
    define: Any, serve: Any, eventually: Any, models: Path
) -> None:
    serving = serve(define(Onnx(model_uri=models), variants=NEXT, errors={"stop_ratio": 1, "first": 0}))
    for number in range(20):
        serving.source.feed(Message(b"\xff\xff"))
        serving.feed(number)
    eventually(lambda: len(serving.results()) == 20)
    eventually(lambda: len(serving.dead.messages) == 20)
    assert [result % 1000 for result in serving.results()] == list(range(20))
