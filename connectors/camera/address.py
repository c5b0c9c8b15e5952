"""`Address`: a camera's URL, read: how it is opened, whether it is live, and how it is shown without its login."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

_GENERATED: Final = "lavfi:"
_GENERATOR: Final = re.compile(r"([a-z0-9]+)(=[A-Za-z0-9_=:.#x/-]*)?")
_GENERATORS: Final = frozenset(
    [
        "allrgb",
        "allyuv",
        "color",
        "colorchart",
        "colorspectrum",
        "gradients",
        "haldclutsrc",
        "mandelbrot",
        "mptestsrc",
        "nullsrc",
        "pal100bars",
        "pal75bars",
        "perlin",
        "rgbtestsrc",
        "sierpinski",
        "smptebars",
        "smptehdbars",
        "testsrc",
        "testsrc2",
        "yuvtestsrc",
        "zoneplate",
    ]
)
"""Filters of libavfilter that generate pictures without input. Others could read any file: `movie`, and `life` and
`cellauto`, which may begin with the content of one."""
_SAID_IN_PATH: Final = re.compile(r"(?i)((?:pass(?:word)?|pwd|token|secret|key)=)([^&/;_]*)")
"""Some cameras take their login in the path: /user=admin&password=1234&channel=1."""
_MASK: Final = "**********"
_PROTOCOLS: Final[Mapping[str, str]] = {
    "udp": "udp",
    "rtp": "rtp,udp",
    "rtmp": "rtmp,tcp",
    "rtmps": "rtmps,tls,tcp",
    "srt": "srt,udp",
}
"""The protocols that libav needs for a stream of this scheme."""
_MISSPELT: Final = re.compile(r"(?i)(rtsps?|https?|rtmps?|udp|rtp|srt)(//|:/(?!/))")
_SCHEMES: Final = ("rtsp", "rtsps", "http", "https", "file", *_PROTOCOLS)


class Kind(Enum):
    """The kind of camera or file that is read."""

    RTSP = "rtsp"
    HTTP = "http"
    """MJPEG, HLS, or any other format that libav knows."""
    STREAM = "stream"
    """A pushed stream: UDP and RTP to a port of this machine, RTMP and SRT from a server."""
    DEVICE = "device"
    FILE = "file"
    FOLDER = "folder"
    GENERATED = "lavfi"


@dataclass(frozen=True)
class Address:
    """The address of a camera. `target` may hold a login and is never shown; `shown` may be."""

    kind: Kind
    target: str = field(repr=False)
    """The URL or path that PyAV opens."""
    shown: str
    """The URL without user name, password and query, for people."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Parts of `target` that may not be shown, the longest first."""
    format: str | None = None
    """The libav format, where it has to be named; `None`: libav detects it."""

    @property
    def live(self) -> bool:
        """Whether pictures come at their own time, and are lost if they are not read then; a file is read at any
        time. What `may_be_recorded` is taken for live before it is open."""
        return self.kind not in (Kind.FILE, Kind.FOLDER)

    @property
    def may_be_recorded(self) -> bool:
        """Whether the URL may be a film or a playlist, which only the answer shows."""
        return self.kind is Kind.HTTP

    @property
    def host(self) -> str | None:
        """The host to connect to; `None` for a file, folder or device."""
        return urlsplit(self.shown).hostname if self.kind in (Kind.RTSP, Kind.HTTP, Kind.STREAM) else None

    @property
    def scheme(self) -> str:
        """The scheme of its URL, in lower case; empty if it has none."""
        return self.shown.partition("://")[0].lower() if "://" in self.shown else ""

    @property
    def is_sent_here(self) -> bool:
        """Whether this machine listens, and nobody is connected to."""
        return self.scheme in ("udp", "rtp")

    @property
    def has_login(self) -> bool:
        """Whether a user name is sent to the camera."""
        return self.host is not None and urlsplit(self.target).username is not None

    @property
    def path(self) -> Path | None:
        """The file or folder to read; `None` for other kinds."""
        return None if self.live else Path(self.target)

    @property
    def place(self) -> Path | None:
        """The file, folder or device of this machine to read; `None` for other kinds."""
        return Path(self.target) if self.kind is Kind.DEVICE else self.path

    @property
    def options(self) -> Mapping[str, str]:
        """The options of libav, unless the user sets others: opening is quick, and no protocol is allowed that is not
        needed."""
        if self.kind is Kind.RTSP:
            return _QUICK | {"rtsp_transport": "tcp", "protocol_whitelist": "rtsp,rtp,tcp,udp,tls"}
        if self.kind is Kind.HTTP:
            # Without `file`: a redirect or a playlist must not read this machine's files.
            return _QUICK | {"protocol_whitelist": "http,https,tcp,tls,httpproxy,crypto"}
        if self.kind is Kind.STREAM:
            # A burst that is longer than the buffer costs pictures, and does not end the stream.
            kept = {"overrun_nonfatal": "1"} if self.is_sent_here else {}
            return _QUICK | kept | {"protocol_whitelist": _PROTOCOLS[self.scheme]}
        return {"protocol_whitelist": "file"} if self.kind is Kind.FILE else {}

    def scrubbed(self, text: str) -> str:
        """The text, such as an error of libav, without this address's URL and login."""
        text = text.replace(self.target, self.shown) if self.target != self.shown else text
        for secret in self.secrets:
            text = text.replace(secret, _MASK)
        return text


# By default libav probes the stream for 5 s, to find parameters that the camera announces anyway. The probed packets
# (from a key frame on, as a rule) are kept: with `nobuffer` the first picture would be that of the next key frame,
# which may be seconds away.
_QUICK: Final = {"fpsprobesize": "0", "analyzeduration": "200000", "probesize": "65536"}


def address(url: str, base: Path | None = None, username: str | None = None, password: str | None = None) -> Address:
    """The address of `url`; a relative path is relative to `base`. `username` and `password` are put into the URL.

    Raises `ValueError` if it is not the URL of a camera; the error does not show the URL.
    """
    if not url.strip():
        raise ValueError(f"the URL is empty; there are {_known()}")
    if url.startswith(_GENERATED):
        return _generated(url.removeprefix(_GENERATED))
    if url.startswith("/dev/video"):
        return Address(Kind.DEVICE, url, url, format="v4l2")
    misspelt = _MISSPELT.match(url)
    if misspelt is not None:
        raise ValueError(f"the URL lacks a part of ://; write {misspelt[1].lower()}://HOST/PATH")
    scheme = url.partition(":")[0].lower() if "://" in url or url.startswith("file:") else ""
    if scheme and scheme not in _SCHEMES:
        raise ValueError(f'"{scheme}" is not a kind of camera; there are {_known()}')
    if scheme in ("", "file"):
        return _local(unquote(re.sub("^file:(//)?", "", url)) if scheme else url, base)
    return _remote(url, scheme, username, password)


def _remote(url: str, scheme: str, username: str | None = None, password: str | None = None) -> Address:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(
            f"the {scheme} URL cannot be read; a password that has / ? # @ or % belongs into `password`"
        ) from None
    if not host and scheme in ("udp", "rtp"):
        # As players write it: udp://@:5000.
        return _remote(urlunsplit(parts._replace(netloc=f"0.0.0.0:{parts.netloc.rpartition(':')[2]}")), scheme)
    if not host:
        raise ValueError(f"the {scheme} URL has no host: write {scheme}://HOST/PATH")
    if scheme in ("udp", "rtp") and parts.port is None:
        raise ValueError(f"the {scheme} URL has no port: write {scheme}://0.0.0.0:PORT, to which pictures are sent")
    login, _, place = parts.netloc.rpartition("@")
    if "@" in parts.fragment or ("@" in parts.path and (login or scheme.startswith("rtsp"))):
        # The password would be taken for a host and a path, and shown as these.
        raise ValueError(
            f"the {scheme} URL has an @ behind its host; a password that has / ? # @ or % belongs into `password`, "
            "and an @ of the path is written %40"
        )
    if username is not None:
        if login:
            raise ValueError("there is a login in the URL, and another in `username`; leave one of them out")
        login = quote(username, safe="") + (":" + quote(password, safe="") if password else "")
    target = urlunsplit((scheme, f"{login}@{place}" if login else place, parts.path, parts.query, ""))
    shown = urlunsplit((scheme, place, _SAID_IN_PATH.sub(r"\1" + _MASK, parts.path), "", ""))
    said = [match[2] for match in _SAID_IN_PATH.finditer(parts.path)]
    kind = Kind.RTSP if scheme.startswith("rtsp") else Kind.STREAM if scheme in _PROTOCOLS else Kind.HTTP
    return Address(kind, target, shown, _secrets(login, parts.query, said))


def _secrets(login: str, query: str, said: list[str]) -> tuple[str, ...]:
    parts = [*said, login, *login.split(":", 1), query, *(pair.partition("=")[2] for pair in query.split("&"))]
    forms = {form for part in parts for form in (part, unquote(part))}
    # A shorter secret may be a part of harmless words.
    return tuple(sorted((form for form in forms if len(form) >= 4), key=len, reverse=True))


def _local(text: str, base: Path | None) -> Address:
    path = Path(text).expanduser()
    path = path if base is None else base / path
    if not path.exists() and text.isdecimal():
        raise ValueError(f"a camera of this machine is named by its device: write /dev/video{text}")
    if "*" in text and not path.exists():
        raise ValueError(
            "there are no patterns: name a folder, whose pictures are read, or each film as a camera of its own"
        )
    return Address(Kind.FOLDER if path.is_dir() else Kind.FILE, str(path), str(path))


def _generated(graph: str) -> Address:
    match = _GENERATOR.fullmatch(graph)
    if match is None or match[1] not in _GENERATORS:
        raise ValueError(
            "lavfi: makes test pictures, as in lavfi:testsrc2=size=640x360:rate=10, by "
            f"{', '.join(sorted(_GENERATORS))}"
        )
    return Address(Kind.GENERATED, graph, _GENERATED + graph, format="lavfi")


def _known() -> str:
    return (
        "rtsp://, rtsps://, http://, https://, udp://, rtp://, rtmp://, srt://, /dev/video0, a file, "
        "a folder of pictures, and lavfi:testsrc2"
    )
