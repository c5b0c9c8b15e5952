"""`look`: a plain request to a camera, whose response explains why libav cannot read it."""

from __future__ import annotations

import email.message
import email.parser
import socket
import ssl
import time
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from connectors.camera.address import Address
from connectors.camera.web.login import Challenges

_SECONDS: Final = 3.0
"""Timeout of one request."""
_MOST: Final = 16_384
"""Bytes of an answer that are read at most."""
_BODY: Final = 1024
"""Bytes of content that are read at most."""
_REDIRECTS: Final = 3
_PORTS: Final = {"http": 80, "https": 443, "rtsp": 554, "rtsps": 322}
_JPEG: Final = b"\xff\xd8\xff"


class CameraAnswer(NamedTuple):
    """The beginning of an HTTP or RTSP response."""

    status: int
    headers: email.message.Message
    body: bytes
    """The beginning of the content."""
    path: str
    """The path and query of the last request, after redirects."""
    redirected: bool = False

    @property
    def challenges(self) -> Challenges:
        """The authentication schemes that the camera offers."""
        return Challenges.of(self.headers.get_all("WWW-Authenticate", []) if self.status == 401 else [])

    @property
    def is_page(self) -> bool:
        """Whether it is a web page."""
        begin = self.body.removeprefix(b"\xef\xbb\xbf").lstrip()[:15].lower()
        return self.headers.get_content_type() == "text/html" or begin.startswith((b"<!doctype html", b"<html"))

    @property
    def holds_jpegs(self) -> bool:
        """Whether it is a stream of JPEG pictures, in parts or just one after the other."""
        if self.headers.get_content_maintype() == "multipart":
            return _JPEG in self.body
        return self.body.startswith(_JPEG) and "Content-Length" not in self.headers


def look(address: Address, patience: float) -> CameraAnswer | None:
    """The beginning of the answer to a request without login; `None` if there is none within `patience` seconds."""
    deadline = time.monotonic() + min(patience, _SECONDS)
    url = address.target
    for _ in range(_REDIRECTS):
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            return None
        try:
            answer = _asked(parts, deadline)
        except (OSError, ValueError):
            return None
        onward = answer.headers.get("Location") if 300 <= answer.status < 400 else None
        if onward is None:
            return answer._replace(redirected=url != address.target)
        url = urljoin(url, onward)
    return None


def _asked(parts: SplitResult, deadline: float) -> CameraAnswer:
    host, path = parts.hostname or "", (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    port = parts.port or _PORTS[parts.scheme]
    rtsp = parts.scheme.startswith("rtsp")
    place = parts.netloc.rpartition("@")[2]
    request = (
        f"DESCRIBE {parts.scheme}://{place}{path} RTSP/1.0\r\nCSeq: 1\r\nAccept: application/sdp\r\n\r\n"
        if rtsp
        else f"GET {path} HTTP/1.1\r\nHost: {place}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection((host, port), _left(deadline)) as plain:
        connection = _secured(plain, host) if parts.scheme in ("https", "rtsps") else plain
        with connection:
            connection.sendall(request.encode("latin-1"))
            received = b""
            while len(received) < _MOST:
                head, end, body = received.partition(b"\r\n\r\n")
                if end and (rtsp or len(body) >= _BODY):
                    break
                try:
                    connection.settimeout(_left(deadline))
                    more = connection.recv(4096)
                except TimeoutError:
                    break
                if not more:
                    break
                received += more
    head, end, body = received.partition(b"\r\n\r\n")
    first, _, rest = head.partition(b"\r\n")
    words = first.split()
    if not end or len(words) < 2 or not words[1].isdigit():
        raise ValueError("no answer")
    headers = email.parser.HeaderParser().parsestr(rest.decode("latin-1"))
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        body = body.partition(b"\r\n")[2]
    return CameraAnswer(int(words[1]), headers, body, path)


def _secured(plain: socket.socket, host: str) -> socket.socket:
    # Cameras sign for themselves, and libav does not look at it either. Nothing secret is sent.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname=host)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
