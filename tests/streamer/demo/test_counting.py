"""The objects demo: what it counts is what there is in its film."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamer.agent.agent import Agent
from streamer.demo.counting import example
from streamer.demo.counting import play as playing
from streamer.demo.counting.play import ObjectsOutcome, play
from streamer.demo.running import free_port
from streamer.demo.stop import Stop


def test_a_person_passes_the_middle_twice_and_a_cup_once() -> None:
    assert example.truth() == {"people": {"in": 1, "out": 1}, "cups": {"in": 0, "out": 1}}


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example.film(tmp_path_factory.mktemp("film"))


def test_the_service_of_the_demo_counts_what_passes_the_middle_of_its_film(film: Path, tmp_path: Path) -> None:
    results = tmp_path / "counts.jsonl"
    service = example.service(film, f"127.0.0.1:{free_port()}", results, live=False)
    summary = Agent(service).run()
    assert summary.error is None
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert len(lines) == 5 * example.seconds()
    assert lines[-1]["counts"] == example.truth()
    # One person, and one cup: each keeps its id.
    ids = {(box["label"], number) for line in lines for box, number in zip(line["boxes"], line["ids"], strict=True)}
    assert {label: len([1 for other, number in ids if other == label and number]) for label, _ in ids} == {
        "person": 1,
        "cup": 1,
    }


def test_a_demo_that_is_stopped_says_that_it_did_not_see_the_whole_film(
    film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "film", lambda place: film)
    stop = Stop()
    pages = []

    def begun(address: str, seconds: float) -> None:
        pages.append(address)

    def tell(counts: example.Counts) -> None:
        if counts:
            stop.set()

    outcome = play(progress=lambda text: None, begun=begun, tell=tell, stop=stop)
    assert isinstance(outcome, ObjectsOutcome)
    assert not outcome.whole
    assert outcome.pictures > 0
    assert len(pages) == 1
