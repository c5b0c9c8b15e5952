"""A mixed house on a real MQTT broker: a service takes what it is for, and the rest passes by."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5
from waiting import until

import streamer
from streamer.agent.agent import Agent

pytestmark = pytest.mark.slow

MESSAGES = 20_000
DEVICES: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "lamp": lambda chance: {"state": "ON", "brightness": chance.randrange(255)},
    "plug": lambda chance: {"state": "OFF", "power": chance.random() * 100},
    "climate": lambda chance: {"temperature": chance.randrange(-10, 35) + 0.5, "humidity": chance.randrange(100)},
    "thermostat": lambda chance: {"temperature": chance.randrange(15, 25), "mode": "heat"},
    "motion": lambda chance: {"occupancy": chance.random() < 0.5},
    "contact": lambda chance: {"contact": True, "temperature": None},
    "leak": lambda chance: {"water_leak": False, "battery": 90},
    "button": lambda chance: {"action": "single"},
    "cover": lambda chance: {"position": chance.randrange(100)},
}
"""The kinds of devices, and what each sends. Two of them measure temperatures; one says that it has none."""
BRIDGE = {"state": b"online", "devices": b'[{"type": "Router"}]', "logging": b'{"level": "info"}'}


def test_a_service_for_temperatures_lives_with_all_devices_of_a_house(start_mosquitto: Any, tmp_path: Path) -> None:
    # Mosquitto would drop what waits for a slow reader.
    mqtt_broker = start_mosquitto(max_queued_messages="0")
    house, results = tmp_path.name, tmp_path / "out.jsonl"
    service = streamer.loads(f"""
source:
  type: mqtt
  url: {mqtt_broker.url}
  topics: "{house}/#"
  client_id: {house}
  codec: json
  into: {{topic: topic}}
  where: ["topic not like '%/bridge/%'", temperature is not null]
pipeline: [{{"@type": MAP, select: {{f: temperature * 1.8 + 32}}}}]
sink: {{type: file, path: {results}, format: jsonl, codec: json}}
dead_letter: {{type: file, path: {tmp_path / "dead.jsonl"}, format: jsonl}}
""")
    chance, expected, passed = random.Random(7), [], 0
    # Its session is there, so that what is published before it has subscribed waits for it.
    with MqttClient(mqtt_broker.host, mqtt_broker.port, house, version=MQTTv5, clean=False) as session:
        session.subscribe(f"{house}/#", 1)
    agent = Agent(service)
    agent.start()
    with MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as client:
        for number in range(MESSAGES):
            if number % 50 == 0:
                name = chance.choice(list(BRIDGE))
                client.client.publish(f"{house}/bridge/{name}", BRIDGE[name], 1)
                passed += 1
                continue
            kind = chance.choice(list(DEVICES))
            values = DEVICES[kind](chance)
            client.client.publish(f"{house}/{kind}-{number % 7}", json.dumps({"n": number, **values}), 1)
            if values.get("temperature") is None:
                passed += 1
            else:
                expected.append((number, round(values["temperature"] * 1.8 + 32, 6)))
        counts = agent.meters.total
        until(lambda: sum(map(counts, ("ok", "passed", "dead", "dropped"))) >= MESSAGES)
    agent.stop()
    summary = agent.join(60)
    assert (summary.ok, summary.passed) == (len(expected), passed)
    assert (summary.dead, summary.dropped, summary.failed) == (0, 0, 0)
    found = [json.loads(line) for line in results.read_text().splitlines()]
    assert [(each["n"], round(each["f"], 6)) for each in found] == expected
