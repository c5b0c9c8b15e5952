"""The HTTP answers of the sink `view`: its page, one stream of all cameras, and pictures of one."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs

from connectors.http.hosts import host_of, is_loopback
from connectors.http.server import Answer, HttpRequest
from connectors.view.board import Board

HEARTBEAT: Final = 1.0
"""Seconds after which a stream sends the next status, to show the cameras' states and that it is alive itself."""
FIRST: Final = 10.0
"""Seconds to wait for a single picture."""
BOUNDARY: Final = "picture"
_FILES: Final = {
    "": ("index.html", "text/html; charset=utf-8"),
    "view.js": ("view.js", "text/javascript; charset=utf-8"),
    "view.css": ("view.css", "text/css; charset=utf-8"),
}
_SAFE: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob: data:; frame-ancestors 'none'",
}


class Pages:
    """Answers requests. With a token all requests need it, except for the page itself, which holds no data."""

    def __init__(self, board: Board, title: str, token: str | None, states: Callable[[], Mapping[str, Any]]) -> None:
        """`title` is the title of the page; `states` returns all cameras' states, also without a picture."""
        self._board = board
        self._title = title
        self._token = token
        self._states = states

    def answer(self, request: HttpRequest) -> Answer:
        """The answer to a request. Called in the server's thread."""
        answer = self._answer(request)
        return Answer(answer.status, answer.body, answer.kind, {**_SAFE, **answer.headers}, answer.stream)

    def _answer(self, request: HttpRequest) -> Answer:
        if self._token is None and ((host := host_of(request)) is None or not is_loopback(host)):
            # DNS rebinding: another site, whose name now points to this address, must not read the pictures.
            return _refused(403, "this page is for this machine only: open it as http://localhost")
        name = request.path.removeprefix("/")
        if name in _FILES:
            file, kind = _FILES[name]
            return Answer(200, (files("connectors.view") / "page" / file).read_bytes(), kind)
        if not self._is_trusted(request):
            return _refused(401, "the token is missing: Authorization: Bearer TOKEN, or ?token=TOKEN")
        if name == "stream":
            return Answer(200, b"", "application/octet-stream", stream=partial(_all, self._board, self._status))
        boxes = parse_qs(request.query).get("boxes", ["1"])[-1] != "0"
        camera, _, ending = "/".join(request.parts).rpartition(".")
        if camera not in self._board.cameras() or ending not in ("jpg", "mjpeg"):
            known = ", ".join(f"/{name}.jpg" for name in self._board.cameras())
            return _refused(404, f"there are /, /stream, and of each camera /NAME.jpg and /NAME.mjpeg; now: {known}")
        if ending == "jpg":
            return Answer(200, b"", "image/jpeg", stream=partial(_first_picture, self._board, camera, boxes))
        kind = f"multipart/x-mixed-replace; boundary={BOUNDARY}"
        return Answer(200, b"", kind, stream=partial(_moving, self._board, camera, boxes))

    def _status(self) -> bytes:
        status = {"title": self._title, "cameras": self._board.cameras(), "states": self._states()}
        return json.dumps(status, ensure_ascii=False).encode("utf-8", "replace")

    def _is_trusted(self, request: HttpRequest) -> bool:
        if self._token is None:
            return True
        scheme, _, given = str(request.headers.get("Authorization", "")).partition(" ")
        if scheme.lower() != "bearer":
            given = parse_qs(request.query).get("token", [""])[-1]
        return hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token.encode())


async def _all(board: Board, status: Callable[[], bytes]) -> AsyncGenerator[bytes, None]:
    """All cameras: pieces of a JSON object and a JPEG file, each with its length before it (4 bytes, big-endian).

    A piece without a picture is the status: `{"title": ..., "cameras": [...], "states": {...}}`.
    """
    with board.watched(None, boxes=False) as watcher:
        last_heartbeat = -HEARTBEAT
        while True:
            if time.monotonic() - last_heartbeat >= HEARTBEAT:
                last_heartbeat = time.monotonic()
                yield _piece(status())
            for frame in await board.news(watcher, HEARTBEAT):
                yield _piece(frame.facts, frame.jpeg)


async def _moving(board: Board, camera: str, boxes: bool) -> AsyncGenerator[bytes, None]:
    """One camera as MJPEG, for browsers and players: JPEG files that replace one another."""
    with board.watched(camera, boxes=boxes) as watcher:
        while True:
            for frame in await board.news(watcher, HEARTBEAT):
                head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(frame.jpeg)}\r\n\r\n"
                yield head.encode() + frame.jpeg + b"\r\n"


async def _first_picture(board: Board, camera: str, boxes: bool) -> AsyncGenerator[bytes, None]:
    with board.watched(camera, boxes=boxes) as watcher:
        for frame in await board.news(watcher, FIRST):
            yield frame.jpeg


def _piece(facts: bytes, jpeg: bytes = b"") -> bytes:
    return b"".join((len(facts).to_bytes(4), facts, len(jpeg).to_bytes(4), jpeg))


def _refused(status: int, why: str) -> Answer:
    body: Mapping[str, str] = {"error": why}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return Answer(status, json.dumps(body, ensure_ascii=False).encode(), headers=headers)
