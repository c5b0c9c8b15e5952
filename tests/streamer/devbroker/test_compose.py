"""docker-compose.yml and Dockerfile agree with each other, with the examples and with `streamer.devbroker`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from streamer.definition.loading import load
from streamer.devbroker.container import IMAGE
from streamer.devbroker.mqtt.container import IMAGE as MOSQUITTO
from streamer.devbroker.settings import SINGLE_NODE, as_environment
from streamer.testing import run

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found: dict[str, Any] = document["services"]
    return found


def listeners(text: str) -> dict[str, str]:
    return dict(part.split("://") for part in text.split(","))


def test_images_are_pinned_and_those_that_tests_run_on(services: dict[str, Any]) -> None:
    assert services["kafka"]["image"] == services["topics"]["image"] == IMAGE
    assert services["mosquitto"]["image"] == MOSQUITTO
    dockerfile = (ROOT / "Dockerfile").read_text()
    # Each is an argument, so that a release can name a digest.
    arguments = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", dockerfile, re.MULTILINE))
    assert re.findall(r"^FROM \$\{(\w+)\}", dockerfile, re.MULTILINE) == list(arguments)
    assert len(re.findall(r"^FROM ", dockerfile, re.MULTILINE)) == len(arguments)
    bases = arguments.values()
    pulled = [service["image"] for service in services.values() if "build" not in service]
    for image in [*pulled, *bases]:
        assert re.search(r":v?\d+\.\d+", image), image


def test_kafka_has_the_settings_of_the_local_broker(services: dict[str, Any]) -> None:
    environment = services["kafka"]["environment"]
    assert as_environment(SINGLE_NODE).items() <= environment.items()
    assert all(isinstance(value, str) for value in environment.values())


def test_kafka_is_a_complete_kraft_node(services: dict[str, Any]) -> None:
    environment = services["kafka"]["environment"]
    listening = listeners(environment["KAFKA_LISTENERS"])
    node, host, port = re.fullmatch(r"(\d+)@(\w+):(\d+)", environment["KAFKA_CONTROLLER_QUORUM_VOTERS"]).groups()  # type: ignore[union-attr]
    assert node == environment["KAFKA_NODE_ID"]
    assert host == services["kafka"]["hostname"]
    assert listening[environment["KAFKA_CONTROLLER_LISTENER_NAMES"]] == f":{port}"
    protocols = dict(part.split(":") for part in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert set(protocols) == set(listening)
    assert environment["KAFKA_INTER_BROKER_LISTENER_NAME"] in listening
    assert len(environment["CLUSTER_ID"]) == 22
    assert f"kafka-data:{environment['KAFKA_LOG_DIRS']}" in services["kafka"]["volumes"]


def test_kafka_can_be_reached_from_the_host_and_from_containers(services: dict[str, Any]) -> None:
    environment = services["kafka"]["environment"]
    listening = listeners(environment["KAFKA_LISTENERS"])
    advertised = listeners(environment["KAFKA_ADVERTISED_LISTENERS"])
    assert advertised == {"HOST": "localhost:9092", "INTERNAL": "kafka:19092"}
    for name, address in advertised.items():
        assert listening[name] == f":{address.split(':')[1]}"
    assert services["kafka"]["ports"] == ["127.0.0.1:9092:9092"]
    assert services["digits"]["environment"]["KAFKA_BOOTSTRAP_SERVERS"] == advertised["INTERNAL"]
    assert advertised["INTERNAL"] in services["kafka"]["healthcheck"]["test"]
    assert advertised["INTERNAL"] in services["topics"]["command"][0]


def test_every_service_that_stays_up_has_a_health_check_and_a_restart(services: dict[str, Any]) -> None:
    for name in ("kafka", "mosquitto", "digits", "sensors", "prometheus", "grafana"):
        assert services[name]["healthcheck"]["test"][0] == "CMD"
        assert services[name]["restart"] == "unless-stopped"


def test_ports_are_open_on_this_machine_only(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert sorted(ports) == [
        "127.0.0.1:1883:1883",
        "127.0.0.1:3000:3000",
        "127.0.0.1:9090:9090",
        "127.0.0.1:9092:9092",
        "127.0.0.1:9464:9464",
        "127.0.0.1:9465:9464",
        "127.0.0.1:9466:9464",
    ]


def test_the_service_is_the_example_with_a_control_port_that_is_checked(services: dict[str, Any]) -> None:
    digits = services["digits"]
    assert digits["command"] == ["run", "deploy/digits.yaml"]
    text = (ROOT / "deploy/digits.yaml").read_text()
    deployed = yaml.safe_load(text.replace("${KAFKA_BOOTSTRAP_SERVERS}", "${KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}"))
    assert deployed.pop("control") == {"listen": "0.0.0.0:9464"}
    assert deployed.pop("set") == {"ONNX.providers": ["${ONNX_PROVIDER:-cpu}", "cpu"]}
    assert any("127.0.0.1:9464/live" in part for part in digits["healthcheck"]["test"])
    assert (ROOT / "deploy" / deployed["pipeline"]).resolve() == ROOT / "examples/digits/digits.pipeline.yaml"
    deployed["pipeline"] = "digits.pipeline.yaml"
    assert deployed == yaml.safe_load((ROOT / "examples/digits/digits.yaml").read_text())


def test_the_sensors_are_a_profile_whose_service_is_the_example_with_a_control_port(services: dict[str, Any]) -> None:
    sensors, machines = services["sensors"], services["machines"]
    assert sensors["profiles"] == machines["profiles"] == ["sensors"]
    assert sensors["command"] == ["run", "deploy/sensors.yaml", "examples/sensors/alerts.yaml"]
    assert sensors["depends_on"]["mosquitto"] == {"condition": "service_healthy"}
    assert sensors["environment"] == machines["environment"] == {"MQTT_BROKER": "mosquitto:1883"}
    text = (ROOT / "deploy/sensors.yaml").read_text()
    deployed = yaml.safe_load(text.replace("${MQTT_BROKER}", "${MQTT_BROKER:-localhost:1883}"))
    assert deployed.pop("control") == {"listen": "0.0.0.0:9464"}
    model = deployed["pipeline"][0]
    assert (ROOT / "deploy" / model["modelUri"]).resolve() == ROOT / "examples/sensors/autoencoder.onnx"
    model["modelUri"] = "autoencoder.onnx"
    assert deployed == yaml.safe_load((ROOT / "examples/sensors/sensors.yaml").read_text())


def used(services: dict[str, Any], name: str) -> set[str]:
    """The service, and all that it depends on."""
    depends = services[name].get("depends_on", {})
    return {name}.union(*(used(services, one) for one in depends))


def test_each_way_to_start_starts_what_its_service_uses_and_nothing_else(services: dict[str, Any]) -> None:
    always = {name for name, service in services.items() if "profiles" not in service}
    assert used(services, "digits") == {"digits", "topics", "kafka"}
    assert always == used(services, "digits") | used(services, "grafana")
    assert used(services, "grafana") == {"grafana", "prometheus"}
    assert used(services, "digits-gpu") == {"digits-gpu", "topics", "kafka"}
    assert used(services, "sensors") | used(services, "machines") == {"sensors", "machines", "mosquitto"}
    for name, service in services.items():
        # What a service of a profile depends on starts with it: it is in the profile too, or in none.
        for other in service.get("depends_on", {}):
            assert services[other].get("profiles", service.get("profiles")) == service.get("profiles"), (name, other)


def test_the_gpu_is_a_profile_of_the_same_service_with_another_onnxruntime(services: dict[str, Any]) -> None:
    digits, gpu = services["digits"], services["digits-gpu"]
    assert gpu["profiles"] == ["gpu"]
    assert gpu["command"] == digits["command"]
    assert gpu["environment"] == {**digits["environment"], "ONNX_PROVIDER": "cuda"}
    (argument,) = gpu["build"]["args"].items()
    assert argument == ("ONNXRUNTIME", "onnxruntime-gpu[cuda,cudnn]")
    assert f"ARG {argument[0]}=onnxruntime\n" in (ROOT / "Dockerfile").read_text()
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


def test_the_onnxruntime_for_gpus_is_installed_in_the_version_that_is_tested_on_cpus() -> None:
    tested, gpu = ((ROOT / name).read_text().splitlines() for name in ("constraints.txt", "constraints-gpu.txt"))
    (version,) = [pin.partition("==")[2] for pin in tested if pin.startswith("onnxruntime==")]
    assert f"onnxruntime-gpu=={version}" in gpu
    assert all("==" in pin for pin in gpu if not pin.startswith("#"))
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert 'install --constraint constraints.txt --constraint constraints-gpu.txt "$ONNXRUNTIME"' in dockerfile
    assert "!constraints-gpu.txt" in (ROOT / ".dockerignore").read_text().splitlines()


@pytest.mark.parametrize("provider", [None, "cpu", "cuda"])
def test_the_deployed_service_runs_on_the_provider_that_is_there(provider: str | None) -> None:
    environment = {"KAFKA_BOOTSTRAP_SERVERS": "kafka:19092"} | ({} if provider is None else {"ONNX_PROVIDER": provider})
    service = load(ROOT / "deploy/digits.yaml", environment=environment)
    report = run(service, [{"id": 1, "image": np.zeros((8, 8), np.uint8)}])
    assert len(report.results) == 1
    assert not report.dead


def test_the_simulated_machines_are_a_module_of_the_image(services: dict[str, Any]) -> None:
    python, flag, module = services["machines"]["entrypoint"]
    assert (python, flag) == ("python", "-m")
    assert (ROOT / module.replace(".", "/") / "__main__.py").exists()


def test_mosquitto_keeps_sessions_and_what_waits_for_them(services: dict[str, Any]) -> None:
    lines = (ROOT / "deploy/mosquitto.conf").read_text().splitlines()
    settings = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    assert settings["persistence"] == "true"
    assert f"mosquitto-data:{settings['persistence_location'].rstrip('/')}" in services["mosquitto"]["volumes"]
    # Its default of 1000 messages for a client that is away is lost without a word.
    assert int(settings["max_queued_messages"]) >= 100_000
    assert settings["set_tcp_nodelay"] == "true"


def test_the_topics_of_the_service_are_created_before_it_starts(services: dict[str, Any]) -> None:
    service = yaml.safe_load((ROOT / "examples/digits/digits.yaml").read_text())
    created = re.search(r"for topic in (.+); do", services["topics"]["command"][0])
    assert created is not None
    wanted = {*service["source"]["topics"], service["sink"]["topic"], service["dead_letter"]["topic"]}
    assert set(created[1].split()) == wanted
    assert services["digits"]["depends_on"]["topics"] == {"condition": "service_completed_successfully"}


def test_mounted_files_exist_and_mosquitto_listens_on_the_open_port(services: dict[str, Any]) -> None:
    mounted = [v.split(":")[0] for s in services.values() for v in s.get("volumes", ()) if v.startswith(".")]
    assert mounted
    assert all((ROOT / path).exists() for path in mounted)
    lines = (ROOT / "deploy/mosquitto.conf").read_text().splitlines()
    assert "listener 1883" in lines
    assert "persistence_location /mosquitto/data/" in lines


def test_the_image_gets_every_package_and_runs_as_nobody_special() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    allowed = (ROOT / ".dockerignore").read_text()
    for package in ("connectors", "pipelines", "protos", "streamer", "streamer_native"):
        assert f"COPY {package} {package}\n" in dockerfile
        assert f"!{package}\n" in allowed
    copied = re.search(r"^COPY (.+) \./$", dockerfile, re.MULTILINE)
    assert copied is not None
    for name in copied[1].split():
        assert (ROOT / name).exists()
        assert f"!{name}\n" in allowed
    assert "install --require-hashes --requirement requirements/server.txt" in dockerfile
    assert "!requirements/server.txt\n" in allowed
    assert "STREAMER_NATIVE=native python -m pip wheel" in dockerfile
    assert "useradd --uid 10001 " in dockerfile
    assert re.search(r'^USER 10001\n(.|\n)*^ENTRYPOINT \["streamer"\]', dockerfile, re.MULTILINE)


def test_no_tests_get_into_the_image() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert not [name for name in allowed if name.startswith(("tests", "benchmarks", "docs"))]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {name for words in copied for name in words.split()} <= set(allowed)
