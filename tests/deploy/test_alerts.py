"""Each alert of deploy/prometheus fires when it should, and only then, by Prometheus' own tool; and says what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from exportedmetrics import exported_samples
from programs import program

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
CASES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.test.yaml").read_text())["tests"]
NAMES = [rule["alert"] for rule in RULES]

_METRIC = re.compile(r"\bup\b|(?:streamer|process|python)_[a-z_.+]+")


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [program("promtool"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def expected(case: dict[str, Any]) -> set[str]:
    """The alerts that this case expects to fire."""
    samples = [sample["labels"] for test in case.get("promql_expr_test", ()) for sample in test["exp_samples"]]
    return set(re.findall(r'alertname="(\w+)"', " ".join(samples))) | {
        test["alertname"] for test in case.get("alert_rule_test", ()) if test["exp_alerts"]
    }


@pytest.mark.slow
def test_promtool_accepts_the_alerts_and_their_cases_pass() -> None:
    checked = promtool("check", "rules", FOLDER / "alerts.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(RULES)} rules" in checked.stdout
    tested = promtool("test", "rules", FOLDER / "alerts.test.yaml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.slow
def test_the_cases_fail_where_an_alert_never_fires_and_where_it_always_does(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "alerts.test.yaml", tmp_path)
    alerts = (FOLDER / "alerts.yaml").read_text()
    for limit in ("6000", "6"):
        assert "unacknowledged_seconds > 60" in alerts
        changed = alerts.replace("unacknowledged_seconds > 60", f"unacknowledged_seconds > {limit}")
        (tmp_path / "alerts.yaml").write_text(changed)
        assert promtool("test", "rules", tmp_path / "alerts.test.yaml").returncode == 1


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(name: str) -> None:
    own = [case for case in CASES if re.match(rf"{name}\b", case["name"])]
    assert any(expected(case) == {name} for case in own)
    metrics = _METRIC.findall(next(rule["expr"] for rule in RULES if rule["alert"] == name))
    quiet = [case for case in own if ": quiet" in case["name"]]
    assert quiet
    for case in quiet:
        assert not expected(case)
        series = " ".join(one["series"] for one in case["input_series"])
        # Without the metrics that it looks at it would be quiet whatever it says.
        assert any(re.search(metric, series) for metric in metrics), name


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_asks_for_metrics_and_labels_that_exist(rule: dict[str, Any]) -> None:
    samples = exported_samples()
    expression = rule["expr"]
    for pattern in re.findall(r'__name__=~"([^"]+)"', expression):
        assert any(re.fullmatch(pattern, name) for name in samples), pattern
    for name, labels in re.findall(r"\b((?:streamer|process|python)_[a-z_]+)\b(?:\{([^}]*)\})?", expression):
        assert name in samples
        assert set(re.findall(r"(\w+)=", labels)) <= samples[name], name


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_says_what_to_do_and_names_a_section_of_the_documentation(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert len(rule["annotations"]["description"].split()) > 10
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    section = (ROOT / page).read_text()
    assert rule["alert"] in section, f"{page} does not name {rule['alert']}"
