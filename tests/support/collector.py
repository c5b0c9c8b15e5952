"""A collector of traces in the test process: OTLP over HTTP, in protobuf."""

from __future__ import annotations

import gzip
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from waiting import until

_READ: dict[str | None, Callable[[bytes], bytes]] = {None: bytes, "gzip": gzip.decompress, "deflate": zlib.decompress}


class Collector:
    """Keeps the spans that it gets."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.headers: list[Any] = []
        """Those of each request."""
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def named(self, name: str) -> list[Any]:
        """The spans of this name, in the order in which they came."""
        return [span for span in self.spans if span.name == name]

    def wait_for(self, name: str, count: int = 1) -> list[Any]:
        """As `named`, once there are so many."""
        until(lambda: len(self.named(name)) >= count, f"{count} spans {name}", 20)
        return self.named(name)

    def add(self, body: bytes) -> None:
        """Keep the spans of a request."""
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            attributes = {each.key: each.value.string_value for each in of_resource.resource.attributes}
            self.resources.append(attributes)
            for scope in of_resource.scope_spans:
                self.spans += scope.spans


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a port of its own, until the end of the block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = _READ[self.headers.get("Content-Encoding")](body)
            collector.headers.append(self.headers)
            if self.path == "/v1/traces":
                collector.add(body)
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def attributes(span: Any) -> dict[str, Any]:
    """The attributes of a span, by name."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}
