"""The benchmark of cameras says how programs compare, and its page shows what was measured."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.cameras.figures import SMALL, Figures, grids
from benchmarks.cameras.run import RESULTS, text

ROOT = Path(__file__).parents[1]


def test_costs_are_compared_within_a_round() -> None:
    found = Figures({"720p": {"ours": [1.0, 4.0, 1.0], "handwritten": [2.0, 4.0, 4.0], "decode": [1.0, 1.0, 1.0]}})
    assert found.ratio("720p", "ours", "handwritten") == 0.5
    assert found.ratio("720p", "ours", "cameras-opencv") is None
    costs, aims = grids(found)
    assert [line[1:] for line in costs.lines] == [
        ["PyAV decodes, nothing else (the floor)", "1", "1"],
        ["streamer", "1", "1"],
        ["PyAV loop, by hand (the baseline)", "2", "4"],
    ]
    assert [line[3] for line in aims.lines] == ["0.50", "not measured", "not measured", "not measured"]


def test_the_agents_share_is_that_of_small_pictures() -> None:
    large = {"ours-bare": [1300.0, 2000.0], "decode": [1000.0, 2000.0]}
    small = {"ours-bare": [210.0, 450.0, 200.0], "decode": [100.0, 200.0, 80.0]}
    _, aims = grids(Figures({"720p": large, SMALL: small}))
    assert aims.lines[-1] == ["agent's share of a picture (without model less decode), ms", SMALL, "0.2", "0.12"]
    assert [line[1] for line in aims.lines].count(SMALL) == 1


def test_times_of_a_machine_that_had_no_time_for_all_pictures_say_so() -> None:
    told = {"rest": [2.0, 9.0], "pictures": 95, "expected": 100}
    assert [line[3] for line in grids(Figures(live={"latency": told}))[1].lines] == ["2.0", "9.0"]
    lines = grids(Figures(live={"latency": {**told, "pictures": 20}}))[1].lines
    assert [line[3] for line in lines] == [
        "2.0 (the machine was busy: 20 of 100 pictures)",
        "9.0 (the machine was busy: 20 of 100 pictures)",
    ]


def test_the_page_shows_the_results_of_the_file() -> None:
    found = Figures(**json.loads(RESULTS.read_text(encoding="utf-8")))
    assert text(found) in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
