"""A photograph of the dashboard of the digits example, with two variants and some records that are broken."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import SecretStr

from connectors.kafka.config import KafkaSinkConfig
from connectors.records import Messages
from drawn.browser import Scheme, browser, page
from streamer.agent.agent import Agent
from streamer.definition.service import Service
from streamer.definition.settings import Control
from streamer.demo.images.example import digits, service
from streamer.demo.images.feeder import Feeder
from streamer.demo.images.score import Score
from streamer.devbroker import create_topics

WIDTH: Final = 1280
QUALITY: Final = 80
"""Of the WebP files, of 100."""
SECONDS: Final = 75.0
"""How long it is watched: the chart has five minutes, and the tables one."""
RATE: Final = 700.0
"""Records that are sent a second."""
_TOKEN: Final = "shown-to-nobody"  # noqa: S105


def write(folder: Path, bootstrap: str) -> list[Path]:
    """Run the digits service on this broker, and write `dashboard.webp` and `dashboard-dark.webp`."""
    from PIL import Image

    files = []
    with running(bootstrap) as address, browser() as opened:
        schemes: tuple[tuple[Scheme, str, float], ...] = (("light", "", SECONDS), ("dark", "-dark", SECONDS))
        for scheme, ending, seconds in schemes:
            file = folder / f"dashboard{ending}.webp"
            png = photograph(opened, address, scheme, seconds)
            Image.open(io.BytesIO(png)).convert("RGB").save(file, quality=QUALITY, method=6)
            files.append(file)
    return files


@contextmanager
def running(bootstrap: str) -> Iterator[str]:
    """The service, and images that come all the time. Gives the address of its control port."""
    create_topics(bootstrap, {"digits.images": 3, "digits.predictions": 1, "digits.dead": 1})
    definition: Service = service(bootstrap)
    changed = {
        "variants": {"careful": {"weight": 20}},
        "models": {"follow": 5.0},
        "control": Control(listen="127.0.0.1:0", token=SecretStr(_TOKEN)),
    }
    fields = {name: getattr(definition, name) for name in definition.model_fields_set}
    agent = Agent(Service(**{**fields, **changed}))
    agent.start()
    stop = threading.Event()
    feeding = threading.Thread(target=_feed, args=(bootstrap, stop))
    feeding.start()
    try:
        host, port = agent.endpoint or ("", 0)
        yield f"http://{host}:{port}/"
    finally:
        stop.set()
        feeding.join()
        agent.stop()
        agent.join()


def photograph(opened: Any, address: str, scheme: Scheme, seconds: float) -> bytes:
    """The whole page as a PNG file, after so many seconds."""
    with page(opened, WIDTH, 800, scheme) as shown:
        shown.goto(address)
        shown.get_by_label("Token of the control port").fill(_TOKEN)
        shown.keyboard.press("Enter")
        shown.wait_for_selector("#stream:text('live')")
        shown.wait_for_timeout(seconds * 1000)
        png: bytes = shown.screenshot(full_page=True)
        return png


def _feed(bootstrap: str, stop: threading.Event) -> None:
    images = digits()
    sink = KafkaSinkConfig(name="feeder", bootstrap=bootstrap, topic="digits.images").build()
    sink.open()
    try:
        feeder = Feeder(sink, images, Score(images.labels, 10_000), "drawn", rate=RATE, seconds=10.0)
        number = 0
        while not stop.wait(0.1):
            count = round(RATE / 10 * (1 + 0.5 * np.sin(number / 60)))
            feeder.send(feeder.made(0, count))
            number += 1
            if not number % 100:
                feeder.send(Messages(np.arange(1, dtype=np.int64), [b"no image"]))
        feeder.confirm()
    finally:
        sink.close()
