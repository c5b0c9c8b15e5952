"""What the benchmark makes of its measurements: tables, a plot, and pages that show the same."""

from __future__ import annotations

import json
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.contestants import CannotRun, compiled_relay, contestants
from benchmarks.drain import Drained
from benchmarks.measurements import Cell, Measurements
from benchmarks.paced import Paced
from benchmarks.plot import svg
from benchmarks.programs.job import Job
from benchmarks.publish import PLOT, RESULTS, headline, plot
from benchmarks.table import as_markdown, grids, overview
from pipelines.hotpath import why_not

ROOT = Path(__file__).parents[1]


@pytest.fixture
def measured() -> Measurements:
    """Two rounds of three programs, and one of each other kind."""
    found = Measurements(left_out={"ours-native": "it was not built"}, caption="a day & a <machine>")
    for factor in (1.0, 1.2):
        for program, cost in (("relay-c", 1.0), ("handwritten", 10.0), ("faust", 300.0)):
            found.add_drained("realistic", program, Drained(cost * factor, 1e6 / cost, 80 << 20))
    found.add_paced("realistic", "handwritten", Paced(12.0, (0.01, 0.02), (0.001, 0.002), 100))
    found.add_together("ours-python", 1, 100_000.0, 6.0)
    found.add_together("ours-python", 2, 150_000.0, 6.0)
    return found


def test_results_survive_their_file(measured: Measurements) -> None:
    back = Measurements.from_dict(json.loads(json.dumps(measured.to_dict())))
    assert list(map(as_markdown, grids(back))) == list(map(as_markdown, grids(measured)))
    assert (back.left_out, back.caption) == (measured.left_out, measured.caption)


def test_costs_are_compared_with_the_loop_written_by_hand_and_with_the_floor(measured: Measurements) -> None:
    drained, paced, together = grids(measured)
    lines = {line[1]: line for line in drained.lines}
    assert lines["relay in C (the floor)"][2:6] == ["1.00", "1.10", "0.10", "1.00"]
    assert lines["hand-written (the baseline)"][2:6] == ["10.00", "11.00", "1.00", "10.00"]
    assert paced.lines[0][2:4] == ["12.0", "1.0"]
    assert [line[3] for line in together.lines] == ["1.00", "1.50"]
    assert overview(measured).lines == [["32 floats, device_id, ts; batch 512", "11.0 us", "0.10"]]


def test_both_guarantees_are_compared_where_both_were_measured(measured: Measurements) -> None:
    assert len(grids(measured)) == 3
    for factor in (1.0, 1.5, 1.2):
        measured.add_drained("realistic", "ours-python", Drained(10.0 * factor, 1e5, 80 << 20))
        measured.add_drained("realistic", "ours-python-once", Drained(11.0 * factor, 1e5, 80 << 20))
    measured.add_paced("realistic", "ours-python", Paced(12.0, (0.01, 0.02), (0.010, 0.020), 100))
    measured.add_paced("realistic", "ours-python-once", Paced(12.0, (0.01, 0.12), (0.060, 0.125), 100))
    (line,) = grids(measured)[-1].lines
    assert line[1:] == ["streamer, python", "12.00", "13.20", "1.10", "20.0", "120.0", "100.0"]


def test_the_plot_is_a_drawing_with_a_bar_for_each_program(measured: Measurements) -> None:
    root = ElementTree.fromstring(svg(measured.drained["realistic"], "costs < all", measured.caption))
    space = "{http://www.w3.org/2000/svg}"
    texts = ["".join(text.itertext()) for text in root.iter(f"{space}text")]
    assert {"costs < all", "a day & a <machine>", "relay in C", "hand-written", "Faust", "1.10 (0.10x)"} <= set(texts)
    widths = [float(bar.attrib["width"]) for bar in root.iter(f"{space}rect")]
    assert widths == sorted(widths)
    costs = sorted(cell.median for cell in measured.drained["realistic"].values())
    # All on one scale: the longest is as long as it costs.
    assert widths == pytest.approx([cost * widths[-1] / costs[-1] for cost in costs], abs=0.1)


def test_no_text_of_the_plot_is_cut_off() -> None:
    found = Measurements.from_dict(json.loads(RESULTS.read_text(encoding="utf-8")))
    root = ElementTree.fromstring(plot(found))
    width = float(root.attrib["viewBox"].split()[2])
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        at, letters = float(text.attrib["x"]), len("".join(text.itertext()))
        if text.attrib.get("text-anchor") == "end":
            assert at - 7 * letters >= 0, text.text
        elif "class" not in text.attrib:
            assert at + 7 * letters <= width, text.text


def test_the_plot_on_the_page_is_that_of_the_results() -> None:
    found = Measurements.from_dict(json.loads(RESULTS.read_text(encoding="utf-8")))
    assert PLOT.read_text(encoding="utf-8") == plot(found)


def test_a_plot_without_a_loop_written_by_hand_is_drawn_too() -> None:
    assert "5.00" in svg({"ours-python": Cell([Drained(5.0, 1.0, 1)])}, "t", "c")


def test_the_pages_show_the_results_of_the_file() -> None:
    found = Measurements.from_dict(json.loads(RESULTS.read_text(encoding="utf-8")))
    assert headline(found) in (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert as_markdown(overview(found)) in page
    assert all(as_markdown(grid) in page for grid in grids(found))
    assert found.caption in page


@pytest.mark.slow
def test_the_relay_in_c_compiles_without_warnings_and_loads_the_clients_library(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc) on the PATH")
    source = ROOT / "benchmarks" / "programs" / "relay.c"
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(source)], check=True)
    job = Job("localhost:1", "in", "out", "dead", "g", "m", 32, 0, 0.005, 0.005, True, False, str(tmp_path))
    ran = subprocess.run(
        compiled_relay(tmp_path).command(job), capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr == "relay: BATCH: must be from 1 to 10000\n", "the library was there, and all that it needs of it"


def test_a_program_that_cannot_run_is_left_out_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotRun, match="no C compiler"):
        compiled_relay(tmp_path)
    found, left_out = contestants(tmp_path, lambda text: None, peers=False)
    assert "no C compiler" in left_out["relay-c"]
    assert ("ours-native" in left_out) == (why_not() is not None)
    assert {"ours-python", "handwritten"} <= {one.name for one in found}
