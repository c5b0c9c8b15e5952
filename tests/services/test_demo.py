"""The demo as a user runs it, shorter, on a real Kafka and on none at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamer.devbroker import Broker, MockKafka

pytestmark = pytest.mark.slow


def demo(folder: Path, bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from streamer.cli import main; main()", "demo", *arguments],
        cwd=folder,
        env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bootstrap},
        capture_output=True,
        text=True,
        timeout=250,
    )


def test_the_demo_classifies_every_image_it_sends_and_draws_the_sheet(kafka: Broker, tmp_path: Path) -> None:
    from PIL import Image

    done = demo(tmp_path, kafka.bootstrap, "--seconds", "3", "--rate", "400", "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["sent"] == outcome["answered"] == 1200
    assert outcome["dead"] == 0
    assert 0.93 < outcome["accuracy"] <= 1.0
    assert outcome["p50"] > 0
    assert outcome["topics"] == ["digits.images", "digits.predictions", "digits.dead"]
    assert "predicted, " in done.stderr
    assert outcome["hot_path"] in ("native", "python")
    with Image.open(tmp_path / "digits.png") as picture:
        assert np.asarray(picture).std() > 10


def test_the_demo_ends_with_a_summary_and_what_to_try_next(tmp_path: Path) -> None:
    # On librdkafka's mock cluster, as where no Kafka can be had.
    with MockKafka() as mock:
        done = demo(tmp_path, mock.bootstrap, "--seconds", "1", "--rate", "200", "--no-sheet")
    assert done.returncode == 0, done.stderr
    for text in (
        "200 on digits.images",
        "200 on digits.predictions",
        "accuracy",
        "hot path",
        "Try next",
        "streamer check",
        "digits.yaml",
    ):
        assert text in done.stdout
    assert not (tmp_path / "digits.png").exists()
