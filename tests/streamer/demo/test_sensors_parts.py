"""The sensors demo's parts: the machines, the model that tells them apart, the board, the screens."""

from __future__ import annotations

import io
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import pipelines
import streamer
from connectors.message import Message
from pipelines import Batch, Data, Onnx
from streamer.demo.examples import folder
from streamer.demo.machines import example
from streamer.demo.machines.board import Board, Count, FaultFinding, MachineState
from streamer.demo.machines.hall import LINES, Failing, Hall, payload, plan, topic
from streamer.demo.machines.screen import SensorsLiveScreen, SensorsLook, SensorsPlainScreen
from streamer.demo.machines.simulation import FAULTS, Fault, Machine, Window, windows
from streamer.testing.cases import cases_of
from streamer.testing.trial import tried

PLACES = [("north", "press-1"), ("north", "press-2")]
FAILING = Failing("press-2", "bearing", 0.0, 1.0)
WINDOW = Window(np.ones(128), 40.0)


@cache
def scores(fault: Fault | None, severity: float) -> npt.NDArray[np.float32]:
    """Of 40 machines, none of which the model was trained on, 50 windows each."""
    vibration, temperature = [], []
    for seed in range(500_000, 500_040):
        machine = Machine(seed)
        machine.fault, machine.severity = fault, severity
        found = windows(machine, 50)
        vibration.append(found[0])
        temperature.append(found[1])
    vibrations, temperatures = np.concatenate(vibration), np.concatenate(temperature)
    batch = Batch.of(
        [Data({"vibration": v, "temperature": float(t)}) for v, t in zip(vibrations, temperatures, strict=True)]
    )
    with pipelines.Sequence([Onnx(str(folder("sensors") / "autoencoder.onnx"))]).open() as executor:
        result = executor.run_batch(batch)
    assert not result.failed
    values = result.batch["score"]
    return np.asarray(values, np.float32).reshape(-1)


def test_healthy_machines_raise_no_alarm_to_speak_of() -> None:
    assert np.mean(scores(None, 0.0) > 1) <= 0.002


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_has_grown_is_found_in_nearly_every_window(fault: Fault) -> None:
    assert np.mean(scores(fault, 1.0) > 1) >= 0.95


@pytest.mark.parametrize("fault", FAULTS)
def test_the_worse_a_fault_the_higher_the_score(fault: Fault) -> None:
    medians = [float(np.median(scores(fault, severity))) for severity in (0.0, 0.5, 1.0)]
    assert medians == sorted(medians)
    assert medians[0] < 0.6


def test_the_cases_of_the_example_are_right() -> None:
    service = streamer.load(folder("sensors") / "sensors.yaml")
    for case in cases_of(folder("sensors") / "sensors.yaml", []):
        assert tried(service, case).problems == [], case.name


def test_a_score_goes_to_a_topic_of_the_machine() -> None:
    service = streamer.load(folder("sensors") / "sensors.yaml")
    well, broken = Machine(600_000), Machine(600_001)
    broken.fault, broken.severity = "bearing", 1.0
    report = streamer.testing.run(
        service,
        [
            Message(payload(well.window(), 3), topic=topic("north", "press-1")),
            Message(payload(broken.window(), 4), topic=topic("west", "pump-2")),
            Message(b'{"window": 5}', topic=topic("west", "pump-2")),
            Message(b"not a window", topic=topic("west", "pump-2")),
        ],
    )
    assert [one.topic for one in report.sinks["scores"]] == ["factory/north/press-1/score", "factory/west/pump-2/score"]
    well_score, broken_score = report.decoded["scores"]
    assert well_score is not None
    assert broken_score is not None
    assert (broken_score["line"], broken_score["machine"], broken_score["window"]) == ("west", "pump-2", 4)
    assert well_score["score"] < 1 < broken_score["score"]
    assert sorted(letter.step for letter in report.dead) == ["0:ONNX", "decode"]
    assert report.acknowledged == 4


def test_a_fault_is_one_alert_until_the_machine_is_well_again() -> None:
    service = streamer.load(folder("sensors") / "alerts.yaml")
    scores = [
        ("press-1", 0.3),
        *[("pump-2", score) for score in (0.3, 2, 0.4, 2, 1, 1.1, 3, 0.8, 2, 0.5, 0.6, 0.5, 0.5)],
    ]
    report = streamer.testing.run(
        service,
        [
            Message(
                json.dumps({"machine": machine, "line": "west", "window": number, "score": score}).encode(),
                topic=f"factory/west/{machine}/score",
            )
            for number, (machine, score) in enumerate(scores)
        ],
    )
    assert [message.topic for message in report.sinks["alerts"]] == ["alerts/pump-2"] * 2
    made = [
        (alert["machine"], alert["state"], alert["window"]) for alert in report.decoded["alerts"] if alert is not None
    ]
    assert made == [("pump-2", "on", 6), ("pump-2", "off", 12)]
    assert not report.dead


@pytest.mark.parametrize("name", ["sensors", "alerts"])
def test_the_services_need_no_code_and_use_one_broker(name: str) -> None:
    service = streamer.load(folder("sensors") / f"{name}.yaml", no_code=streamer.NoCode.of(env=["MQTT_BROKER"]))
    urls = {connector.url for connector in (*service.sources, *service.sinks, service.dead_letter)}  # type: ignore[union-attr]
    assert len(urls) == 1


def test_the_demos_services_have_client_ids_of_their_run() -> None:
    runs = [example.services("broker:1234", run) for run in ("a", "b")]
    connectors = [
        [connector for service in run for connector in (*service.sources, *service.sinks, service.dead_letter)]
        for run in runs
    ]
    ids = [{connector.client_id for connector in some} for some in connectors]  # type: ignore[union-attr]
    assert len(ids[0]) == 6
    assert not ids[0] & ids[1]
    assert {connector.url for connector in connectors[0]} == {"mqtt://broker:1234"}  # type: ignore[union-attr]


def test_a_window_is_64_ms_at_2_khz_and_rounded_as_sensors_have_it() -> None:
    window = Machine(1).window()
    assert window.vibration.shape == (128,)
    assert np.array_equal(window.vibration, np.round(window.vibration, 3))
    assert 15 < window.temperature < 60


def test_the_same_seed_is_the_same_machine() -> None:
    assert np.array_equal(windows(Machine(7), 3)[0], windows(Machine(7), 3)[0])
    assert not np.array_equal(windows(Machine(7), 3)[0], windows(Machine(8), 3)[0])


def test_faults_of_a_run_begin_one_after_the_other_and_have_grown_before_its_end() -> None:
    faults = plan(20.0)
    assert [one.begins for one in faults] == sorted(one.begins for one in faults)
    assert {one.fault for one in faults} == set(FAULTS)
    assert all(one.begins > 0 and one.begins + one.grows < 20.0 for one in faults)
    assert {one.machine for one in faults} <= {name for names in LINES.values() for name in names}


def test_a_machine_of_the_hall_is_well_until_its_fault_begins() -> None:
    hall = Hall([Failing("press-1", "overheating", 10.0, 2.0)])
    before = np.mean([hall.window(0, 9.9).temperature for _ in range(20)])
    after = np.mean([hall.window(0, 12.0).temperature for _ in range(20)])
    assert after > before + 20


def board() -> Board:
    return Board(PLACES, [FAILING], 8)


def test_a_window_is_lost_until_its_score_has_come_and_counts_once() -> None:
    seen = board()
    for number in range(3):
        seen.sending(number, WINDOW)
    seen.scored("press-1", 0, 0.3)
    seen.scored("press-1", 0, 0.3)
    seen.scored("press-2", 0, 2.0)
    assert (seen.count().sent, seen.count().scored) == (3, 2)
    assert [machine.score for machine in seen.machines()] == [pytest.approx(0.3), pytest.approx(2.0)]


@pytest.mark.parametrize(("machine", "turn"), [("press-9", 0), ("press-1", -1), ("press-1", 1), ("press-1", 10**9)])
def test_scores_of_windows_that_were_not_sent_are_not_counted(machine: str, turn: int) -> None:
    seen = board()
    seen.sending(0, WINDOW)
    seen.scored(machine, turn, 0.3)
    seen.alerted(machine, turn)
    assert (seen.count().scored, seen.count().alerts) == (0, 0)


def test_an_alert_of_a_machine_without_a_fault_is_a_false_one() -> None:
    seen = board()
    seen.sending(0, WINDOW)
    seen.sending(1, WINDOW)
    assert [finding.after for finding in seen.findings()] == [None]
    seen.alerted("press-1", 0)
    seen.alerted("press-2", 0)
    seen.alerted("press-2", 0)
    assert (seen.count().alerts, seen.count().false_alerts) == (2, 1)
    (finding,) = seen.findings()
    assert (finding.machine, finding.fault) == ("press-2", "bearing")
    assert finding.after is not None
    assert [machine.alert for machine in seen.machines()] == [True, True]
    seen.recovered("press-1")
    seen.recovered("press-9")
    assert [machine.alert for machine in seen.machines()] == [False, True]
    assert (seen.count().alerts, seen.count().false_alerts) == (2, 1)


def look(elapsed: float) -> SensorsLook:
    machines = [
        MachineState("north", "press-1", [0.5, 1.0, 2.9], 41.2, 0.31, False, None),
        MachineState("north", "press-2", [], float("nan"), float("nan"), False, None),
        MachineState("west", "pump-2", [9.0], 71.0, 3.4, True, "overheating"),
    ]
    count = Count(2400, 2399, 31, 0, 0.012, 0.04)
    return SensorsLook(elapsed, 20.0, count, machines, [FaultFinding("pump-2", "overheating", 1.0, 0.7)])


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_live_table_shows_every_machine_and_who_is_not_well(width: int) -> None:
    from rich.console import Console

    terminal = Console(file=io.StringIO(), force_terminal=True, width=width, height=40, color_system=None)
    with SensorsLiveScreen(terminal, "a broker") as screen:
        screen.show(look(3.0))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.file.getvalue())  # type: ignore[attr-defined]
    for shown in ("press-1", "0.31", "well", "pump-2", "3.40", "ALERT", "█", "2,399"):
        assert shown in text
    assert max(map(len, text.splitlines())) <= width


def test_without_a_terminal_there_are_lines_and_one_for_each_fault_that_is_found() -> None:
    from rich.console import Console

    file = io.StringIO()
    with SensorsPlainScreen(Console(file=file, width=200)) as screen:
        for tenths in range(50):
            screen.show(look(tenths / 10))
    lines = file.getvalue().splitlines()
    assert [line.split()[:2] for line in lines] == [["2", "s"], ["2", "s"], ["4", "s"]]
    assert "alert: pump-2, 0.7 s after its overheating began" in lines[0]
    assert "2,400 windows sent, 2,399 scored" in lines[1]
    assert "alerts: pump-2" in lines[1]


def test_the_model_is_small_and_its_data_and_licence_are_stated_beside_it() -> None:
    example_folder = folder("sensors")
    assert (example_folder / "autoencoder.onnx").stat().st_size < 100_000
    told = (example_folder / "README.md").read_text()
    assert "licence" in told
    assert "simulated" in told
    lines = [line for line in Path(example_folder / "sensors.yaml").read_text().splitlines() if line.strip()]
    assert 15 <= len(lines) <= 26
