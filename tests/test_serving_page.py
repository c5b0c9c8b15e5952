"""The page on requests is true: what it starts answers, and its commands and programs get the answers that it shows."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from onnx import TensorProto, helper, save
from pageblocks import ROOT, Block, blocks_of

BLOCKS = list(blocks_of(ROOT / "docs" / "serving.md"))
SERVERS = ("streamer serve", "streamer run")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Page:
    """The page's commands, in a folder with its files, on ports that are free."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {"8000": str(free_port()), "8001": str(free_port())}
        self._server: subprocess.Popen[str] | None = None
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "SERVE_LISTEN": self.local("127.0.0.1:8000")}

    def local(self, text: str) -> str:
        """The text with the free ports in place of the page's."""
        return re.sub(r"127\.0\.0\.1:(800[01])", lambda match: f"127.0.0.1:{self._ports[match[1]]}", text)

    def start(self, command: str) -> None:
        """Start a server, in place of the one before."""
        self.stop()
        self._server = subprocess.Popen(
            [*self.local(command).split(), "--log-level", "error"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 120
        while not self._is_ready():
            assert self._server.poll() is None, self._server.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            return httpx2.get(self.local("http://127.0.0.1:8000/v2/health/ready")).is_success
        except httpx2.TransportError:
            return False

    def printed(self, lines: int) -> str:
        """The first lines that the server has printed."""
        assert self._server is not None
        assert self._server.stdout is not None
        return "".join(self._server.stdout.readline() for _ in range(lines))

    def shell(self, command: str) -> str:
        return self._output(["bash", "-euo", "pipefail", "-c", self.local(command).replace("curl ", "curl -s ")])

    def python(self, program: str) -> None:
        self._output([sys.executable, "-c", self.local(program)])

    def _output(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGTERM)
            _, errors = self._server.communicate(timeout=60)
            assert self._server.returncode == 0, errors
            self._server = None


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    risk = helper.make_tensor_value_info("risk", TensorProto.FLOAT, ["N", 1])
    graph = helper.make_graph([helper.make_node("ReduceMean", ["x"], ["risk"], axes=[1])], "fans", [x], [risk])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "fans.onnx")
    page = Page(tmp_path)
    for block in BLOCKS:
        if block.mark == "file":
            # The address of the page's own server is the default of a source.
            text = block.text.replace("{type: http, codec", '{type: http, listen: "127.0.0.1:8000", codec')
            (tmp_path / block.value).write_text(page.local(text))
    yield page
    page.stop()


@pytest.mark.slow
def test_the_page_on_requests_shows_what_happens(page: Page) -> None:
    command: Block | None = None
    checked = 0
    for block in BLOCKS:
        if block.language == "sh" and block.text.startswith(SERVERS):
            page.start(block.text if "run" in block.text else f"{block.text.strip()} --listen 127.0.0.1:8000")
        elif block.language == "text":
            assert page.printed(block.text.count("\n")) == page.local(block.text)
        elif block.language == "py":
            page.python(block.text)
        elif block.language == "sh":
            command = block
            continue
        elif block.language == "json":
            assert command is not None
            assert json.loads(page.shell(command.text)) == json.loads(block.text), str(block)
            checked += 1
        command = None
    assert checked == len([block for block in BLOCKS if block.language == "json"]) > 2


def test_the_example_of_the_page_is_that_of_the_repository() -> None:
    (block,) = [block for block in BLOCKS if block.value == "serve.yaml"]
    example = (ROOT / "examples" / "digits" / "serve.yaml").read_text()

    def plain(text: str) -> list[str]:
        return [line.partition("#")[0].strip() for line in text.splitlines() if line.partition("#")[0].strip()]

    assert plain(block.text) == plain(example)
