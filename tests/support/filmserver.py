"""An HTTP server of a folder's files for tests, with the faults that servers of films have."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class FilmServer:
    """Serves the files of a folder at `url`; a context manager. Its attributes take effect at once."""

    def __init__(self, folder: Path, *, ranges: bool = True, lengths: bool = True) -> None:
        self.ranges = ranges
        """Whether parts of a file can be asked for."""
        self.lengths = lengths
        """Whether it tells the length of a file."""
        self.cuts: dict[str, float] = {}
        """By the name of a file: the part of it behind which the connection breaks."""
        self.cut_for = 1
        """How often it breaks; from then on the file is whole."""
        self.missing: set[str] = set()
        """Names of files that it says it does not have."""
        self.away = False
        """Whether it has nothing at all at present."""
        self.asked: Counter[str] = Counter()
        """How often each path was asked for."""
        self._server = _Server(("127.0.0.1", 0), partial(_handler(self), directory=str(folder)))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """The URL of the folder."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may go before it has all."""


def _handler(films: FilmServer) -> type[SimpleHTTPRequestHandler]:
    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            films.asked[self.path] += 1
            path = Path(self.translate_path(self.path))
            if films.away or path.name in films.missing or not path.is_file():
                self.send_error(503 if films.away else 404)
                return
            content = path.read_bytes()
            begin = self._first_byte() if films.ranges else 0
            if begin >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if films.ranges and "Range" in self.headers else 200)
            if films.ranges:
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
            if films.lengths:
                self.send_header("Content-Length", str(len(content) - begin))
            else:
                self.send_header("Connection", "close")
            self.send_header("Content-Type", self.guess_type(path))
            self.end_headers()
            cut = int(films.cuts[path.name] * len(content)) if path.name in films.cuts else len(content)
            if begin > cut or not films.cut_for:
                cut = len(content)
            self.wfile.write(content[begin:cut])
            films.cut_for -= cut < len(content)

        def _first_byte(self) -> int:
            return int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged."""

    return Handler
