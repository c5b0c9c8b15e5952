"""The demo from broker to summary."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from connectors.codecs.registry import codec_of
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.errors import StreamerError
from pipelines.plugins.requirements import Package, all_of
from streamer.agent.agent import Agent
from streamer.demo.images import example
from streamer.demo.images.feeder import Feeder
from streamer.demo.images.score import Score, ScoreState
from streamer.demo.images.screen import DigitsLook
from streamer.demo.images.sheet import contact_sheet
from streamer.demo.images.viewer import PredictionViewer
from streamer.demo.running import batches, check, mean, started, wait_for_the_first
from streamer.demo.screen import Screen
from streamer.demo.stop import Stop
from streamer.devbroker import Broker, Substitute, create_topics, open_broker

PARTITIONS = 4
"""Partitions of topics that the demo creates."""
REFRESH = 0.25
"""Seconds between two updates of the screen."""
OPENING = 45.0
"""Timeout in seconds of the first prediction."""
LAST = 10.0
"""Seconds that the last predictions may take after the last image."""
WARM_UP = 5.0
"""Seconds at the beginning of a long enough run that do not count for rate and latencies."""
SHOWN = 8
"""The most predictions on the screen, the newest ones."""

Progress = Callable[[str], None]

NEEDS = all_of(Package("confluent_kafka", "demo"), Package("onnxruntime", "demo"))
"""The packages that the demo needs."""


@dataclass(frozen=True, slots=True)
class DigitsOutcome:
    """The result of the demo. Times are in seconds."""

    broker: str
    real: bool
    """Whether the broker was a real Kafka, not a mock."""
    topics: tuple[str, str, str]
    """The topics of images, predictions and dead letters."""
    score: ScoreState
    warm_up: float
    """Seconds at the beginning that rate and latencies leave out: broker and caches are cold."""
    batch_mean: float
    batch_median: float
    dead: int
    sheet: Path | None
    no_sheet: str = ""
    """Why the contact sheet could not be drawn; empty if it was, or was not wanted."""
    substitute: Substitute | None = None
    """Why the broker is a mock."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        state = {**asdict(self.score), "accuracy": self.score.accuracy}
        # JSON has no NaN.
        state = {key: value if math.isfinite(value) else None for key, value in state.items()}
        fields = {key: value for key, value in asdict(self).items() if key != "score"}
        return {**fields, **state, "sheet": None if self.sheet is None else str(self.sheet)}


def play(
    *,
    seconds: float,
    rate: float,
    sheet: Path | None,
    insist: bool,
    progress: Progress,
    screen: Callable[[Broker], Screen[DigitsLook]],
    stop: Stop,
) -> DigitsOutcome | None:
    """Run the demo: about `seconds` of `rate` images a second, less if `stop` is set; `None` if there is no result.

    `progress` is called before each preparation, `screen` makes the view once the broker is there, `sheet` is the file
    of the contact sheet (`None`: no sheet). Unless the user insists on a sheet, the demo runs without Pillow, too.
    Raises `StreamerError` if a part is missing or fails, except for the sheet: the outcome says why there is none.
    """
    # Checked before anything is started, though the sheet is drawn last.
    (all_of(NEEDS, Package("PIL", "demo")) if insist else NEEDS).check("streamer demo")
    run = uuid.uuid4().hex[:8]
    data = example.digits()
    with ExitStack() as stack:
        progress("looking for a broker")
        with stop.at_once():
            broker = stack.enter_context(open_broker("the demo", allow_mock=True, progress=progress))
            progress("starting the service")
            service = example.service(broker.bootstrap)
            images, predictions, dead = example.topics_of(service)
            # A user's broker has its default for the number of replicas of a topic.
            replication = -1 if broker.kind == "environment" else 1
            create_topics(broker.bootstrap, {images: PARTITIONS, predictions: PARTITIONS, dead: 1}, replication)
        score = Score(data.labels, round(seconds * rate) + 1)
        agent = started(service, stack)
        viewer = _viewer(broker, predictions, score, run)
        stack.callback(viewer.stop)
        viewer.start()
        feeder = _feeder(broker, images, data, score, run, rate, seconds, stack)
        wait_for_the_first(
            agent, viewer, feeder.probe, stop, OPENING, "streamer tap digits.predictions shows whether there are any"
        )
        if stop.is_set():
            return None
        with screen(broker) as view:
            _watch(agent, viewer, feeder, score, seconds, view, stop)
        viewer.stop()
        agent.stop()
        summary = agent.join()
        check(agent)
        gathered = batches(agent)
        warm_up = WARM_UP if seconds >= 2 * WARM_UP else 0.0
        written, failed = None, ""
        if sheet is not None:
            progress("drawing the contact sheet")
            try:
                written = contact_sheet(data, score.by_image(), sheet)
            except StreamerError as error:
                failed = str(error)
        return DigitsOutcome(
            broker=broker.description,
            real=broker.kind != "mock",
            topics=(images, predictions, dead),
            score=score.final(warm_up),
            warm_up=warm_up,
            batch_mean=mean(gathered),
            batch_median=gathered.quantile(0.5),
            dead=summary.dead,
            sheet=written,
            no_sheet=failed,
            substitute=broker.substitute,
        )


def _viewer(broker: Broker, topic: str, score: Score, run: str) -> PredictionViewer:
    # On a user's broker skip predictions of earlier runs, but miss none of this run.
    start: Literal["earliest"] | int = round((time.time() - 5.0) * 1000) if broker.kind == "environment" else "earliest"
    config = KafkaSourceConfig(
        name="viewer", bootstrap=broker.bootstrap, topics=(topic,), group=f"streamer-demo-{run}", start=start
    )
    return PredictionViewer(config.build(), codec_of(config.codec), score, run)


def _feeder(
    broker: Broker,
    topic: str,
    data: example.Digits,
    score: Score,
    run: str,
    rate: float,
    seconds: float,
    stack: ExitStack,
) -> Feeder:
    sink = KafkaSinkConfig(name="feeder", bootstrap=broker.bootstrap, topic=topic).build()
    sink.open()
    stack.callback(sink.close)
    feeder = Feeder(sink, data, score, run, rate=rate, seconds=seconds)
    stack.callback(feeder.stop)
    return feeder


def _watch(
    agent: Agent,
    viewer: PredictionViewer,
    feeder: Feeder,
    score: Score,
    seconds: float,
    view: Screen[DigitsLook],
    stop: Stop,
) -> None:
    began = time.monotonic()
    deadline = float("inf")
    feeder.start()
    while True:
        viewer.check()
        check(agent)
        if stop.is_set():
            feeder.stop()
        if feeder.done and deadline == float("inf"):
            deadline = time.monotonic() + LAST
        state = score.state()
        gathered = batches(agent)
        view.show(
            DigitsLook(
                elapsed=time.monotonic() - began,
                seconds=seconds,
                state=state,
                batch_median=gathered.quantile(0.5) if gathered.count else 0.0,
                batch_mean=mean(gathered),
                latest=score.latest(SHOWN),
            )
        )
        if time.monotonic() > deadline or (feeder.done and state.answered == state.sent):
            return
        time.sleep(REFRESH)
