"""Fetches models over HTTP, into a cache that all services of a user share.

`pipelines.plugins.modelfiles` defines fetchers, and finds the one here by the name of this module.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

import httpx2
import platformdirs
import stamina
from anyio.from_thread import start_blocking_portal

from connectors.units import seconds, size_in_bytes
from pipelines.errors import StreamerError
from pipelines.plugins.modelfiles import shortened

CACHE_VARIABLE: Final = "STREAMER_CACHE"
"""Environment variable: the folder of the cache."""
LIMIT_VARIABLE: Final = "STREAMER_MODEL_LIMIT"
"""Environment variable: the largest model that is fetched, `16GiB`."""

TIMEOUT_VARIABLE: Final = "STREAMER_MODEL_TIMEOUT"
"""Environment variable: how long fetching a model may take altogether, `1h`."""

_LIMIT: Final = "8GiB"
_TIMEOUT: Final = "1h"
_MIB: Final = 1 << 20
_SILENCE: Final = 30.0
"""Seconds without a byte after which a server is given up."""
_WINDOW: Final = 60.0
"""Seconds between two checks of the transfer rate."""
_LEAST: Final = 64 << 10
"""The fewest bytes between two checks."""
_ATTEMPTS: Final = 4
_SAID_EVERY: Final = 2.0
"""Seconds between two lines about progress."""
_FORGOTTEN: Final = 86400.0
"""Age in seconds above which a partial file counts as left by a process that died."""
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses after which a retry may succeed."""
_REDIRECTS: Final = 10
"""The most redirects."""
_HOST: Final = re.compile(r"[^\s/?#\x00-\x20\x7f]+")
_KEPT: Final = "%/:=&?~#+!$,;'@()*[]"
"""Characters besides letters and digits that `quote` keeps: those with a meaning in a URL, and `%` of quoted ones."""

_log = logging.getLogger(__name__)
# httpx2 logs every URL with its query, which may be secret.
logging.getLogger("httpx2").setLevel(logging.WARNING)

Progress = Callable[[str], None]


class FetchError(StreamerError):
    """A model could not be fetched."""


class _PassingError(FetchError):
    """Another attempt may succeed."""


def cache_folder() -> Path:
    """The folder of the cache: `STREAMER_CACHE`, else the user's own for caches of this platform.

    Raises `FetchError` for a user without a home.
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    try:
        return platformdirs.user_cache_path("streamer", appauthor=False)
    except RuntimeError as error:
        raise FetchError(f"this user has no home to keep models in; {CACHE_VARIABLE} sets a folder") from error


class HttpFetcher:
    """Fetches `http:` and `https:` URLs once; `#sha256=...` at a URL's end is the file's checksum.

    A file is cached under its whole URL (without the checksum), for ever: a model that changes needs another URL, or
    another checksum, by which it is fetched again. Credentials in the URL are sent as basic authentication; they and
    the query are not shown. An attempt with a transient error is repeated. Redirects are followed to `http:` and
    `https:` only, and not from `https:` to `http:`. An answer that is empty, a web page or compressed is no model.
    """

    schemes: Final = ("http", "https")

    def cached(self, uri: str) -> Path | None:
        """The file if it is in the cache, with the right checksum."""
        place = _Place.of(uri)
        if not place.file.is_file() or (place.digest is not None and _digest(place.file) != place.digest):
            return None
        return place.file

    def fetch(self, uri: str, progress: Progress | None = None) -> Path:
        """The file, from the cache if it is there.

        Raises `FetchError` if the server does not send it, sends it too slowly (less than 64 KiB a minute) or not
        within `STREAMER_MODEL_TIMEOUT` (1 h, all attempts together), if it is larger than `STREAMER_MODEL_LIMIT` (8
        GiB), or has another checksum than the URL.
        """
        found = self.cached(uri)
        if found is not None:
            return found
        place = _Place.of(uri)
        deadline = time.monotonic() + _timeout()
        try:
            # In a thread of its own: an event loop may run here already, as in a notebook.
            with start_blocking_portal() as portal:
                portal.call(_fetched, place, progress, deadline)
        except OSError as error:
            raise FetchError(
                f"{place}: {error}; is there room, and leave to write? {CACHE_VARIABLE} sets another folder"
            ) from error
        return place.file


HTTP = HttpFetcher()
"""The entry point."""


@dataclass(frozen=True, slots=True)
class _Place:
    url: str
    """The requested URL, without fragment and credentials."""
    credentials: tuple[str, str] | None
    """User and password."""
    digest: str | None
    file: Path
    """The path of the file in the cache."""

    @classmethod
    def of(cls, uri: str) -> _Place:
        shown = f"the model {shortened(uri)}"
        try:
            parts = urlsplit(uri)
            host, port = parts.hostname, parts.port
            credentials, _, netloc = parts.netloc.rpartition("@")
            netloc = netloc if netloc.isascii() else netloc.encode("idna").decode()
        except ValueError:
            # Its text may hold the password.
            raise FetchError(f'{shown}: this is not a URL; is host:port as it should be? "modelUri" says it') from None
        if not host or not _HOST.fullmatch(host) or port == 0:
            raise FetchError(f'{shown}: the URL names no host; "modelUri" is a path or a whole URL')
        # Characters are quoted where necessary; quoted ones stay as they are.
        path, query = quote(parts.path or "/", safe=_KEPT), quote(parts.query, safe=_KEPT)
        url = urlunsplit((parts.scheme, netloc, path, query, ""))
        digest = None
        if parts.fragment:
            found = re.fullmatch(r"sha256=([0-9a-fA-F]{64})", parts.fragment)
            if found is None:
                raise FetchError(f'{shown}: "#{parts.fragment}" is not #sha256= and 64 hexadecimal digits')
            digest = found[1].lower()
        user, _, password = credentials.partition(":")
        login = (unquote(user), unquote(password)) if credentials else None
        # The name is kept, because libraries detect formats by its suffix.
        name = re.sub(r"[^A-Za-z0-9._-]", "_", unquote(parts.path).rpartition("/")[2])[-100:].lstrip(".") or "model"
        key = hashlib.sha256(url.encode()).hexdigest()[:32]
        return cls(url, login, digest, cache_folder() / "models" / key / name)

    def __str__(self) -> str:
        return f"the model {shortened(self.url)}"


async def _fetched(place: _Place, progress: Progress | None, deadline: float) -> None:
    retries = stamina.retry_context(_PassingError, attempts=_ATTEMPTS, timeout=None, wait_jitter=0.3)
    async for attempt in retries:
        with attempt:
            await _in_time(_Download(place, progress), deadline)


async def _in_time(download: _Download, deadline: float) -> None:
    """Watch the transfer rate: the client library limits silence only, and a server may send headers or bytes very
    slowly."""
    task = asyncio.ensure_future(download.run())
    try:
        while True:
            before = download.received
            await asyncio.wait([task], timeout=max(0.0, min(_WINDOW, deadline - time.monotonic())))
            if task.done():
                return task.result()
            if time.monotonic() >= deadline:
                raise FetchError(
                    f"{download.place} is not here after {_timeout():g} s, {download.received} bytes of it are; set "
                    f'{TIMEOUT_VARIABLE} to a longer time, or download it and set "modelUri" to its path'
                )
            if download.received - before < _LEAST:
                raise FetchError(
                    f"{download.place}: the server sends it too slowly, {download.received - before} bytes in "
                    f"{_WINDOW:g} s; check the address and the network, or download it and set "
                    '"modelUri" to its path'
                )
    finally:
        task.cancel()


class _Download:
    """One attempt."""

    def __init__(self, place: _Place, progress: Progress | None) -> None:
        self.place = place
        self.received = 0
        """Received bytes of the file."""
        self._expected: int | None = None
        self._progress = progress
        self._tell_at = 0.0

    async def run(self) -> None:
        place = self.place
        place.file.parent.mkdir(parents=True, exist_ok=True)
        _remove_forgotten(place.file.parent)
        async with _answer(place) as answer:
            length = answer.headers.get("Content-Length", "")
            self._expected = int(length) if length.isdecimal() else None
            self._check_size(self._expected or 0)
            _check_kind(place, answer.headers)
            # Beside its final place, so that it can be moved there atomically. A temporary file could be read by this
            # user only.
            part = place.file.with_name(f"{secrets.token_hex(8)}.part")
            try:
                await self._write(answer, part)
                part.replace(place.file)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        _log.info("%s: fetched %.1f MiB to %s", place, self.received / _MIB, place.file)

    async def _write(self, answer: httpx2.Response, part: Path) -> None:
        digest = hashlib.sha256()
        with part.open("xb") as file:
            try:
                async for block in answer.aiter_raw():
                    self.received += len(block)
                    self._check_size(self.received)
                    file.write(block)
                    digest.update(block)
                    self._tell()
            except httpx2.RemoteProtocolError:
                if self._expected is None:
                    raise
            _check(self.place, self.received, self._expected, digest.hexdigest())
            file.flush()
            os.fsync(file.fileno())

    def _check_size(self, size: int) -> None:
        limit = _limit()
        if size > limit:
            raise FetchError(
                f"{self.place} has {size} bytes or more, {limit} are allowed; set {LIMIT_VARIABLE}={_LIMIT} or larger"
            )

    def _tell(self) -> None:
        now = time.monotonic()
        if now < self._tell_at:
            return
        self._tell_at = now + _SAID_EVERY
        of = "" if self._expected is None else f" of {self._expected / _MIB:.1f}"
        text = f"{self.received / _MIB:.1f}{of} MiB"
        _log.info("fetching %s: %s", self.place, text)
        if self._progress is not None:
            self._progress(f"fetching {self.place.file.name}: {text}")


@asynccontextmanager
async def _answer(place: _Place) -> AsyncIterator[httpx2.Response]:
    said = sender = ""

    async def look(answer: httpx2.Response) -> None:
        nonlocal said, sender
        # The standard phrase of the status: the server's text may hold anything.
        said = f"{answer.status_code} {httpx2.codes.get_reason_phrase(answer.status_code)}".strip()
        if answer.has_redirect_location:
            target = urljoin(str(answer.request.url), answer.headers["Location"])
            _check_redirect(place, str(answer.request.url), target)
            sender = f"from {shortened(target)}, to which its server sends: "
            # Credentials are for the first server only.
            answer.request.headers.pop("Authorization", None)

    client = httpx2.AsyncClient(
        headers={"User-Agent": "streamer", "Accept-Encoding": "identity"},
        timeout=_SILENCE,
        follow_redirects=True,
        max_redirects=_REDIRECTS,
        event_hooks={"response": [look]},
    )
    try:
        async with client, client.stream("GET", place.url, auth=place.credentials) as answer:
            if not answer.is_success:
                kind = _PassingError if answer.status_code in _PASSING else FetchError
                raise kind(f'{place}: the server says {said}; check "modelUri"')
            yield answer
    except httpx2.TooManyRedirects:
        raise FetchError(f'{place}: the server says {said} again and again; check "modelUri"') from None
    except httpx2.InvalidURL as error:
        raise FetchError(f'{place}: this is not a URL ({error}); check "modelUri"') from None
    except httpx2.TransportError as error:
        reason = str(error) or type(error).__name__
        raise _PassingError(
            f"{place} cannot be fetched: {sender}{reason}; check the address and the network"
        ) from error


def _check_redirect(place: _Place, before: str, target: str) -> None:
    schemes = before.partition(":")[0], target.partition(":")[0].lower()
    if schemes[1] not in HttpFetcher.schemes or schemes == ("https", "http") or "@" in urlsplit(target).netloc:
        raise FetchError(
            f"{place}: the server sends to {shortened(target)}; redirects are followed to http and https, not from "
            'https to http, and without a password; check "modelUri"'
        )


def _check_kind(place: _Place, headers: httpx2.Headers) -> None:
    packed = headers.get("Content-Encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise FetchError(f"{place}: the server compresses it ({packed}), which is not read here; serve it as it is")
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() == "text/html" and place.digest is None:
        raise FetchError(
            f"{place}: the server sends a web page instead, perhaps a login page; check the address and its "
            "credentials (a model that is served as text/html needs #sha256=...)"
        )


def _check(place: _Place, received: int, expected: int | None, digest: str) -> None:
    if not received and not expected:
        raise FetchError(f'{place}: the server sends an empty answer; check "modelUri"')
    if expected is not None and received != expected:
        raise _PassingError(f"{place}: only {received} of {expected} bytes arrived; check the network")
    if place.digest is not None and digest != place.digest:
        raise FetchError(f"{place} has the SHA-256 {digest}, not {place.digest}; it is another file: do not use it")


def _limit() -> int:
    return cast(int, _setting(LIMIT_VARIABLE, _LIMIT, size_in_bytes))


def _timeout() -> float:
    return cast(float, _setting(TIMEOUT_VARIABLE, _TIMEOUT, seconds))


def _setting(variable: str, default: str, read: Callable[[object], object]) -> object:
    try:
        return read(os.environ.get(variable) or default)
    except ValueError as error:
        raise FetchError(f"the environment variable {variable}: {error}") from None


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _remove_forgotten(folder: Path) -> None:
    for part in folder.glob("*.part"):
        try:
            if time.time() - part.stat().st_mtime > _FORGOTTEN:
                part.unlink()
        except FileNotFoundError:  # another process was first
            continue
