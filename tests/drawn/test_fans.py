"""The pictures of the README's service are of what its commands do today."""

from __future__ import annotations

import html
import re
import uuid
from pathlib import Path

import pytest
from drawn import deadletter, fansrun, fansscreen
from drawn.fansrun import FansRun
from drawn.terminal import plain

from streamer.devbroker import Broker

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def name() -> str:
    return f"fans{uuid.uuid4().int % 10**9}"


@pytest.fixture(scope="module")
def run(kafka: Broker, name: str, tmp_path_factory: pytest.TempPathFactory) -> FansRun:
    return fansrun.run(tmp_path_factory.mktemp("fans"), kafka.bootstrap, name)


def test_a_dead_letter_is_replayed_to_a_service_that_was_mended_and_gets_its_result(run: FansRun, name: str) -> None:
    place = {"topic": f"{name}.readings", "partition": 0}
    assert {key: run.letter["dead_letter"][key] for key in place} == place
    assert run.letter["dead_letter"]["step"] == "0:ONNX"
    assert run.again["value"] == run.letter["value"] == {"machine": "m3", "temp": 22.5}
    assert run.again["headers"] == []
    assert run.again["offset"] == run.letter["dead_letter"]["offset"] + 1 == 3
    assert run.result["value"] == {"risk": [11.25], "machine": "m3"}


def test_the_picture_of_the_dead_letter_has_every_header_of_a_real_one(run: FansRun, name: str) -> None:
    drawn = deadletter.drawing(deadletter.cards(run))
    assert [header for header, _ in run.letter["headers"]] == re.findall(r'class="name"[^>]*>(streamer-\w+)<', drawn)
    assert _words(drawn, name) == _words((PICTURES / "dead-letter.svg").read_text())


def test_the_picture_of_the_terminal_has_all_that_check_send_and_tap_show(run: FansRun, name: str) -> None:
    assert {line.split()[0] for line in plain(run.check)[1:] if not line.startswith(" ")} == {"ok"}
    assert plain(run.send)[-1].startswith(f"3 records sent to {name}.readings")
    assert "  risk     [25.75]" in plain(run.results)
    assert _words(fansscreen.drawing(run), name) == _words((PICTURES / "check-and-tap.svg").read_text())


def _words(drawing: str, name: str = fansrun.NAME) -> str:
    """All text of a drawing without numbers, which differ from run to run, and without the line on the hot path, which
    differs from machine to machine."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawing)
    text = "".join(html.unescape(one) for one in texts).replace(name, fansrun.NAME).replace(" ", "")
    text = re.sub(r"hotpath.*?okbatch", "okbatch", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\d{13}", "TIME", text)
    return re.sub(r"brokersare.*?\(of", "brokersareBROKERS(of", re.sub(r"in[\d.]+s\$", "inSECONDS$", text))
