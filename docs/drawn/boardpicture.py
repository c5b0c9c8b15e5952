"""The picture of the Grafana board: the digits service runs on a Kafka for a minute, and Prometheus scrapes it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
from pageblocks import ROOT

from drawn.boarddrawing import drawing
from drawn.prometheusrun import PATIENCE, PrometheusServer, free_port
from streamer.devbroker import create_topics, open_broker

BOARD: Final = ROOT / "deploy" / "grafana" / "streamer.json"
SECONDS: Final = 90
"""How long records are sent."""
SERVICE: Final = ROOT / "examples" / "digits" / "digits.yaml"


def write(folder: Path) -> list[Path]:
    """Run the service, and write `grafana-board.svg`. Returns its path.

    Raises `FileNotFoundError` where there is no Prometheus, and `ValueError` if a panel has no data.
    """
    file = folder / "grafana-board.svg"
    program = shutil.which("prometheus")
    if program is None:
        raise FileNotFoundError("prometheus is not on the PATH: https://prometheus.io/download")
    with ExitStack() as stack:
        broker = stack.enter_context(open_broker("the picture"))
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        create_topics(broker.bootstrap, dict.fromkeys(("digits.images", "digits.predictions", "digits.dead"), 4))
        listen = f"127.0.0.1:{free_port()}"
        environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap, "STREAMER_CONTROL": listen}
        log = stack.enter_context((place / "service.log").open("wb"))
        service = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "streamer", "run", str(SERVICE)], env=environment, stdout=log, stderr=log
        )
        stack.callback(_end, service)
        try:
            _wait_for(listen)
        except OSError as error:
            raise OSError(f"the service has not started: {(place / 'service.log').read_text()}") from error
        prometheus = stack.enter_context(PrometheusServer(program, place, [listen]))
        began = time.time()
        _send(broker.bootstrap)

        def ask(expression: str) -> Any:
            window = {"start": str(began + 12), "end": str(time.time()), "step": "2"}
            return prometheus.get("query_range", query=expression, **window)["result"]

        drawn = drawing(json.loads(BOARD.read_text()), ask, "10s")
    if drawn.without_data:
        raise ValueError(f"no data for {', '.join(drawn.without_data)}")
    file.write_text(drawn.svg)
    return [file]


def _send(bootstrap: str) -> None:
    """Images for `SECONDS`, as many as a daily course has: few, more, a burst, and for a while some that fail."""
    from confluent_kafka import Producer

    from pipelines import Data

    images = np.load(ROOT / "examples" / "digits" / "digits.npz")["images"]
    payloads = [Data({"id": n, "image": image}).to_bytes() for n, image in enumerate(images)]
    bad = Data({"id": -1, "image": np.zeros((2, 2), np.uint8)}).to_bytes()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    sent = 0
    for tick in range(SECONDS * 10):
        second = tick / 10
        rate = 400 + 300 * np.sin(second / 12) + (4000 if 40 <= second < 44 else 0)
        for _ in range(int(rate / 10)):
            failing = 60 <= second < 75 and sent % 30 == 0
            producer.produce("digits.images", bad if failing else payloads[sent % len(payloads)])
            sent += 1
        producer.poll(0)
        time.sleep(0.1)
    if producer.flush(60):
        raise TimeoutError("the broker has not confirmed all images")


def _wait_for(listen: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"http://{listen}/ready", timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)


if __name__ == "__main__":
    print(write(Path(sys.argv[1]))[0])
