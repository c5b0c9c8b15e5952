"""The demo as a user runs it, shorter, on a real Kafka and on none at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from streamer.devbroker import Broker, MockKafka

pytestmark = pytest.mark.slow


CALL = "from streamer.cli import main; main()"
WITHOUT_PILLOW = f"import sys; sys.modules['PIL'] = None; {CALL}"


def demo(
    folder: Path, bootstrap: str, *arguments: str, program: str = CALL, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, "demo", *arguments],
        cwd=folder,
        env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bootstrap, **environment},
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


def test_without_a_network_it_says_why_there_is_no_real_kafka_and_how_to_get_one(tmp_path: Path) -> None:
    done = demo(
        tmp_path,
        "",
        *("--seconds", "1", "--rate", "100", "--no-sheet"),
        HOME=str(tmp_path),
        DOCKER_HOST="tcp://127.0.0.1:1",
        HTTPS_PROXY="http://127.0.0.1:9",
        https_proxy="http://127.0.0.1:9",
        NO_PROXY="",
        no_proxy="",
    )
    assert done.returncode == 0, done.stderr
    reason = "the proxy 127.0.0.1:9 does not let it through"
    assert reason in " ".join(done.stderr.split())
    summary = " ".join(done.stdout.split())
    assert "This was a mock, not Kafka." in summary
    assert reason in summary
    assert "correct HTTPS_PROXY, or set KAFKA_BOOTSTRAP_SERVERS" in summary
    assert "pip install" not in summary, "all packages are there"


def test_where_no_sheet_can_be_written_the_summary_comes_and_says_so(tmp_path: Path) -> None:
    # A folder in its place: a folder that is not writable stops everyone but root.
    (tmp_path / "digits.png").mkdir()
    # Both at once: for most of its time a demo on the mock waits for its group.
    with MockKafka() as mock, MockKafka() as other, ThreadPoolExecutor() as at_once:
        short = ("--seconds", "1", "--rate", "100")
        unasked = at_once.submit(demo, tmp_path, mock.bootstrap, *short)
        asked = at_once.submit(demo, tmp_path, other.bootstrap, *short, "--sheet", "digits.png")
        done, wanted = unasked.result(), asked.result()
    assert done.returncode == 0, done.stderr
    assert wanted.returncode == 1, "a sheet that was asked for is missing"
    for output in (done.stdout, wanted.stdout):
        assert "100 on digits.predictions" in output
        assert f"none: {tmp_path / 'digits.png'} cannot be written (" in output


def test_without_pillow_it_runs_and_says_that_the_sheet_needs_it(tmp_path: Path) -> None:
    with MockKafka() as mock:
        done = demo(tmp_path, mock.bootstrap, "--seconds", "1", "--rate", "100", program=WITHOUT_PILLOW)
    assert done.returncode == 0, done.stderr
    assert "100 on digits.predictions" in done.stdout
    assert "pillow: pip install 'streamer-inference[demo]'" in done.stdout


def test_ctrl_c_is_answered_at_once_and_ends_the_demo(tmp_path: Path) -> None:
    with MockKafka() as mock:
        process = subprocess.Popen(
            [sys.executable, "-c", CALL, "demo", "--no-sheet"],
            cwd=tmp_path,
            env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": mock.bootstrap},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if "starting the service" in line:
                    process.send_signal(signal.SIGINT)
                    break
            assert process.stderr.readline() == "stopping ... (once more to end at once)\n"
            process.communicate(timeout=100)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0
