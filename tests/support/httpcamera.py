"""An HTTP camera for tests: JPEG pictures as multipart/x-mixed-replace, files of HLS, and faults to order."""

from __future__ import annotations

import base64
import hashlib
import queue
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numberedpictures import jpeg


class HttpCamera:
    """A camera at `url`, on a free port of this machine; a context manager. Its attributes take effect at once."""

    def __init__(
        self,
        width: int = 160,
        height: int = 96,
        *,
        fps: float = 20.0,
        login: tuple[str, str] | None = None,
        redirect: str | None = None,
        endless: bool = False,
        fed: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.size = (width, height)
        self.fps = fps
        self.stalled = False
        """Sends nothing, and keeps the connection."""
        self.part_type = "image/jpeg"
        """The content type of each picture."""
        self.challenges: list[str] = ['Basic realm="camera"']
        """What it asks for to log in, a header each."""
        self.bare: str | None = None
        """A content type: pictures follow each other as they are, not as parts."""
        self.connections = 0
        """Requests that were answered."""
        self.pictures: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        """With `fed`: what it sends, each picture once, as soon as somebody is connected."""
        self._fed = fed
        self._login = login
        self._redirect = redirect
        self._endless = endless
        self._folder = folder
        self._closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.port = self._server.server_address[1]

    @property
    def url(self) -> str:
        """Its URL, with the login if it wants one."""
        name = "" if self._login is None else ":".join(self._login) + "@"
        return f"http://{name}127.0.0.1:{self.port}/live.mjpeg"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self.drop()

    @property
    def watched(self) -> bool:
        """Whether somebody is connected and gets pictures."""
        return bool(self._open)

    def drop(self) -> None:
        """Cut all connections; new ones are taken."""
        for one in list(self._open):
            self._open.discard(one)
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _allowed(self, given: str | None) -> bool:
        if self._login is None:
            return True
        if given is not None and given.startswith("Digest "):
            return self._is_right(dict(re.findall(r'(\w+)="?([^",]*)"?', given)))
        return given == "Basic " + base64.b64encode(":".join(self._login).encode()).decode()

    def _is_right(self, given: dict[str, str]) -> bool:
        """Whether a Digest is that of its login, by an algorithm that it asks for."""
        algorithm = given.get("algorithm", "MD5")
        if self._login is None or not any(f"algorithm={algorithm}" in one for one in self.challenges):
            return False

        def hashed(*texts: str) -> str:
            return hashlib.new(algorithm.replace("-", ""), ":".join(texts).encode()).hexdigest()

        request = hashed("GET", given["uri"])
        return given["response"] == hashed(
            hashed(self._login[0], given["realm"], self._login[1]),
            given["nonce"], given["nc"], given["cnonce"], given["qop"], request,
        )  # fmt: skip

    def _send_pictures(self, answer: BaseHTTPRequestHandler) -> None:
        answer.send_response(200)
        answer.send_header("Content-Type", self.bare or "multipart/x-mixed-replace; boundary=next")
        answer.end_headers()
        number = 0
        while not self._closing.wait(0 if self._fed else 1 / self.fps):
            if answer.connection not in self._open:
                return
            if self.stalled:
                continue
            if self._endless:
                answer.wfile.write(b"X-Filler: %s\r\n" % (b"a" * 500))
                continue
            file = self._next(number)
            if file is None:
                continue
            if answer.connection not in self._open:
                self.pictures.put(file)
                return
            number += 1
            if self.bare is not None:
                answer.wfile.write(file)
                continue
            head = f"--next\r\nContent-Type: {self.part_type}\r\nContent-Length: {len(file)}\r\n\r\n"
            answer.wfile.write(head.encode())
            answer.wfile.write(file + b"\r\n")

    def _next(self, number: int) -> bytes | None:
        if not self._fed:
            return jpeg(number % 1000, *self.size)
        try:
            return self.pictures.get(timeout=0.05)
        except queue.Empty:
            return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are what these tests are about."""


def _handler(camera: HttpCamera) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            camera.connections += 1
            if camera._redirect is not None:
                self.send_response(302)
                self.send_header("Location", camera._redirect)
                self.end_headers()
            elif not camera._allowed(self.headers.get("Authorization")):
                self.send_response(401)
                for challenge in camera.challenges:
                    self.send_header("WWW-Authenticate", challenge)
                self.end_headers()
            elif camera._folder is not None:
                self._send_file(camera._folder / Path(self.path).name)
            else:
                camera._open.add(self.connection)
                try:
                    camera._send_pictures(self)
                finally:
                    camera._open.discard(self.connection)

        def _send_file(self, path: Path) -> None:
            if not path.is_file():
                self.send_error(404)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(path.read_bytes())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged."""

    return Handler
