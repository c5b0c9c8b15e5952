"""A server on this machine that answers as the Hugging Face Hub about one repository."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit


@contextmanager
def hub_of(repository: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """The address of a hub that has a repository of models, `org/name`, with these files, by path."""

    def listed(path: str) -> dict[str, Any]:
        return {"type": "file", "path": path, "size": len(files[path]), "oid": f"{len(path):040d}"}

    class Hub(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = unquote(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._answer(json.dumps([listed(path) for path in files if path in asked]).encode())

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            file = path.removeprefix(f"/{repository}/resolve/main/")
            if "/tree/" in path:
                folder = path.partition("/tree/main")[2].strip("/")
                below = [each for each in files if each.startswith(folder)]
                self._answer(json.dumps([listed(each) for each in below]).encode(), 200 if below else 404)
            elif path.startswith(f"/api/models/{repository}"):
                self._answer(json.dumps({"id": repository, "sha": "1" * 40, "siblings": []}).encode())
            elif file in files:
                self._answer(files[file])
            else:
                self._answer(b"", 404)

        def _answer(self, data: bytes, status: int = 200) -> None:
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
            if asked is not None:
                data, status = data[int(asked[1]) : int(asked[2]) + 1], 206
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()
