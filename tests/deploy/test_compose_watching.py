"""Prometheus and Grafana of docker-compose.yml: addresses, provisioning, who can reach them, what Compose says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafanaboard import BOARD, board
from programs import program

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return read


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """Path in the container: path here."""
    pairs = [volume.split(":") for volume in service["volumes"] if volume.startswith(".")]
    assert all(options == ["ro"] for _, _, *options in pairs)
    return {inside: ROOT / outside for outside, inside, *_ in pairs}


def test_prometheus_asks_each_service_at_the_port_on_which_it_listens(services: dict[str, Any]) -> None:
    (job,) = loaded(ROOT / "deploy/prometheus/prometheus.yaml")["scrape_configs"]
    # The alerts name this job.
    assert job["job_name"] == "streamer"
    static = [target for group in job["static_configs"] for target in group["targets"]]
    by_name = [f"{name}:{group['port']}" for group in job["dns_sd_configs"] for name in group["names"]]
    runs = {name: s["command"][1] for name, s in services.items() if s.get("command", [""])[0] == "run"}
    assert sorted(static + by_name) == sorted(f"{name}:9464" for name in runs)
    for file in runs.values():
        assert loaded(ROOT / file)["control"]["listen"] == "0.0.0.0:9464"
    # What a profile starts is not asked by a fixed name, as it would count as down where it does not run.
    assert all("profiles" not in services[target.partition(":")[0]] for target in static)


@pytest.mark.slow
def test_promtool_accepts_the_configuration_with_its_alerts() -> None:
    command = [program("promtool"), "check", "config", str(ROOT / "deploy/prometheus/prometheus.yaml")]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "1 rule files found" in checked.stdout


def test_prometheus_reads_the_mounted_configuration_and_limits_what_it_stores(services: dict[str, Any]) -> None:
    prometheus = services["prometheus"]
    options = dict(option.removeprefix("--").split("=", 1) for option in prometheus["command"])
    folder = mounts(prometheus)["/etc/prometheus"]
    assert (folder / Path(options["config.file"]).name).is_file()
    assert (folder / "alerts.yaml").is_file()
    assert options["storage.tsdb.retention.size"] == "1GB"
    assert options["storage.tsdb.retention.time"] == "7d"
    assert f"prometheus-data:{options['storage.tsdb.path']}" in prometheus["volumes"]


def test_grafana_has_the_data_source_and_the_board_without_a_click(services: dict[str, Any]) -> None:
    grafana = services["grafana"]
    inside = mounts(grafana)
    folder = inside["/etc/grafana/provisioning"]
    (source,) = loaded(folder / "datasources/prometheus.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"]
    assert source["type"] == board()["templating"]["list"][0]["query"]
    interval = loaded(ROOT / "deploy/prometheus/prometheus.yaml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval
    (provider,) = loaded(folder / "dashboards/streamer.yaml")["providers"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/streamer.json"
    assert inside[home] == BOARD


def test_only_this_machine_reaches_them_and_nobody_can_log_in(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
    environment = services["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    for name in ("prometheus", "grafana"):
        assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", services[name]["image"])


def test_ports_of_this_machine_are_given_once(services: dict[str, Any]) -> None:
    ports = [port.split(":")[1] for service in services.values() for port in service.get("ports", ())]
    assert len(ports) == len(set(ports))


def test_volumes_and_services_that_are_named_exist(services: dict[str, Any]) -> None:
    mounted = {v.split(":")[0] for service in services.values() for v in service.get("volumes", ()) if v[0] != "."}
    assert mounted == set(yaml.safe_load(COMPOSE.read_text())["volumes"])
    assert {other for service in services.values() for other in service.get("depends_on", ())} <= set(services)


@pytest.mark.slow
def test_compose_accepts_the_file_and_refuses_one_with_a_mistake(tmp_path: Path) -> None:
    """By the library that `docker compose` reads files with: keys, values, durations, ports."""
    checker = program("compose-go")
    accepted = subprocess.run([checker, COMPOSE], capture_output=True, text=True, timeout=60)
    assert accepted.returncode == 0, accepted.stderr
    assert yaml.safe_load(accepted.stdout)["services"]["grafana"]["depends_on"]["prometheus"]["required"]
    for right, wrong in (
        ("    restart: unless-stopped", "    restrat: unless-stopped"),
        ("condition: service_healthy", "condition: service_helthy"),
        ('"127.0.0.1:3000:3000"', '"127.0.0.1:3000:http"'),
    ):
        assert right in COMPOSE.read_text()
        file = tmp_path / "docker-compose.yml"
        file.write_text(COMPOSE.read_text().replace(right, wrong))
        refused = subprocess.run([checker, file], capture_output=True, text=True, timeout=60)
        assert refused.returncode != 0, wrong
