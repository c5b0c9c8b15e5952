"""The example on vibration: fifty devices on a mosquitto, a fault of one, one alert."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from mqttclient import MqttClient
from onnx import numpy_helper
from paho.mqtt.client import MQTTv5
from waiting import until

import streamer
from streamer.agent.agent import Agent
from streamer.devbroker.mqtt import LocalMosquitto

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "vibration"
TURNS = 48
"""Messages of each device: twelve windows."""


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_vibration_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_a_fault_of_one_of_fifty_devices_is_one_alert_and_so_is_its_end(
    start_mosquitto: Callable[..., LocalMosquitto], tmp_path: Path
) -> None:
    simulated: Any = module("devices")
    mosquitto = start_mosquitto()
    folder = tmp_path / "vibration"
    shutil.copytree(EXAMPLE, folder)
    service = streamer.load(folder / "vibration.yaml", environment={"MQTT_BROKER": f"127.0.0.1:{mosquitto.port}"})
    agent = Agent(service)
    devices = [simulated.Device(number) for number in range(simulated.DEVICES)]
    with MqttClient("127.0.0.1", mosquitto.port, version=MQTTv5) as viewer:
        viewer.subscribe("alerts/+", 1)
        agent.start()
        try:
            until(lambda: agent.ready() is None, "the service to be ready")
            for turn in range(TURNS):
                devices[simulated.FAULTY].fault = 16 <= turn < 32
                for number, device in enumerate(devices):
                    viewer.publish(simulated.topic(number), simulated.payload(device.block()), 1)
            alerts = [json.loads(message.payload) for message in viewer.take(2)]
            assert viewer.nothing(0.5)
        finally:
            agent.stop()
            summary = agent.join(60)
    assert (summary.dead, summary.error) == (0, None)
    assert [(alert["device"], alert["state"], alert["before"]) for alert in alerts] == [
        ("fan-07", "on", "off"),
        ("fan-07", "off", "on"),
    ]
    assert alerts[0]["score"] > 2
    assert "samples" not in alerts[0]
    assert (folder / "vibration.state").exists()


def test_the_model_is_what_its_script_makes_and_says_its_licence() -> None:
    kept, fresh = onnx.load(EXAMPLE / "ringing.onnx"), module("model").model()
    assert [node.op_type for node in kept.graph.node] == [node.op_type for node in fresh.graph.node]
    for one, other in zip(kept.graph.initializer, fresh.graph.initializer, strict=True):
        assert np.allclose(numpy_helper.to_array(one), numpy_helper.to_array(other), atol=1e-6)
    assert {entry.key: entry.value for entry in kept.metadata_props}["licence"].startswith("Apache-2.0")
    assert "licence" in (EXAMPLE / "README.md").read_text()
