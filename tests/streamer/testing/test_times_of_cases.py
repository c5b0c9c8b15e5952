"""A case says when its records come, and windows and silence go by that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pageblocks import ROOT, blocks_of

from pipelines.errors import DefinitionError
from streamer.definition.loading import load, loads
from streamer.testing.cases import FIRST, Case, cases_of
from streamer.testing.recordclock import RecordClock
from streamer.testing.trial import Tried, tried

BLOCKS = list(blocks_of(ROOT / "docs" / "testing.md"))
OF = "a case of "
START = round(FIRST.timestamp() * 1000)


def outcome(step: str, records: list[dict[str, Any]], at: Any, expect: Any = None, **fields: Any) -> Tried:
    service = loads(
        f"""
source: {{type: memory, topic: in}}
pipeline:
  - {step}
sink: {{type: memory, topic: out}}
state: memory
""",
        Path(),
    )
    return tried(service, Case(name="case", input=records, at=at, expect=expect, exact=True, **fields))


def values(tried: Tried) -> list[dict[str, Any]]:
    assert tried.ok, tried.problems
    return [dict(result or {}) for result in tried.results]


def of(*rows: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"device": device, "x": x} for device, x in rows]


@pytest.mark.parametrize("case", [block for block in BLOCKS if block.value.startswith(OF)], ids=str)
def test_a_case_of_the_page_is_right(case: Any, tmp_path: Path) -> None:
    name = case.value.removeprefix(OF)
    (service,) = [block.text for block in BLOCKS if (block.mark, block.value) == ("file", name)]
    (tmp_path / name).write_text(service)
    (tmp_path / "case.yaml").write_text(case.text)
    (written,) = cases_of(tmp_path / name, [tmp_path / "case.yaml"])
    assert written.at is not None
    assert tried(load(tmp_path / name), written).problems == []


MINUTES = '{"@type": WINDOW, by: device, size: 1m, aggregate: {most: {max: x}}, lateness: 5s}'


def test_a_window_by_time_has_the_records_of_its_minute() -> None:
    made = values(outcome(MINUTES, of(("a", 1), ("a", 9), ("a", 2), ("a", 3)), [0, 59.999, 60, 200]))
    assert [(each["most"], each["start"] - START, each["count"]) for each in made] == [
        (9, 0, 2),
        (2, 60_000, 1),
        (3, 180_000, 1),
    ]


def test_a_record_that_is_late_fails() -> None:
    late = outcome(MINUTES, of(("a", 1), ("a", 2), ("a", 3)), [0, 70, 59], fails=True)
    assert late.ok, late.problems
    assert outcome(MINUTES, of(("a", 1), ("a", 2), ("a", 3)), [0, 62, 59], fails=True).ok is False


def test_a_key_of_which_nothing_comes_is_silent_by_the_time_of_the_case() -> None:
    step = '{"@type": WINDOW, by: device, size: 4, values: x, outputName: y, short: emit, idle: 30s}'
    made = values(outcome(step, of(("a", 1), ("b", 5), ("a", 2), ("b", 6)), [0, 20, 29, 100]))
    assert [(each["device"], each["y"].ravel().tolist()) for each in made] == [("b", [5]), ("a", [1, 2]), ("b", [6])]
    made = values(outcome(step, of(("a", 1), ("a", 2)), [0, 29]))
    assert [each["y"].ravel().tolist() for each in made] == [[1, 2]]


def test_a_silence_of_a_year_ends_and_is_tried_at_once() -> None:
    step = '{"@type": WINDOW, by: device, gap: 2d, aggregate: {most: {max: x}}, idle: 1d}'
    made = values(outcome(step, of(("a", 1), ("a", 2)), [0, 365 * 86400]))
    assert [each["most"] for each in made] == [1, 2]


def test_repetitions_go_by_the_time_of_the_case() -> None:
    step = '{"@type": DEDUP, by: device, for: 10s}'
    made = values(outcome(step, of(("a", 1), ("a", 2), ("b", 3), ("a", 4)), [0, 9, 9, 10]))
    assert [each["x"] for each in made] == [1, 3, 4]


def test_an_arrival_and_the_future_are_those_of_the_case() -> None:
    step = '{"@type": DEDUP, by: device, for: 10s, time: arrival}'
    assert [each["x"] for each in values(outcome(step, of(("a", 1), ("a", 2), ("a", 3)), [0, 9, 10]))] == [1, 3]
    ahead = '{"@type": WINDOW, by: device, size: 1m, aggregate: {n: {count: x}}, time: {field: x, unit: s}}'
    first = START // 1000
    assert outcome(ahead, of(("a", first), ("a", first + 3600)), [0, 0]).ok
    assert outcome(ahead, of(("a", first), ("a", first + 3700)), [0, 0], fails=True).ok


@pytest.mark.parametrize(
    ("at", "times"),
    [
        (5, [START + 5000] * 2),
        ("2025-03-01T12:00:00Z", [1_740_830_400_000] * 2),
        (["2025-03-01T12:00:00+01:00", "2025-03-01"], [1_740_826_800_000, 1_740_787_200_000]),
        ([0.5, 0], [START + 500, START]),
    ],
)
def test_a_time_is_an_iso_time_or_seconds_and_holds_for_all_records(at: Any, times: list[int]) -> None:
    assert Case(input=of(("a", 1), ("a", 2)), at=at).times() == times


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("[0, 1, 2]", '"at" has 3 times, and there are 2 records'),
        ("[]", "at"),
        ("soon", "'soon' is neither a time like 2025-03-01T12:00:00Z nor a number of seconds"),
        ("[0, true]", "true is neither a time"),
        (".nan", "nan is neither a time"),
        ("1e300", "neither a time"),
        ("1960-01-01", "before 1970"),
    ],
)
def test_a_time_that_is_none_is_an_error_with_its_line(tmp_path: Path, at: str, said: str) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(f"input: [{{x: 1}}, {{x: 2}}]\nat: {at}\n")
    with pytest.raises(DefinitionError, match=r"case\.yaml") as error:
        cases_of(tmp_path / "service.yaml", [file])
    assert said in str(error.value)


def test_a_time_in_yaml_needs_no_quotation_marks(tmp_path: Path) -> None:
    file = tmp_path / "case.yaml"
    file.write_text("input: {x: 1}\nat: 2025-03-01T12:00:00Z\n")
    (case,) = cases_of(tmp_path / "service.yaml", [file])
    assert case.times() == [1_740_830_400_000]


def test_no_record_is_behind_the_clock_of_the_records() -> None:
    clock = RecordClock(1_700_000_000.0)
    assert clock.caught_up(5.0) == clock.monotonic()
