"""An RTSP camera for tests: RTP over TCP or UDP, H.264 or H.265, Digest login, RTCP reports, and faults to order."""

from __future__ import annotations

import base64
import hashlib
import random
import re
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Self

from numberedpictures import Clip, clip

_LARGEST = 1200
_TICKS = 90_000
_SINCE_1900 = 2_208_988_800
_REALM = "camera"
_NONCE = "c0ffee"
_VIDEO = 96


class RtspCamera:
    """A camera at `url`, on a free port of this machine; a context manager.

    What it shows is a clip that is repeated: `numberedpictures.number_in` reads a picture's number. The public
    attributes are switches that take effect at once.
    """

    def __init__(
        self,
        codec: str = "h264",
        width: int = 160,
        height: int = 96,
        *,
        fps: float = 20.0,
        login: tuple[str, str] | None = None,
        kind: str = "video",
        redirect: str | None = None,
    ) -> None:
        self.shown: Clip = clip(codec, width, height)
        """The clip; another one is sent at its next key frame."""
        self.fps = fps
        self.challenges = [f'Digest realm="{_REALM}", nonce="{_NONCE}"']
        """What it asks for to log in, a header each."""
        self.stalled = False
        """Sends nothing, and keeps the session."""
        self.trickles = False
        """Sends a piece of a picture at every twentieth, and no whole one."""
        self.refuses = False
        """Closes every new connection."""
        self.freezes = False
        """Sends the same key frame again and again."""
        self.loss = 0.0
        """How many of the RTP packets are lost, 0 to 1."""
        self.clock_error = 0.0
        """Seconds by which its reports are before the time of this machine."""
        self.jump = 0
        """Ticks of 1/90000 s that are added to its timestamps, while reports say nothing about it."""
        self.reports = True
        """Sends RTCP reports."""
        self.sessions = 0
        """How many times it was told to play."""
        self.sent = 0
        """Pictures sent, over all sessions."""
        self.port = 0
        self._login = login
        self._kind = kind
        self._redirect = redirect
        self._closing = threading.Event()
        self._clients: set[socket.socket] = set()
        self._server: socket.socket | None = None

    @property
    def address(self) -> str:
        """Its URL without the login."""
        return f"rtsp://127.0.0.1:{self.port}/live"

    @property
    def url(self) -> str:
        """Its URL, with the login if it wants one."""
        name = "" if self._login is None else ":".join(self._login) + "@"
        return f"rtsp://{name}127.0.0.1:{self.port}/live"

    def __enter__(self) -> Self:
        self._server = socket.create_server(("127.0.0.1", self.port))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self.vanish()

    def vanish(self) -> None:
        """Its machine is gone: nobody listens, and all connections are cut."""
        if self._server is not None:
            # Without the first, the thread in `accept` keeps the port open.
            _cut(self._server)
            self._server = None
        self.drop()

    def return_(self) -> None:
        """It is back, at the same port."""
        self.__enter__()

    def drop(self) -> None:
        """Cut all connections; new ones are taken."""
        for one in list(self._clients):
            _cut(one)

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            if self.refuses:
                connection.close()
                continue
            self._clients.add(connection)
            threading.Thread(target=_Session(self, connection).run, daemon=True).start()


class _Session:
    """One connection to the camera."""

    def __init__(self, camera: RtspCamera, connection: socket.socket) -> None:
        self._camera = camera
        self._socket = connection
        self._reader = connection.makefile("rb")
        self._writing = threading.Lock()
        self._over = threading.Event()
        self._udp: tuple[socket.socket, tuple[str, int]] | None = None

    def run(self) -> None:
        try:
            while self._request():
                pass
        except (OSError, ValueError):
            pass
        finally:
            self._over.set()
            self._camera._clients.discard(self._socket)
            _cut(self._socket)

    def _request(self) -> bool:
        first = self._reader.read(1)
        if first == b"$":
            length = struct.unpack(">xH", self._reader.read(3))[0]
            self._reader.read(length)
            return True
        line = first + self._reader.readline()
        words = line.decode("latin-1").split()
        if len(words) < 2:
            return False
        headers: dict[str, str] = {}
        while text := self._reader.readline().decode("latin-1").strip():
            name, _, value = text.partition(":")
            headers[name.lower()] = value.strip()
        self._answer(words[0], words[1], headers)
        return words[0] != "TEARDOWN"

    def _answer(self, method: str, uri: str, headers: dict[str, str]) -> None:
        camera = self._camera
        number = headers.get("cseq", "0")
        if camera._redirect is not None and method == "DESCRIBE":
            self._say("302 Moved", number, {"Location": camera._redirect})
        elif camera._login is not None and method != "OPTIONS" and not _is_right(camera._login, method, uri, headers):
            challenge = "\r\nWWW-Authenticate: ".join(camera.challenges)
            self._say("401 Unauthorized", number, {"WWW-Authenticate": challenge})
        elif method == "DESCRIBE":
            base = {"Content-Base": camera.address + "/", "Content-Type": "application/sdp"}
            self._say("200 OK", number, base, _described(camera.shown, camera._kind).encode())
        elif method == "SETUP":
            self._set_up(number, headers.get("transport", ""))
        else:
            self._say(
                "200 OK", number, {"Session": "1", "Range": "npt=0-", "Public": "DESCRIBE, SETUP, PLAY, TEARDOWN"}
            )
            if method == "PLAY":
                camera.sessions += 1
                threading.Thread(target=self._play, daemon=True).start()

    def _set_up(self, number: str, transport: str) -> None:
        ports = re.search(r"client_port=(\d+)", transport)
        if ports is None:
            self._say("200 OK", number, {"Transport": "RTP/AVP/TCP;unicast;interleaved=0-1", "Session": "1;timeout=60"})
            return
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        self._udp = udp, ("127.0.0.1", int(ports[1]))
        own = udp.getsockname()[1]
        answer = f"RTP/AVP;unicast;client_port={ports[1]}-{int(ports[1]) + 1};server_port={own}-{own + 1}"
        self._say("200 OK", number, {"Transport": answer, "Session": "1;timeout=60"})

    def _say(self, status: str, number: str, headers: dict[str, str], body: bytes = b"") -> None:
        lines = [f"RTSP/1.0 {status}", f"CSeq: {number}", *(f"{name}: {value}" for name, value in headers.items())]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        with self._writing:
            self._socket.sendall("\r\n".join([*lines, "", ""]).encode() + body)

    def _play(self) -> None:
        try:
            self._send_pictures()
        except OSError:
            pass
        finally:
            _cut(self._socket)
            if self._udp is not None:
                self._udp[0].close()

    def _send_pictures(self) -> None:
        camera = self._camera
        chance = random.Random(7)
        sequence, ticks_at_zero = 1000, 500_000
        began = time.time()
        shown, at, reported = camera.shown, 0, 0.0
        number = 0
        while not (self._over.is_set() or camera._closing.is_set()):
            due = began + number / camera.fps
            if (wait := due - time.time()) > 0:
                self._over.wait(wait)
            number += 1
            ticks = ticks_at_zero + round((due - began) * _TICKS) + camera.jump & 0xFFFFFFFF
            if camera.stalled:
                continue
            if camera.shown is not shown:
                shown, at = camera.shown, 0
            if camera.reports and not camera.jump and due - reported >= 0.5:
                self._send(1, _report(due + camera.clock_error, ticks))
                reported = due
            units = shown.units[0 if camera.freezes else at % len(shown.units)]
            at += 1
            packets = list(_packets(units, shown.codec))
            if camera.trickles:
                packets = [] if number % 20 else [(packets[0][0][:40], False)]
            for payload, last in packets:
                sequence = sequence + 1 & 0xFFFF
                if camera.loss and chance.random() < camera.loss:
                    continue
                head = struct.pack(">BBHII", 0x80, _VIDEO | (0x80 if last else 0), sequence, ticks, 0x5EED)
                self._send(0, head + payload)
            camera.sent += 1

    def _send(self, channel: int, packet: bytes) -> None:
        if self._udp is not None:
            udp, (host, port) = self._udp
            udp.sendto(packet, (host, port + channel))
            return
        with self._writing:
            self._socket.sendall(struct.pack(">BBH", 0x24, channel, len(packet)) + packet)


def _packets(units: list[bytes], codec: str) -> list[tuple[bytes, bool]]:
    """Payloads of RTP packets (RFC 6184, RFC 7798), and whether each is the last of its picture."""
    payloads: list[bytes] = []
    for unit in units:
        if len(unit) <= _LARGEST:
            payloads.append(unit)
            continue
        head = 1 if codec == "h264" else 2
        pieces = [unit[at : at + _LARGEST] for at in range(head, len(unit), _LARGEST)]
        for at, piece in enumerate(pieces):
            edge = (0x80 if at == 0 else 0) | (0x40 if at == len(pieces) - 1 else 0)
            if codec == "h264":
                prefix = bytes([unit[0] & 0xE0 | 28, edge | unit[0] & 31])
            else:
                prefix = bytes([unit[0] & 0x81 | 49 << 1, unit[1], edge | unit[0] >> 1 & 63])
            payloads.append(prefix + piece)
    return [(payload, at == len(payloads) - 1) for at, payload in enumerate(payloads)]


def _report(now: float, ticks: int) -> bytes:
    """An RTCP sender report: at this time the RTP timestamp was `ticks`."""
    since_1900 = now + _SINCE_1900
    fraction = int(since_1900 % 1 * 2**32)
    return struct.pack(">BBHIIIIII", 0x80, 200, 6, 0x5EED, int(since_1900), fraction, ticks, 0, 0)


def _described(shown: Clip, kind: str) -> str:
    lines = ["v=0", "o=- 0 0 IN IP4 127.0.0.1", "s=camera", "t=0 0", "a=control:*"]
    if kind == "audio":
        return "\r\n".join([*lines, "m=audio 0 RTP/AVP 0", "a=rtpmap:0 PCMU/8000", "a=control:sound", ""])
    sets = [base64.b64encode(one).decode() for one in shown.parameters]
    if shown.codec == "h264":
        detail = f"packetization-mode=1;sprop-parameter-sets={','.join(sets)}"
    else:
        detail = ";".join(f"sprop-{name}={one}" for name, one in zip(("vps", "sps", "pps"), sets, strict=True))
    encoding = {"h264": "H264", "h265": "H265"}[shown.codec]
    media = [f"m=video 0 RTP/AVP {_VIDEO}", f"a=rtpmap:{_VIDEO} {encoding}/{_TICKS}", f"a=fmtp:{_VIDEO} {detail}"]
    return "\r\n".join([*lines, *media, "a=control:video", ""])


def _is_right(login: tuple[str, str], method: str, uri: str, headers: dict[str, str]) -> bool:
    given = dict(re.findall(r'(\w+)="([^"]*)"', headers.get("authorization", "")))
    secret = _md5(f"{login[0]}:{_REALM}:{login[1]}")
    return given.get("response") == _md5(f"{secret}:{_NONCE}:{_md5(f'{method}:{uri}')}")


def _md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()
