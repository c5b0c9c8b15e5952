"""All metrics that a control port can show, for tests of what names metrics: documentation, alerts, boards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import pipelines
from connectors.camera.health import Health
from connectors.camera.measures import measures_of
from connectors.codecs.registry import codec_of
from connectors.codecs.sparkplug.codec import SparkplugConfig
from connectors.measures import Measure
from connectors.memory import MemorySessionSource, MemorySink
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.endpoint import MqttEndpointSourceConfig
from connectors.mqtt.sinkconfig import MqttSinkConfig
from connectors.outbox.config import OutboxConfig
from connectors.outbox.sink import OutboxSink
from connectors.view.config import ClipSinkConfig, VideoSinkConfig, ViewSinkConfig
from pipelines.data.batch import Batch
from pipelines.hotpath import HotPathReport
from pipelines.observe.meters import Reading
from pipelines.observe.observing import StepRun
from pipelines.plugins.registry import default_registry
from pipelines.runners.runner import OpenContext
from pipelines.steps.keyed.join import Join
from pipelines.steps.keyed.window import Window
from pipelines.steps.tables.lookup import Lookup
from streamer.definition.hotpaths import PartHotPath
from streamer.models.canary import Canary
from streamer.models.choice import Choice
from streamer.models.comparing import Compared
from streamer.models.files import ModelFiles
from streamer.models.following import Following
from streamer.models.lineup import Lineup
from streamer.models.settings import CanarySettings
from streamer.models.shadow import Shadow
from streamer.models.shadowsink import ShadowSink
from streamer.models.sharing import Sharing
from streamer.models.tally import Tally
from streamer.models.version import Version
from streamer.observe.metrics import Measured, ServiceMeters
from streamer.observe.scrape import ScrapeCollector
from streamer.observe.statemeters import StateMeters
from streamer.routing.sinkroute import Selection, SinkRoute
from streamer.workers.exposition import of_parent


class _Healthy:
    """A service in which everything that has labels was counted once."""

    def __init__(self, meters: ServiceMeters) -> None:
        self.meters = meters

    def live(self) -> str | None:
        return None

    def ready(self) -> str | None:
        return None


def exported_families() -> Sequence[Metric]:
    """The metrics of a service with each connector that counts something, each with at least one sample, and those of
    the parent of its workers."""
    meters = ServiceMeters("docs", ["source"])
    meters.sources["source"].batches(1, 1, "records")
    meters.sources["source"].untimed["source"] += 1
    meters.run.dropped["view"] += 1
    meters.run.transaction("committed", 0.1)
    meters.run.latency.add_one(0.1)
    meters.run.step(StepRun("0:ONNX", "OnnxRunner", 0.0, 0.1, 1, (), Batch({}, 0), {"DataError": 1}))
    meters.step_metrics.of("0:CLASSIFIER_OUTPUT").labels("streamer_labels").add("3")
    for number, window in enumerate(
        ({"size": 4, "values": ["x"], "output_name": "y"}, {"gap": 1, "aggregate": {"n": {"count": "x"}}})
    ):
        default_registry().create(
            Window(by="device", **window), OpenContext(step=f"{number}:WINDOW", meters=meters.of_executors[0])
        )
    join = Join(by="key", topics={"left": "a", "right": "b"}, within=1)
    default_registry().create(join, OpenContext(step="2:JOIN", meters=meters.of_executors[0]))
    with TemporaryDirectory() as folder:
        table = Path(folder, "machines.json")
        table.write_text('[{"id": "a", "line": "north"}]')
        context = OpenContext(step="3:LOOKUP", meters=meters.of_executors[0])
        default_registry().create(Lookup(table, by="id", take="line"), context).close()
    state = StateMeters()
    state.bytes = 1
    meters.state = state.readings
    meters.lag = lambda: {("topic", 0): 1}
    meters.hot_paths = lambda: [PartHotPath("source codec", HotPathReport("native"))]
    meters.models = _models
    meters.connectors = lambda: [
        Measured("source bus", "memory", MemorySessionSource().metrics),
        Measured("sink view", "view", ViewSinkConfig().build().metrics),
        Measured("sink video", "video", VideoSinkConfig(path=Path("video.mp4")).build().metrics),
        Measured("sink clip", "clip", ClipSinkConfig(directory=Path("clips")).build().metrics),
        Measured("source endpoint", "mqtt_endpoint", MqttEndpointSourceConfig().build().metrics),
        Measured("source bus", "mqtt", MqttSourceConfig(topics=("in",), client_id="docs").build().metrics),
        Measured("sink bus", "mqtt", MqttSinkConfig(topic="out", client_id="docs").build().metrics),
        Measured("sink stored", "mqtt", _outbox().metrics),
        Measured("source cameras", "camera", _cameras()),
        Measured("source bus", "sparkplug", SparkplugConfig().build().metrics),
    ]
    parent = text_string_to_metric_families(of_parent({(0, "hung"): 1}, {"docs": 1}, ["docs"]))
    return [*ScrapeCollector({"docs": _Healthy(meters)}).collect(), *parent]


def _models() -> Iterator[Reading]:
    following = _following()
    yield from following.readings()
    sharing = following.lineup.sharing
    yield from Canary("next", CanarySettings(), sharing.choice, sharing.tally, None).readings()
    route = SinkRoute("shadow", MemorySink(), codec_of("json"), Selection("sink shadow"))
    version = Version("1", ModelFiles(pipelines.Sequence([])).look())
    shadow = Shadow(lambda: version, None, ShadowSink(route, None, None))
    shadow.comparison.outputs["y"] = Compared()
    yield from shadow.readings()
    shadow.end()


def _following() -> Following:
    state = ModelFiles(pipelines.Sequence([])).look()
    weights = {"current": 90.0, "next": 10.0}
    versions = {name: Version(str(number), state) for number, name in enumerate(weights)}
    lineup = Lineup(versions, Sharing(Choice(weights), Tally(list(weights))))
    return Following(dict, lineup, lambda variant, state, opening: [], 1.0, lambda: None, None)


def exported_samples() -> Mapping[str, set[str]]:
    """The names of the labels of each sample that Prometheus gets, by its name: `streamer_latency_seconds_bucket`."""
    labels: dict[str, set[str]] = {}
    for family in exported_families():
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def _outbox() -> OutboxSink:
    """A sink with an outbox, which is not opened."""
    return OutboxSink(MqttSinkConfig(topic="out", client_id="docs").build(), OutboxConfig(path=Path("out.outbox")))


def _cameras() -> Callable[[], Sequence[Measure]]:
    """The measures of a camera whose clock is known."""
    health: Any = Health(1.0)
    health.skew = 0.1
    return lambda: measures_of({"gate": health})
