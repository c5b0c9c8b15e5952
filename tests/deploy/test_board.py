"""The Grafana board asks for metrics and labels that exist, and is what Grafana's own types accept."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from exportedmetrics import exported_samples
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from grafanaboard import BOARD, board, panels, queries

ROOT = Path(__file__).parents[2]
QUERIES = queries()
TITLES = [f"{title} {place}" for place, (title, _) in enumerate(QUERIES)]


def test_the_board_is_what_its_script_writes() -> None:
    assert json.loads(BOARD.read_text()) == runpy.run_path(str(ROOT / "deploy/grafana/board.py"))["board"]()


@pytest.mark.parametrize(("title", "expression"), QUERIES, ids=TITLES)
def test_a_query_asks_for_metrics_and_labels_that_exist(title: str, expression: str) -> None:
    samples = exported_samples()
    asked = {name: f"{labels}," for name, labels in re.findall(r"\b([a-z_]+)\{([^}]*)\}", expression)}
    patterns = [pattern for labels in asked.values() for pattern in re.findall(r'__name__=~"([^"]+)"', labels)]
    patterns += re.findall(r'\{__name__=~"([^"]+)"', expression)
    names = {name: set(re.findall(r"(\w+)\s*[!=]~?", labels)) - {"instance", "job"} for name, labels in asked.items()}
    assert names or patterns, title
    for name, labels in names.items():
        assert name in samples, name
        assert labels <= samples[name], (name, labels)
    for pattern in patterns:
        assert any(re.fullmatch(pattern, name) for name in samples), pattern
    # Every name is followed by a selection of services or of instances, so that none is left out of the test above.
    for name in re.findall(r"\b((?:streamer|process|python)_[a-z_]+)\b", expression):
        assert name in names, name
    known = {"job", "instance"}.union(*(samples[name] for name in names))
    for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
        assert {label.strip() for label in labels.split(",")} <= known, labels


@pytest.mark.parametrize("panel", list(panels()), ids=lambda panel: str(panel["title"]))
def test_a_panel_explains_itself_and_its_legends_name_labels_that_its_series_have(panel: dict[str, Any]) -> None:
    assert len(panel["description"]) > 20
    if panel["type"] != "table":
        assert panel["fieldConfig"]["defaults"]["unit"]
    for target in panel["targets"]:
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            kept = re.findall(r"\bby \(([^)]*)\)", target["expr"])
            assert all(label in labels for labels in kept), (label, target["expr"])


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    document = board()
    numbers = [panel["id"] for panel in (*panels(), *(p for p in document["panels"] if p["type"] == "row"))]
    assert len(numbers) == len(set(numbers))
    covered: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & covered, panel["title"]
        covered |= cells


def test_the_board_has_what_an_operator_looks_for() -> None:
    expressions = " ".join(expression for _, expression in QUERIES)
    for metric in (
        *("streamer_records_total", "streamer_latency_seconds_bucket", "streamer_lag_records"),
        *("streamer_oldest_unacknowledged_seconds", "streamer_batch_records_bucket", "streamer_batch_closed_total"),
        *("streamer_stage_seconds_bucket", "streamer_step_seconds_sum", "streamer_step_errors_total"),
        *("streamer_in_flight_bytes", "streamer_camera_fps", "process_cpu_seconds_total"),
        *("process_resident_memory_bytes", 'outcome=~"dead|failed"'),
    ):
        assert metric in expressions
    variables = {variable["name"]: variable["type"] for variable in board()["templating"]["list"]}
    assert variables == {"datasource": "datasource", "service": "query", "instance": "query"}
    sources = {json.dumps(target["datasource"], sort_keys=True) for panel in panels() for target in panel["targets"]}
    assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}


def test_grafanas_types_read_the_whole_board_and_lose_nothing_of_it() -> None:
    register_default_plugins()
    document = board()
    read = json.loads(json.dumps(Dashboard.from_json(document), cls=JSONEncoder))
    lost = set(_lost(document, read))
    # Fields of Grafana's that its published types leave out.
    assert {path.rpartition(".")[2] for path in lost} <= {"titleFormat", "textFormat", "definition"}, lost


def test_grafanas_types_notice_a_field_that_is_not_theirs() -> None:
    register_default_plugins()
    document = board()
    document["panels"][1]["targets"][0]["expression"] = document["panels"][1]["targets"][0].pop("expr")
    document["panels"][1]["fieldConfig"]["defaults"]["units"] = "s"
    read = json.loads(json.dumps(Dashboard.from_json(document), cls=JSONEncoder))
    assert set(_lost(document, read)) >= {
        "panels[1].targets[0].expression",
        "panels[1].fieldConfig.defaults.units",
    }


def _lost(given: Any, read: Any, path: str = "") -> list[str]:
    """Where what was read differs from what was given."""
    if isinstance(given, dict) and isinstance(read, dict):
        return [
            place
            for key, value in given.items()
            for place in (
                _lost(value, read[key], f"{path}.{key}".lstrip(".")) if key in read else [f"{path}.{key}".lstrip(".")]
            )
        ]
    if isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        return [
            place
            for index, pair in enumerate(zip(given, read, strict=True))
            for place in _lost(*pair, f"{path}[{index}]")
        ]
    return [] if given == read else [path]
