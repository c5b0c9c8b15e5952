"""A Prometheus that scrapes control ports of services each second, and judges the alerts of deploy/."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

ALERTS: Final = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"
PATIENCE: Final = 180.0
"""Seconds that a program may take to start, on a machine that has much else to do."""


def free_port() -> int:
    """A port of this machine that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class PrometheusServer:
    """A Prometheus in a folder of its own, on a port of localhost: a context manager."""

    def __init__(self, program: str, folder: Path, targets: Sequence[str]) -> None:
        """`program` is the path of `prometheus`, `targets` are the `host:port` that it scrapes."""
        self._program = program
        self._address = f"127.0.0.1:{free_port()}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [{"job_name": "streamer", "static_configs": [{"targets": list(targets)}]}],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    def __enter__(self) -> PrometheusServer:
        command = [
            self._program,
            f"--config.file={self._folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={self._address}",
        ]
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)  # noqa: S603
        deadline = time.monotonic() + PATIENCE
        while not self._ready():
            if time.monotonic() > deadline:
                self.__exit__()
                raise TimeoutError(f"Prometheus has not started: {self._log()}")
            time.sleep(0.05)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that the expression gives now, each with `metric` (its labels) and `value`."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of Prometheus' HTTP API; its words for an error are those of the `AssertionError`."""
        try:
            with urllib.request.urlopen(
                f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=30
            ) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise OSError(f"Prometheus has ended: {self._log()}")
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _log(self) -> str:
        return (self._folder / "prometheus.log").read_text()
