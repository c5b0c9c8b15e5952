"""A server of the Open Inference Protocol, small and obedient: what it answers is the test's to say."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

Reply = tuple[int, dict[str, str], bytes]

METADATA: dict[str, Any] = {
    "name": "digits",
    "inputs": [
        {"name": "image", "datatype": "FP32", "shape": [-1, 4]},
        {"name": "label", "datatype": "BYTES", "shape": [-1]},
    ],
    "outputs": [
        {"name": "doubled", "datatype": "FP32", "shape": [-1, 4]},
        {"name": "label", "datatype": "BYTES", "shape": [-1]},
    ],
}


def reply(status: int, document: Any, **headers: str) -> Reply:
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(document).encode()


@dataclass
class Asked:
    verb: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body[: int(self.headers["inference-header-content-length"])])


@dataclass
class V2Server:
    """Doubles the tensor `image`, and gives `label` back."""

    url: str = ""
    metadata: Any = field(default_factory=lambda: METADATA)
    extensions: list[str] = field(default_factory=lambda: ["binary_tensor_data"])
    asked: list[Asked] = field(default_factory=list)
    replies: list[Reply | Callable[[], Reply]] = field(default_factory=list)
    """Answers to the next requests for inference, in place of results."""

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if asked.path.endswith("/infer"):
            if not self.replies:
                return self.result(asked)
            given = self.replies.pop(0)
            return given() if callable(given) else given
        if asked.path == "/v2/repository/index":
            return reply(200, [{"name": "digits", "state": "READY"}])
        if asked.path.endswith("/ready"):
            return reply(200, {"name": "digits", "ready": True})
        if asked.path == "/v2":
            return reply(200, {"name": "v2", "extensions": self.extensions})
        if "/v2/models/digits" in asked.path:
            return reply(200, self.metadata)
        return reply(404, {"error": f'there is no model "{asked.path.rpartition("/")[2]}"; there is digits'})

    def result(self, asked: Asked) -> Reply:
        """Binary tensors, as asked for."""
        at, tensors, outputs = int(asked.headers["inference-header-content-length"]), {}, []
        for entry in asked.document["inputs"]:
            size = entry["parameters"]["binary_data_size"]
            tensors[entry["name"]] = entry, asked.body[at : at + size]
            at += size
        wanted = [entry["name"] for entry in asked.document.get("outputs", [])]
        for name, (entry, data) in tensors.items():
            if name == "image":
                doubled = np.frombuffer(data, "<f4") * 2
                outputs.append(({**entry, "name": "doubled"}, doubled.tobytes()))
            elif name == "label":
                outputs.append((entry, data))
        outputs = [given for given in outputs if not wanted or given[0]["name"] in wanted]
        document = json.dumps({"model_name": "digits", "outputs": [entry for entry, _ in outputs]}).encode()
        body = document + b"".join(data for _, data in outputs)
        return 200, {"Inference-Header-Content-Length": str(len(document))}, body


@contextmanager
def v2_server() -> Iterator[V2Server]:
    """Such a server, listening at `url`."""
    server = V2Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, extra, answer = server.answer(Asked(self.command, self.path, headers, body))
            self.send_response(status)
            for name, value in {**extra, "Content-Length": str(len(answer))}.items():
                self.send_header(name, value)
            with suppress(OSError):  # a client that has waited long enough is gone
                self.end_headers()
                self.wfile.write(answer)

        do_POST = do_GET  # noqa: N815 - the name that http.server asks for

        def log_message(self, format: str, *args: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
