"""The demo's parts: the score, the screens, the contact sheet."""

from __future__ import annotations

import io
import math
from collections import deque
from pathlib import Path

import numpy as np
import pytest

from streamer.demo.drawing import curve
from streamer.demo.images import example
from streamer.demo.images.example import Digits
from streamer.demo.images.score import Score
from streamer.demo.images.screen import DigitsLiveScreen, DigitsLook, DigitsPlainScreen, blocks
from streamer.demo.images.sheet import COLUMNS, contact_sheet

LABELS = np.array([3, 1, 4], np.uint8)


def answer(score: Score, *pairs: tuple[int, int]) -> None:
    score.answered(np.array([number for number, _ in pairs]), np.array([digit for _, digit in pairs], np.int8))


def test_accuracy_is_counted_by_id_against_the_labels_in_turn() -> None:
    score = Score(LABELS, 10)
    score.sending(0, 5)
    answer(score, (0, 3), (1, 7), (3, 3))
    state = score.state()
    assert (state.sent, state.answered, state.correct) == (5, 3, 2)
    assert state.accuracy == pytest.approx(2 / 3)


def test_an_answer_counts_once_and_only_for_an_image_that_was_sent() -> None:
    score = Score(LABELS, 10)
    score.sending(0, 2)
    answer(score, (0, 3))
    answer(score, (0, 9), (-1, 3), (2, 4), (1000, 1))
    state = score.state()
    assert (state.answered, state.correct) == (1, 1)


def test_the_newest_answers_and_those_of_each_image_are_known() -> None:
    score = Score(LABELS, 10)
    score.sending(0, 5)
    answer(score, (0, 3), (1, 7), (3, 8))
    assert score.latest(2) == [(1, 7, False), (0, 8, False)]
    assert score.by_image().tolist() == [8, 7, -1]


def test_latencies_are_from_sending_to_arrival_and_nothing_is_known_without_answers() -> None:
    score = Score(LABELS, 10)
    assert math.isnan(score.state().p50)
    assert math.isnan(score.final(5.0).p99)
    score.sending(0, 3)
    answer(score, (0, 3), (2, 4))
    state = score.final(0.0)
    assert 0 <= state.p50 <= state.p95 <= state.p99 < 60
    assert math.isnan(score.final(60.0).p50), "everything was sent while it warmed up"


def test_the_example_is_found_and_is_a_service_of_this_broker() -> None:
    service = example.service("broker:1234")
    assert service.sources[0].bootstrap == "broker:1234"  # type: ignore[attr-defined]
    assert example.topics_of(service) == ("digits.images", "digits.predictions", "digits.dead")
    digits = example.digits()
    assert digits.images.shape == (899, 8, 8)
    assert digits.images.dtype == np.uint8
    assert set(digits.labels.tolist()) == set(range(10))


@pytest.fixture
def digits() -> Digits:
    return example.digits()


def test_the_contact_sheet_frames_right_ones_green_and_wrong_ones_red(digits: Digits, tmp_path: Path) -> None:
    from PIL import Image

    right = digits.labels.astype(np.int8)
    wrong = right.copy()
    wrong[::100] = (wrong[::100] + 1) % 10
    colours = {}
    for name, predictions in (("right", right), ("wrong", wrong)):
        file = contact_sheet(digits, predictions, tmp_path / f"{name}.png")
        with Image.open(file) as picture:
            pixels = np.asarray(picture.convert("RGB")).astype(int)
        colours[name] = {
            "red": int(((pixels[..., 0] > 180) & (pixels[..., 1] < 80)).sum()),
            "green": int(((pixels[..., 1] > 110) & (pixels[..., 0] < 80)).sum()),
        }
        assert pixels.shape[1] > 72 * COLUMNS
    assert colours["right"]["red"] == 0
    assert colours["right"]["green"] > 1000
    assert colours["wrong"]["red"] > 1000


def test_a_contact_sheet_of_few_images_or_none_is_one_too(digits: Digits, tmp_path: Path) -> None:
    none = np.full(len(digits.labels), -1, np.int8)
    assert contact_sheet(digits, none, tmp_path / "none.png").stat().st_size > 0
    none[3] = digits.labels[3]
    assert contact_sheet(digits, none, tmp_path / "one.png").stat().st_size > 0


def look(digits: Digits, elapsed: float) -> DigitsLook:
    score = Score(digits.labels, 100)
    score.sending(0, 20)
    answer(score, *((number, int(digits.labels[number])) for number in range(10)))
    return DigitsLook(elapsed, 15.0, score.state(), 12.0, 13.5, score.latest(8))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_live_view_fits_the_terminal_and_shows_what_is_counted(digits: Digits, width: int) -> None:
    from rich.console import Console

    terminal = Console(file=io.StringIO(), force_terminal=True, width=width, height=40, color_system=None)
    with DigitsLiveScreen(terminal, digits.images, "a broker") as screen:
        for elapsed in (1.0, 2.0, 16.0):
            screen.show(look(digits, elapsed))
    lines = terminal.file.getvalue().splitlines()  # type: ignore[attr-defined]
    text = "\n".join(lines)
    assert "100.0%" in text
    assert "13.5 on average" in text
    assert "▀" in text


def test_long_curves_leave_room_for_their_labels(digits: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setattr("streamer.demo.images.screen.SAMPLE", 0.0)
    terminal = Console(file=io.StringIO(), force_terminal=True, width=66, height=40, color_system=None)
    with DigitsLiveScreen(terminal, digits.images, "a broker, gone when it stops") as screen:
        for tenths in range(60):
            screen.show(look(digits, tenths / 10))
    last = terminal.file.getvalue().rpartition("╭")[2]  # type: ignore[attr-defined]
    assert "predictions/s" in last
    assert "latency p95, p99" in last
    assert " a broker, 9 s to go " in last


def test_without_a_terminal_there_is_a_line_every_two_seconds(digits: Digits) -> None:
    from rich.console import Console

    file = io.StringIO()
    with DigitsPlainScreen(Console(file=file, width=200)) as screen:
        for tenths in range(50):
            screen.show(look(digits, tenths / 10))
    lines = file.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["2", "4"]
    assert "20 sent, 10 predicted" in lines[0]


def test_an_image_is_drawn_in_half_blocks_two_pixels_each() -> None:
    image = np.zeros((8, 8), np.uint8)
    image[0, 0] = 16
    text = blocks(image)
    assert text.plain == "\n".join(["▀" * 8] * 4)
    first, second = text.spans[0], text.spans[1]
    assert str(first.style) == "rgb(255,255,255) on rgb(0,0,0)"
    assert str(second.style) == "rgb(0,0,0) on rgb(0,0,0)"


def test_a_curve_is_as_high_as_its_highest_value() -> None:
    assert curve(deque([0.0, 1.0, 2.0])) == "▁▄█"
    assert curve(deque([float("nan"), 1.0])) == " █"
    assert curve(deque([0.0])) == ""
