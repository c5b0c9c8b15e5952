"""A real Prometheus scrapes running services: every panel of the Grafana board gets data, and the alerts are judged."""

from __future__ import annotations

import itertools
import json
import math
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from confluent_kafka import Producer
from drawn.boarddrawing import LINES, drawing
from drawn.prometheusrun import PrometheusServer, free_port
from grafanaboard import board, queries
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5
from programs import program
from waiting import until

from streamer.devbroker import Broker, create_topics
from streamer.devbroker.mqtt import MqttBroker

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

ROOT = Path(__file__).parents[2]
WITHOUT_DATA = {"Messages that a full sink dropped": "no sink of these services is ever full"}
"""Panels that get no data here, and why."""

SERVICES = """
name: digits
source: {{type: kafka, bootstrap: "{kafka}", topics: [{images}], group: {images}, codec: json}}
pipeline: {digits}
keep: [id]
sink: {{type: kafka, bootstrap: "{kafka}", topic: {predictions}, codec: json}}
dead_letter: {{type: kafka, bootstrap: "{kafka}", topic: {dead}}}
delivery: exactly_once
control: {{listen: "{listen}"}}
---
name: yard
source: {{type: camera, cameras: {{gate: "lavfi:testsrc2=size=64x48:rate=5"}}}}
pipeline: []
sink: {{type: memory, topic: seen}}
control: {{listen: "{listen}"}}
---
name: sensors
source: {{type: mqtt, url: "{mqtt}", topics: "{images}/in", client_id: {images}, codec: json}}
pipeline:
  - {{"@type": WINDOW, by: x, size: 1, values: [x], outputName: samples}}
  - {{"@type": WINDOW, by: x, size: 1s, aggregate: {{seen: {{count: x}}}}, emit: each}}
state: {{path: sensors.state}}
sink: {{type: mqtt, url: "{mqtt}", topic: "{images}/out", codec: json, outbox: {{path: out.outbox}}}}
control: {{listen: "{listen}"}}
---
name: parts
source: {{type: mqtt, url: "{mqtt}", topics: "{images}/parts/+", client_id: {images}-parts, codec: json}}
pipeline:
  - {{"@type": LOOKUP, by: part, path: parts.csv, take: line, missing: absent}}
  - {{"@type": JOIN, by: part, topics: {{left: "{images}/parts/a", right: "{images}/parts/b"}}, within: 1s, wait: 1s}}
state: {{path: parts.state}}
sink: {{type: memory, topic: joined}}
dead_letter: {{type: memory, topic: unjoined}}
control: {{listen: "{listen}"}}
"""


class Watched(NamedTuple):
    """Running services, and the Prometheus that scrapes them."""

    prometheus: PrometheusServer
    services: subprocess.Popen[bytes]
    feed: Callable[[], None]
    """Sends some records to each service; one in twenty fails."""


@pytest.fixture(scope="module")
def watched(kafka: Broker, mqtt_broker: MqttBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    prometheus = program("prometheus")
    folder = tmp_path_factory.mktemp("watched")
    listen = f"127.0.0.1:{free_port()}"
    prefix = f"board-{listen.rpartition(':')[2]}-{time.time_ns()}"
    topics = {name: f"{prefix}-{name}" for name in ("images", "predictions", "dead")}
    create_topics(kafka.bootstrap, dict.fromkeys(topics.values(), 2))
    text = SERVICES.format(
        **topics,
        kafka=kafka.bootstrap,
        mqtt=mqtt_broker.url,
        listen=listen,
        digits=ROOT / "examples/digits/digits.pipeline.yaml",
    )
    (folder / "services.yaml").write_text(text)
    (folder / "parts.csv").write_text("part,line\np0,A\n")
    images = np.load(ROOT / "examples/digits/digits.npz")["images"].tolist()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    numbers = itertools.count()

    def feed() -> None:
        for _ in range(100):
            number = next(numbers)
            image = [[0]] if number % 20 == 7 else images[number % len(images)]
            producer.produce(topics["images"], json.dumps({"id": number, "image": image}).encode())
        assert producer.flush(60) == 0
        with MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as client:
            client.publish(f"{topics['images']}/in", b'{"x": 1}', 1)
            client.publish(f"{topics['images']}/parts/a", b'{"part": "p%d"}' % next(numbers), 1)

    with ExitStack() as stack:
        log = stack.enter_context((folder / "services.log").open("wb"))
        command = [sys.executable, "-m", "streamer", "run", "services.yaml"]
        services = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        stack.callback(_ended, services)

        def ready() -> bool:
            assert services.poll() is None, (folder / "services.log").read_text()
            try:
                with urllib.request.urlopen(f"http://{listen}/ready", timeout=5) as answer:
                    return len(json.load(answer)) == 4
            except OSError:
                return False

        until(ready, "the services' start")
        yield Watched(stack.enter_context(PrometheusServer(prometheus, folder, [listen])), services, feed)


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)


def test_every_query_of_the_board_gets_data_from_running_services(watched: Watched) -> None:
    waiting = queries(window="10s")
    deadline = time.monotonic() + 120
    while any(title not in WITHOUT_DATA for title, _ in waiting) and time.monotonic() < deadline:
        watched.feed()
        time.sleep(1)
        waiting = [(title, query) for title, query in waiting if not _numbers(watched.prometheus, query)]
    assert [(title, query) for title, query in waiting if title not in WITHOUT_DATA] == []
    # What has got no data is what is said to get none.
    assert {title for title, _ in waiting} == WITHOUT_DATA.keys()


def _numbers(prometheus: PrometheusServer, query: str) -> list[float]:
    """The values of all series that are numbers: a rate over nothing, divided by nothing, is none."""
    values = [float(series["value"][1]) for series in prometheus.query(query)]
    return [value for value in values if not math.isnan(value)]


def test_panels_show_what_happened(watched: Watched) -> None:
    watched.feed()
    ask = watched.prometheus.query

    def finished(outcome: str) -> float:
        return sum(
            float(s["value"][1]) for s in ask(f'streamer_records_total{{service="digits", outcome="{outcome}"}}')
        )

    until(lambda: finished("dead") > 0 and finished("ok") == 19 * finished("dead"), "all records to be finished")
    assert {s["metric"]["service"] for s in ask("streamer_ready == 1")} == {"digits", "yard", "sensors", "parts"}
    # Three services of one process: it is there once.
    (memory,) = ask("process_resident_memory_bytes")
    assert float(memory["value"][1]) > 20e6
    errors = ask('sum by (step) (streamer_step_errors_total{service="digits"})')
    assert float(errors[0]["value"][1]) == finished("dead")


def test_the_drawing_of_the_documentation_has_a_line_in_every_panel(watched: Watched) -> None:
    def ask(expression: str) -> object:
        window = {"start": str(time.time() - 30), "end": str(time.time()), "step": "1"}
        return watched.prometheus.get("query_range", query=expression, **window)["result"]

    for _ in range(3):
        watched.feed()
        time.sleep(1)
    fresh = drawing(board(), ask, "10s")
    assert fresh.without_data == []
    kept = (ROOT / "docs/pictures/grafana-board.svg").read_text()
    for svg in (fresh.svg, kept):
        drawn = svg.split("<g transform=")[1:]
        assert [panel.count("<polyline") > 0 for panel in drawn] == [False] * 6 + [True] * len(LINES)
        titles = [re.findall(r"<text class=\"(?:small|title)\"[^>]*>([^<]+)<", panel)[0] for panel in drawn]
        assert titles == [*(p["title"] for p in board()["panels"] if p["type"] == "stat"), *LINES]


def test_all_alerts_are_judged_and_one_reports_services_that_went_away(watched: Watched) -> None:
    def rules() -> list[dict[str, object]]:
        groups = watched.prometheus.get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    until(lambda: all(rule["health"] == "ok" for rule in rules()), "all alerts to be judged")
    assert len(rules()) > 20
    assert not [rule["name"] for rule in rules() if rule["state"] == "firing"]
    _ended(watched.services)
    assert watched.services.returncode == 0

    def down() -> bool:
        alerts = watched.prometheus.get("alerts")["alerts"]
        return any(alert["labels"]["alertname"] == "StreamerDown" for alert in alerts)

    until(down, "an alert")
    (alert,) = [a for a in watched.prometheus.get("alerts")["alerts"] if a["labels"]["alertname"] == "StreamerDown"]
    assert alert["state"] == "pending"
    assert alert["annotations"]["summary"] == f"{alert['labels']['instance']} does not answer"
