"""The page on capacity: its calculator computes what its formula says, and its script measures a running service."""

from __future__ import annotations

import math
import random
import re
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pageblocks import ROOT, blocks_of

import streamer
from connectors.memory import Message, memory_topic

PAGE = ROOT / "docs" / "capacity.md"


def _file(name: str) -> dict[str, Any]:
    """The names that a Python file of the page defines."""
    (code,) = [block.text for block in blocks_of(PAGE) if block.mark == "file" and block.value == name]
    defined: dict[str, Any] = {"__name__": name}
    exec(code, defined)
    return defined


@pytest.fixture(scope="module")
def calculator(chromium_browser: Any) -> Iterator[Any]:
    """The form of the page in a browser, with its script."""
    (form,) = re.findall(r"^<form .*?^</form>$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    page = chromium_browser.new_page()
    page.set_default_timeout(60_000)
    page.set_content(form)
    page.add_script_tag(path=ROOT / "docs" / "capacity.js")
    yield page
    page.close()


def _shown(calculator: Any, **fields: object) -> dict[str, str]:
    """What the form shows for these fields."""
    for name, value in fields.items():
        calculator.fill(f"input[name={name}]", str(value))
    outputs: dict[str, str] = calculator.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('output')].map(output => [output.name, output.value]))"
    )
    return outputs


@pytest.mark.slow
def test_the_calculator_computes_what_the_formula_on_the_page_says(calculator: Any) -> None:
    plan = _file("capacity.py")["plan"]
    random.seed(7)
    given = [
        [
            10 ** random.uniform(0, 6),
            random.choice([0.0, 10 ** random.uniform(-5, -1)]),
            10 ** random.uniform(-6, -1),
            random.choice([1, 8, 64, 512]),
            random.choice([0.0, 0.005, 0.1]),
            random.choice([1, 4, 12, 100]),
            random.uniform(0.3, 1.0),
            random.choice([0.0, 300.0]),
        ]
        for _ in range(300)
    ]
    computed = calculator.evaluate(
        "all => all.map(given => Object.fromEntries(Object.entries(capacityPlan(...given))"
        ".map(([name, value]) => [name, value === Infinity ? 'inf' : value])))",
        given,
    )
    processes = set()
    for values, found in zip(given, computed, strict=True):
        expected = plan(*values)
        processes.add(expected.processes)
        assert found["processes"] == expected.processes, values
        for name in expected._fields[1:] if expected.processes else ("each",):
            assert float(found[name]) == pytest.approx(getattr(expected, name)), (name, values)
    assert None in processes
    assert len(processes) > 10


@pytest.mark.slow
def test_the_form_shows_processes_and_says_when_partitions_are_too_few(calculator: Any) -> None:
    faces = {"rate": 100, "a": 0, "b": 30, "max_records": 8, "max_wait": 5, "busy": 70, "outage": 5}
    assert _shown(calculator, **faces, partitions=20) == {
        "processes": "5",
        "each": "33",
        "batch": "1",
        "load": "60",
        "latency": "65",
        "without_one": "75",
        "catch_up": "7.5",
    }
    too_few = _shown(calculator, **faces, partitions=4)
    assert too_few["processes"] == "more partitions are needed: 5 at least"
    assert too_few["load"] == "–"
    assert "missing" in _shown(calculator, rate="")["processes"]


def test_the_script_measures_rate_and_batches_of_a_running_service() -> None:
    measure = _file("measure.py")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    service = streamer.Service(
        source={"type": "memory", "topic": "capacity.in", "codec": "json"},
        pipeline=[],
        sink={"type": "memory", "topic": "capacity.out", "codec": "json"},
        control={"listen": f"127.0.0.1:{port}"},
    )
    url = f"http://127.0.0.1:{port}/metrics"

    def come(seconds: float) -> None:
        """Records that come while the script waits, in place of its sleep."""
        for number in range(600):
            memory_topic("capacity.in").append(Message(b'{"n": %d}' % number))
        deadline = time.monotonic() + 60
        while measure["totals"](url).get("streamer_batch_records_sum", 0.0) < 600:
            assert time.monotonic() < deadline, "the service has not run the records"
            time.sleep(0.01)

    measure["time"] = SimpleNamespace(sleep=come, monotonic=time.monotonic)
    with service:
        done = measure["measured"](url, 1.0)
    assert 1 < done.batch <= 600
    assert done.rate > 0
    assert done.cpu >= 0


def test_the_line_goes_through_both_measurements() -> None:
    measure = _file("measure.py")
    small = measure["Measured"](1000, 50, (0.004 + 50 * 0.000003) / 50)
    large = measure["Measured"](10_000, 500, (0.004 + 500 * 0.000003) / 500)
    a, b = measure["line"](small, large)
    assert math.isclose(a, 0.004)
    assert math.isclose(b, 0.000003)
