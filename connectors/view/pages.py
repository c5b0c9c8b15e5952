"""The HTTP answers of the sink `view`: its page, one stream of all cameras, and pictures of one."""

from __future__ import annotations

import hmac
import json
import math
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs

from connectors.http.exchange import Answer, HttpRequest
from connectors.http.hosts import host_of, is_loopback
from connectors.view.board import Board, Form
from connectors.view.filepart import file_part

HEARTBEAT: Final = 1.0
"""Seconds after which a stream sends the next status, to show the cameras' states and that it is alive itself."""
FIRST: Final = 10.0
"""Seconds to wait for a single picture."""
BOUNDARY: Final = "picture"
SCRIPTS: Final = ("view.js", "arrange.js", "camera.js", "drawing.js", "events.js", "stream.js", "words.js")
"""The scripts of the page."""
_FILES: Final = {
    "": ("index.html", "text/html; charset=utf-8"),
    **{name: (name, "text/javascript; charset=utf-8") for name in SCRIPTS},
    "view.css": ("view.css", "text/css; charset=utf-8"),
}
_EVENT: Final = re.compile(r"events/([0-9]{1,15})\.jpg")
_CLIP: Final = re.compile(r"clips/([0-9]{1,15})")
_SAFE: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob: data:; frame-ancestors 'none'",
}


class Pages:
    """Answers requests. With a token all requests need it, except for the page itself, which holds no data."""

    def __init__(
        self,
        board: Board,
        title: str,
        token: str | None,
        states: Callable[[], Mapping[str, Any]],
        places: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """`title` is the title of the page; `states` returns all cameras' states, also without a picture; `places` are
        zones and lines, as `places_of` gives them."""
        self._board = board
        self._title = title
        self._token = token
        self._states = states
        self._places = places

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
        asked = _Asked(request.query)
        if name == "stream":
            form = self._board.form(boxes=False, width=asked.width)
            watching = partial(_all, self._board, asked, form, self._status)
            return Answer(200, b"", "application/octet-stream", stream=watching)
        if (picture := _EVENT.fullmatch(name)) is not None:
            jpeg = self._board.events.jpeg(int(picture[1]))
            return _refused(404, "this event is not kept any more") if jpeg is None else Answer(200, jpeg, "image/jpeg")
        if (clip := _CLIP.fullmatch(name)) is not None:
            path = self._board.events.clip_file(int(clip[1]))
            answer = None if path is None else file_part(path, str(request.headers.get("Range", "")))
            return _refused(404, "this clip is not kept any more") if answer is None else answer
        form = self._board.form(boxes=asked.boxes, width=asked.width)
        camera, _, ending = "/".join(request.parts).rpartition(".")
        if camera not in self._board.cameras() or ending not in ("jpg", "mjpeg"):
            known = ", ".join(f"/{name}.jpg" for name in self._board.cameras())
            return _refused(404, f"there are /, /stream, and of each camera /NAME.jpg and /NAME.mjpeg; now: {known}")
        if ending == "jpg":
            return Answer(200, b"", "image/jpeg", stream=partial(_first_picture, self._board, camera, form))
        kind = f"multipart/x-mixed-replace; boundary={BOUNDARY}"
        return Answer(200, b"", kind, stream=partial(_moving, self._board, camera, form))

    def _status(self, *, first: bool) -> bytes:
        status: dict[str, Any] = {"title": self._title, "cameras": self._board.cameras(), "states": self._states()}
        if first:
            status["places"] = self._places
        return json.dumps(status, ensure_ascii=False).encode("utf-8", "replace")

    def _is_trusted(self, request: HttpRequest) -> bool:
        if self._token is None:
            return True
        scheme, _, given = str(request.headers.get("Authorization", "")).partition(" ")
        if scheme.lower() != "bearer":
            given = parse_qs(request.query).get("token", [""])[-1]
        return hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token.encode())


class _Asked:
    """The query of a request."""

    def __init__(self, query: str) -> None:
        fields = {name: values[-1] for name, values in parse_qs(query).items()}
        self.boxes = fields.get("boxes") != "0"
        """Whether boxes are to be drawn into the pictures."""
        self.width = int(width) if re.fullmatch(r"[0-9]{1,5}", width := fields.get("width", "")) else None
        """How wide the browser shows pictures, in pixels."""
        self.camera = fields.get("camera")
        """The only camera whose pictures are wanted."""
        self._after = fields.get("after", "")

    def revision(self, run: str) -> int:
        """The revision of the events that the browser has, of the log of this run: `after=RUN-REVISION`."""
        match = re.fullmatch(rf"{re.escape(run)}-([0-9]{{1,15}})", self._after)
        return 0 if match is None else int(match[1])


async def _all(board: Board, asked: _Asked, form: Form, status: Callable[..., bytes]) -> AsyncGenerator[bytes, None]:
    """All cameras, or one: pieces of a JSON object and a JPEG file, each with its length before it (4 bytes,
    big-endian).

    A piece without a picture is the status, `{"title": ..., "cameras": [...], "states": {...}}`, in the first one also
    `places`, or new events: `{"run": ..., "revision": ..., "oldest": ..., "events": [...]}`.
    """
    revision = asked.revision(board.events.run)
    with board.watched(asked.camera, form) as watcher:
        last_heartbeat = -math.inf
        while True:
            if time.monotonic() - last_heartbeat >= HEARTBEAT:
                yield _piece(status(first=last_heartbeat == -math.inf))
                last_heartbeat = time.monotonic()
            if (news := board.events.since(revision)) is not None:
                revision = news["revision"]
                yield _piece(json.dumps(news, ensure_ascii=False).encode("utf-8", "replace"))
            for frame in await board.news(watcher, HEARTBEAT):
                yield _piece(frame.facts, frame.jpeg)


async def _moving(board: Board, camera: str, form: Form) -> AsyncGenerator[bytes, None]:
    """One camera as MJPEG, for browsers and players: JPEG files that replace one another."""
    with board.watched(camera, form) as watcher:
        while True:
            for frame in await board.news(watcher, HEARTBEAT):
                head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(frame.jpeg)}\r\n\r\n"
                yield head.encode() + frame.jpeg + b"\r\n"


async def _first_picture(board: Board, camera: str, form: Form) -> AsyncGenerator[bytes, None]:
    with board.watched(camera, form) as watcher:
        for frame in await board.news(watcher, FIRST):
            yield frame.jpeg


def _piece(facts: bytes, jpeg: bytes = b"") -> bytes:
    return b"".join((len(facts).to_bytes(4), facts, len(jpeg).to_bytes(4), jpeg))


def _refused(status: int, why: str) -> Answer:
    body: Mapping[str, str] = {"error": why}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return Answer(status, json.dumps(body, ensure_ascii=False).encode(), headers=headers)
