"""Fetches models over HTTP, into a cache that all services of a user share.

The core asks for it by entry point (group `streamer.model_fetchers`); `pipelines.plugins.modelfiles` says what a
fetcher is.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import stamina

from connectors.units import seconds, size_in_bytes
from pipelines.errors import StreamerError
from pipelines.plugins.modelfiles import shortened

if TYPE_CHECKING:
    from urllib.error import HTTPError
    from urllib.request import OpenerDirector

CACHE_VARIABLE: Final = "STREAMER_CACHE"
"""Environment variable: the folder of the cache."""
LIMIT_VARIABLE: Final = "STREAMER_MODEL_LIMIT"
"""Environment variable: the largest model that is fetched, `16GiB`."""

TIMEOUT_VARIABLE: Final = "STREAMER_MODEL_TIMEOUT"
"""Environment variable: how long fetching a model may take altogether, `1h`."""

_LIMIT: Final = "8GiB"
_TIMEOUT: Final = "1h"
_CHUNK: Final = 1 << 20
_SILENCE: Final = 30.0
"""Seconds without a byte after which a server is given up."""
_WINDOW: Final = 60.0
"""Seconds after each of which it is looked how much has come."""
_LEAST: Final = 64 << 10
"""Bytes that have to come in each of them."""
_ATTEMPTS: Final = 4
_SAID_EVERY: Final = 2.0
"""Seconds between two lines about progress."""
_FORGOTTEN: Final = 86400.0
"""Age in seconds from which a part of a file is a process's that died."""
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses that may be another a moment later."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HOST: Final = re.compile(r"[^\s/?#\x00-\x20\x7f]+")
_KEPT: Final = "%/:=&?~#+!$,;'@()*[]"
"""What `quote` leaves alone besides letters and digits: what means something in a URL, and what is quoted already."""

_log = logging.getLogger(__name__)

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
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local") / "streamer" / "Cache"
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "streamer"
    return Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "streamer"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise FetchError(f"this user has no home to keep models in; {CACHE_VARIABLE} sets a folder") from error


class HttpFetcher:
    """Fetches `http:` and `https:` URLs once; `#sha256=...` at a URL's end says what the file must be.

    A file is kept under its whole URL (less that ending), for ever: a model that changes gets another URL, or
    another checksum, which makes it be fetched again. Credentials in the URL are sent as basic authentication; they and
    the query are not shown. An attempt that fails in passing is repeated. Redirects lead to `http:` and `https:` only,
    and not from the second to the first. An answer that is empty, a web page or packed is no model.
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

        Raises `FetchError` if the server does not give it, gives it in drips (less than 64 KiB a minute) or not within
        `STREAMER_MODEL_TIMEOUT` (1 h, all attempts together), if it is larger than `STREAMER_MODEL_LIMIT` (8 GiB), or
        not what the URL says it must be.
        """
        found = self.cached(uri)
        if found is not None:
            return found
        place = _Place.of(uri)
        deadline = time.monotonic() + _timeout()
        try:
            for attempt in stamina.retry_context(_PassingError, attempts=_ATTEMPTS, timeout=None, wait_jitter=0.3):
                with attempt:
                    transfer = _Transfer()
                    _in_time(place, partial(_download, place, progress, transfer), transfer, deadline)
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
        shown = f"the model {shortened(uri)}"
        try:
            parts = urlsplit(uri)
            host, port = parts.hostname, parts.port
            credentials, _, netloc = parts.netloc.rpartition("@")
            netloc = netloc if netloc.isascii() else netloc.encode("idna").decode()
        except ValueError:
            # Its text may hold the password.
            raise FetchError(f'{shown}: this is no URL; is host:port as it should be? "modelUri" says it') from None
        if not host or not _HOST.fullmatch(host) or port == 0:
            raise FetchError(f'{shown}: the URL names no host; "modelUri" is a path or a whole URL')
        # What has to be quoted is, what is already stays as it is.
        path, query = quote(parts.path or "/", safe=_KEPT), quote(parts.query, safe=_KEPT)
        url = urlunsplit((parts.scheme, netloc, path, query, ""))
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
        return f"the model {shortened(self.url)}"


@dataclass(slots=True)
class _Transfer:
    """One attempt, as two threads see it."""

    received: int = 0
    abandoned: bool = False
    """Nobody waits for it any more."""


def _in_time(place: _Place, attempt: Callable[[], None], transfer: _Transfer, deadline: float) -> None:
    """Run the attempt in a thread of its own and watch what it receives.

    The client library has limits on silence only, and a server may drip headers as well as bytes. An attempt that was
    given up ends when it next receives a part of the file.
    """
    done: Future[None] = Future()

    def work() -> None:
        try:
            attempt()
            done.set_result(None)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=work, name="fetching a model", daemon=True).start()
    while True:
        before = transfer.received
        wait([done], max(0.0, min(_WINDOW, deadline - time.monotonic())))
        if done.done():
            return done.result()
        if time.monotonic() >= deadline:
            transfer.abandoned = True
            raise FetchError(
                f"{place} is not here after {_timeout():g} s, {transfer.received} bytes of it are; set "
                f'{TIMEOUT_VARIABLE} to a longer time, or download it and set "modelUri" to its path'
            )
        if transfer.received - before < _LEAST:
            transfer.abandoned = True
            raise FetchError(
                f"{place}: the server gives it in drips, {transfer.received - before} bytes in {_WINDOW:g} s; check "
                'the address and the network, or download it and set "modelUri" to its path'
            )


def _download(place: _Place, progress: Progress | None, transfer: _Transfer) -> None:
    limit = _limit()
    place.file.parent.mkdir(parents=True, exist_ok=True)
    _remove_forgotten(place.file.parent)
    with _answer(place) as answer:
        length = answer.headers.get("Content-Length")
        expected = int(length) if length is not None and length.isdecimal() else None
        if expected is not None and expected > limit:
            raise _too_large(place, expected, limit)
        _check_kind(place, answer.headers)
        # Beside its final place, so that it gets there at once and whole. A temporary file would be for this user only.
        part = place.file.with_name(f"{secrets.token_hex(8)}.part")
        try:
            with part.open("xb") as file:
                teller = _Teller(place, expected, progress)
                received, digest = _received(answer, file.write, place, limit, expected, teller, transfer)
                _check(place, received, expected, digest)
                file.flush()
                os.fsync(file.fileno())
            part.replace(place.file)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    _log.info("%s: fetched %.1f MiB to %s", place, received / _CHUNK, place.file)


@contextmanager
def _answer(place: _Place) -> Iterator[Any]:
    from http.client import HTTPException, InvalidURL, responses
    from urllib.error import HTTPError, URLError
    from urllib.request import Request

    # The schemes are ours to choose: `schemes`.
    request = Request(place.url, headers={"User-Agent": "streamer", "Accept-Encoding": "identity"})  # noqa: S310
    if place.authorization is not None:
        # Not sent on to where the server redirects to.
        request.add_unredirected_header("Authorization", place.authorization)
    try:
        with _opener(place).open(request, timeout=_SILENCE) as answer:
            yield answer
    except HTTPError as error:
        kind = _PassingError if error.code in _PASSING else FetchError
        # In words of our own: the server's may hold anything.
        said = f"{error.code} {responses.get(error.code, '')}".strip()
        raise kind(f'{place}: the server says {said}{_why(error)}; check "modelUri"') from None
    except (InvalidURL, UnicodeError) as error:
        raise FetchError(f'{place}: this is no URL ({error}); check "modelUri"') from None
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = error.reason if isinstance(error, URLError) else error or type(error).__name__
        raise _PassingError(f"{place} cannot be fetched: {reason}; check the address and the network") from error


def _opener(place: _Place) -> OpenerDirector:
    from urllib.request import HTTPRedirectHandler, build_opener

    class Redirects(HTTPRedirectHandler):
        def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
            parts = urlsplit(newurl)
            known = parts.scheme in HttpFetcher.schemes and (req.type, parts.scheme) != ("https", "http")
            if known and "@" not in parts.netloc:
                return super().redirect_request(req, fp, code, msg, headers, newurl)
            raise FetchError(
                f"{place}: the server sends to {shortened(newurl)}; redirects are followed to http and https, not from "
                'https to http, and without a password; check "modelUri"'
            )

    return build_opener(Redirects)


def _why(error: HTTPError) -> str:
    if error.code not in _REDIRECTS:
        return ""
    return " again and again" if "infinite loop" in str(error.reason) else " and sends to what is not followed"


def _check_kind(place: _Place, headers: Any) -> None:
    packed = headers.get("Content-Encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise FetchError(f"{place}: the server packs it ({packed}), which is not read here; serve it as it is")
    if headers.get_content_type() == "text/html" and place.digest is None:
        raise FetchError(
            f"{place}: the server gives a web page instead, perhaps one to log in; check the address and its "
            "credentials (a model that is served as text/html needs #sha256=...)"
        )


def _received(
    answer: Any,
    write: Callable[[bytes], Any],
    place: _Place,
    limit: int,
    expected: int | None,
    teller: _Teller,
    transfer: _Transfer,
) -> tuple[int, str]:
    digest = hashlib.sha256()
    received = 0
    # What there is rather than a whole block, so that it is known how much comes. A server that keeps the connection
    # open is not waited for.
    while (expected is None or received < expected) and (block := answer.read1(_CHUNK)):
        if transfer.abandoned:
            raise FetchError(f"{place} was given up")
        received += len(block)
        transfer.received = received
        if received > limit:
            raise _too_large(place, received, limit)
        write(block)
        digest.update(block)
        teller.tell(received)
    return received, digest.hexdigest()


def _check(place: _Place, received: int, expected: int | None, digest: str) -> None:
    if not received and not expected:
        raise FetchError(f'{place}: the server gives nothing; check "modelUri"')
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


def _timeout() -> float:
    text = os.environ.get(TIMEOUT_VARIABLE) or _TIMEOUT
    try:
        return cast(float, seconds(text))
    except ValueError as error:
        raise FetchError(f"the environment variable {TIMEOUT_VARIABLE}: {error}") from None


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
