"""Fetches models over HTTP, into a cache that all services of a user share.

The core asks for it by entry point (group `streamer.model_fetchers`); `pipelines.modelfiles` says what a fetcher is.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit, urlunsplit

import stamina

from connectors.units import size_in_bytes
from pipelines.errors import StreamerError

CACHE_VARIABLE: Final = "STREAMER_CACHE"
"""Environment variable: the folder of the cache."""
LIMIT_VARIABLE: Final = "STREAMER_MODEL_LIMIT"
"""Environment variable: the largest model that is fetched, `16GiB`."""

_LIMIT: Final = "8GiB"
_CHUNK: Final = 1 << 20
_SILENCE: Final = 30.0
"""Seconds without a byte after which a server is given up."""
_ATTEMPTS: Final = 4
_SAID_EVERY: Final = 2.0
"""Seconds between two lines about progress."""
_FORGOTTEN: Final = 86400.0
"""Age in seconds from which a part of a file is a process's that died."""
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses that may be another a moment later."""

_log = logging.getLogger(__name__)

Progress = Callable[[str], None]


class FetchError(StreamerError):
    """A model could not be fetched."""


class _PassingError(FetchError):
    """Another attempt may succeed."""


def cache_folder() -> Path:
    """The folder of the cache: `STREAMER_CACHE`, else the user's own for caches of this platform."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "streamer" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "streamer"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamer"


class HttpFetcher:
    """Fetches `http:` and `https:` URLs once; `#sha256=...` at a URL's end says what the file must be.

    A file is kept under its whole URL (less that ending), for ever: a model that changes gets another URL, or
    another checksum, which makes it be fetched again. Credentials in the URL are sent as basic authentication; they and
    the query are not shown. An attempt that fails in passing is repeated.
    """

    schemes: Final = ("http", "https")

    def cached(self, uri: str) -> Path | None:
        """The file if it is in the cache, and what the URL says it must be."""
        place = _Place.of(uri)
        if not place.file.is_file() or (place.digest is not None and _digest(place.file) != place.digest):
            return None
        return place.file

    def fetch(self, uri: str, progress: Progress | None = None) -> Path:
        """The file, from the cache if it is there.

        Raises `FetchError` if the server does not give it, it is larger than `STREAMER_MODEL_LIMIT` (8 GiB), or it
        is not what the URL says it must be.
        """
        found = self.cached(uri)
        if found is not None:
            return found
        place = _Place.of(uri)
        try:
            for attempt in stamina.retry_context(_PassingError, attempts=_ATTEMPTS, timeout=None, wait_jitter=0.3):
                with attempt:
                    _download(place, progress)
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
    """What is asked for: without fragment and credentials."""
    authorization: str | None
    digest: str | None
    file: Path
    """Where it is kept."""

    @classmethod
    def of(cls, uri: str) -> _Place:
        parts = urlsplit(uri)
        credentials, _, host = parts.netloc.rpartition("@")
        url = urlunsplit((parts.scheme, host, parts.path or "/", parts.query, ""))
        shown = f"the model {parts.scheme}://{host}{parts.path}"
        if not host:
            raise FetchError(f'{shown}: the URL names no host; "modelUri" is a path or a whole URL')
        digest = None
        if parts.fragment:
            found = re.fullmatch(r"sha256=([0-9a-fA-F]{64})", parts.fragment)
            if found is None:
                raise FetchError(f'{shown}: "#{parts.fragment}" is not #sha256= and 64 hexadecimal digits')
            digest = found[1].lower()
        authorization = None
        if credentials:
            authorization = "Basic " + base64.b64encode(unquote(credentials).encode()).decode()
        # The name is kept, because libraries tell formats by its ending.
        name = re.sub(r"[^A-Za-z0-9._-]", "_", unquote(parts.path).rpartition("/")[2])[-100:].lstrip(".") or "model"
        key = hashlib.sha256(url.encode()).hexdigest()[:32]
        return cls(url, authorization, digest, cache_folder() / "models" / key / name)

    def __str__(self) -> str:
        return f"the model {self.url.partition('?')[0]}"


def _download(place: _Place, progress: Progress | None) -> None:
    limit = _limit()
    place.file.parent.mkdir(parents=True, exist_ok=True)
    _remove_forgotten(place.file.parent)
    with _answer(place) as answer:
        length = answer.headers.get("Content-Length")
        expected = int(length) if length is not None and length.isdecimal() else None
        if expected is not None and expected > limit:
            raise _too_large(place, expected, limit)
        # Beside its final place, so that it gets there at once and whole.
        with tempfile.NamedTemporaryFile(dir=place.file.parent, suffix=".part", delete=False) as part:
            try:
                received, digest = _received(answer, part.write, place, limit, _Teller(place, expected, progress))
                _check(place, received, expected, digest)
                part.flush()
                os.fsync(part.fileno())
                part.close()
                Path(part.name).replace(place.file)
            except BaseException:
                part.close()
                Path(part.name).unlink(missing_ok=True)
                raise
    _log.info("%s: fetched %.1f MiB to %s", place, received / _CHUNK, place.file)


@contextmanager
def _answer(place: _Place) -> Iterator[Any]:
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    # The schemes are ours to choose: `schemes`.
    request = Request(place.url, headers={"User-Agent": "streamer", "Accept-Encoding": "identity"})  # noqa: S310
    if place.authorization is not None:
        # Not sent on to where the server redirects to.
        request.add_unredirected_header("Authorization", place.authorization)
    try:
        with urlopen(request, timeout=_SILENCE) as answer:  # noqa: S310
            yield answer
    except HTTPError as error:
        kind = _PassingError if error.code in _PASSING else FetchError
        raise kind(f'{place}: the server says {error.code} {error.reason}; check "modelUri"') from error
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = error.reason if isinstance(error, URLError) else error or type(error).__name__
        raise _PassingError(f"{place} cannot be fetched: {reason}; check the address and the network") from error


def _received(
    answer: Any, write: Callable[[bytes], Any], place: _Place, limit: int, teller: _Teller
) -> tuple[int, str]:
    digest = hashlib.sha256()
    received = 0
    while block := answer.read(_CHUNK):
        received += len(block)
        if received > limit:
            raise _too_large(place, received, limit)
        write(block)
        digest.update(block)
        teller.tell(received)
    return received, digest.hexdigest()


def _check(place: _Place, received: int, expected: int | None, digest: str) -> None:
    if expected is not None and received != expected:
        raise _PassingError(f"{place}: only {received} of {expected} bytes arrived; check the network")
    if place.digest is not None and digest != place.digest:
        raise FetchError(f"{place} has the SHA-256 {digest}, not {place.digest}; it is another file: do not use it")


class _Teller:
    """Says how far a download is, every few seconds."""

    def __init__(self, place: _Place, expected: int | None, progress: Progress | None) -> None:
        self._place = place
        self._of = "" if expected is None else f" of {expected / _CHUNK:.1f}"
        self._progress = progress
        self._next = 0.0

    def tell(self, received: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _SAID_EVERY
        text = f"{received / _CHUNK:.1f}{self._of} MiB"
        _log.info("fetching %s: %s", self._place, text)
        if self._progress is not None:
            self._progress(f"fetching {self._place.file.name}: {text}")


def _limit() -> int:
    text = os.environ.get(LIMIT_VARIABLE) or _LIMIT
    try:
        return cast(int, size_in_bytes(text))
    except ValueError as error:
        raise FetchError(f"the environment variable {LIMIT_VARIABLE}: {error}") from None


def _too_large(place: _Place, size: int, limit: int) -> FetchError:
    return FetchError(f"{place} has {size} bytes or more, {limit} are allowed; set {LIMIT_VARIABLE}={_LIMIT} or larger")


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
