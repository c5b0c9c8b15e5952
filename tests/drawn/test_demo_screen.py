"""The picture of `streamer demo` is of the demo as it is today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from drawn import demoscreen
from drawn.terminal import FAINT, plain

from streamer.devbroker import Broker

FILE = Path(__file__).parents[2] / "docs" / "pictures" / "demo.svg"


@pytest.mark.slow
def test_the_picture_of_the_demo_has_every_line_of_a_run(kafka: Broker) -> None:
    shown = demoscreen.lines(4.0, {"KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})
    text = "\n".join(plain(shown))
    assert text.startswith("$ streamer demo\n╭")
    assert re.search(r"lost +0, dead letters 0", text)
    assert text.count("▀") == 6 * 8 * 4
    (sent,) = re.findall(r"\nimages sent +([\d,]+)", text)
    assert re.search(rf"\npredictions +{sent} on", text)
    drawn = demoscreen.drawing(shown)
    assert {"predictions/s", "latency p50", "lost", "accuracy"} <= set(_labels(drawn))
    assert _labels(drawn) == _labels(FILE.read_text())


def _labels(drawing: str) -> list[str]:
    """What the numbers are, which is dimmed."""
    return re.findall(rf'<text [^>]*fill="{FAINT}"[^>]*>([^<]+)<', drawing)
