"""Fetches models into the cache: the one way, from web servers and object stores.

`pipelines.plugins.modelfiles` defines fetchers, and finds those here by the name of this module.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, cast

import stamina
from anyio.from_thread import start_blocking_portal

from connectors.models import http, stores
from connectors.models.cache import CACHE_VARIABLE, FetchError, RemoteModel
from connectors.models.content import Opener, PassingError
from connectors.stores.filesystems import PACKAGES
from connectors.units import seconds, size_in_bytes
from pipelines.plugins.requirements import NOTHING, Requirement

LIMIT_VARIABLE: Final = "STREAMER_MODEL_LIMIT"
"""Environment variable: the largest model that is fetched, `16GiB`."""

TIMEOUT_VARIABLE: Final = "STREAMER_MODEL_TIMEOUT"
"""Environment variable: how long fetching a model may take altogether, `1h`."""

_LIMIT: Final = "8GiB"
_TIMEOUT: Final = "1h"
_MIB: Final = 1 << 20
_WINDOW: Final = 60.0
"""Seconds between two checks of the transfer rate."""
_LEAST: Final = 64 << 10
"""The fewest bytes between two checks."""
_ATTEMPTS: Final = 4
_SAID_EVERY: Final = 2.0
"""Seconds between two lines about progress."""
_FORGOTTEN: Final = 86400.0
"""Age in seconds above which a partial file counts as left by a process that died."""

_log = logging.getLogger(__name__)

Progress = Callable[[str], None]


class Fetcher:
    """Fetches URLs of some schemes once; `#sha256=...` at a URL's end is the file's checksum.

    A file is cached under its whole URL (without the checksum), for ever: a model that changes needs another URL, or
    another checksum, by which it is fetched again. Credentials in the URL and its query are not shown. An attempt with
    a transient error is repeated. An empty file is no model.
    """

    def __init__(
        self,
        schemes: tuple[str, ...],
        opened: Opener,
        requires: Requirement = NOTHING,
        *,
        uses_identity: bool = False,
    ) -> None:
        self.schemes = schemes
        self.requires = requires
        """The package that opens these URLs."""
        self.uses_identity = uses_identity
        """Whether it logs in as this machine or user."""
        self._opened = opened

    def cached(self, uri: str) -> Path | None:
        """The file if it is in the cache, with the right checksum.

        Raises `MissingPackageError` if it is not, and cannot be fetched for lack of a package.
        """
        model = RemoteModel.of(uri)
        if model.cached():
            return model.file
        self.requires.check(str(model))
        return None

    def fetch(self, uri: str, progress: Progress | None = None) -> Path:
        """The file, from the cache if it is there.

        Raises `FetchError` if the server does not send it, sends it too slowly (less than 64 KiB a minute) or not
        within `STREAMER_MODEL_TIMEOUT` (1 h, all attempts together), if it is larger than `STREAMER_MODEL_LIMIT` (8
        GiB), or has another checksum than the URL. Raises `MissingPackageError` for lack of a package.
        """
        if (path := self.cached(uri)) is not None:
            return path
        model = RemoteModel.of(uri)
        deadline = time.monotonic() + _timeout()
        try:
            # In a thread of its own: an event loop may run here already, as in a notebook.
            with start_blocking_portal() as portal:
                portal.call(_fetched, model, self._opened, progress, deadline)
        except OSError as error:
            raise FetchError(
                f"{model}: {error}; is there room, and leave to write? {CACHE_VARIABLE} sets another folder"
            ) from error
        return model.file


HTTP = Fetcher(http.SCHEMES, http.opened)
S3 = Fetcher(("s3",), stores.opened, PACKAGES["s3"], uses_identity=True)
GS = Fetcher(("gs",), stores.opened, PACKAGES["gs"], uses_identity=True)
AZ = Fetcher(("az",), stores.opened, PACKAGES["az"], uses_identity=True)
HF = Fetcher(("hf",), stores.opened, PACKAGES["hf"], uses_identity=True)


async def _fetched(model: RemoteModel, opened: Opener, progress: Progress | None, deadline: float) -> None:
    retries = stamina.retry_context(PassingError, attempts=_ATTEMPTS, timeout=None, wait_jitter=0.3)
    async for attempt in retries:
        with attempt:
            await _in_time(_Download(model, opened, progress), deadline)


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
                    f"{download.model} is not here after {_timeout():g} s, {download.received} bytes of it are; set "
                    f'{TIMEOUT_VARIABLE} to a longer time, or download it and set "modelUri" to its path'
                )
            if download.received - before < _LEAST:
                raise FetchError(
                    f"{download.model}: the server sends it too slowly, {download.received - before} bytes in "
                    f"{_WINDOW:g} s; check the address and the network, or download it and set "
                    '"modelUri" to its path'
                )
    finally:
        task.cancel()


class _Download:
    """One attempt."""

    def __init__(self, model: RemoteModel, opened: Opener, progress: Progress | None) -> None:
        self.model = model
        self._opened = opened
        self.received = 0
        """Received bytes of the file."""
        self._expected: int | None = None
        self._progress = progress
        self._tell_at = 0.0

    async def run(self) -> None:
        model = self.model
        model.file.parent.mkdir(parents=True, exist_ok=True)
        _remove_forgotten(model.file.parent)
        async with self._opened(model) as content:
            self._expected = content.size
            self._check_size(self._expected or 0)
            # Beside its final place, so that it can be moved there atomically. A temporary file could be read by this
            # user only.
            part = model.file.with_name(f"{secrets.token_hex(8)}.part")
            try:
                await self._write(content.blocks, part)
                part.replace(model.file)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        _log.info("%s: fetched %.1f MiB to %s", model, self.received / _MIB, model.file)

    async def _write(self, blocks: AsyncIterator[bytes], part: Path) -> None:
        digest = hashlib.sha256()
        with part.open("xb") as file:
            async for block in blocks:
                self.received += len(block)
                self._check_size(self.received)
                file.write(block)
                digest.update(block)
                self._tell()
            _check(self.model, self.received, self._expected, digest.hexdigest())
            file.flush()
            os.fsync(file.fileno())

    def _check_size(self, size: int) -> None:
        limit = _limit()
        if size > limit:
            raise FetchError(
                f"{self.model} has {size} bytes or more, {limit} are allowed; set {LIMIT_VARIABLE}={_LIMIT} or larger"
            )

    def _tell(self) -> None:
        now = time.monotonic()
        if now < self._tell_at:
            return
        self._tell_at = now + _SAID_EVERY
        of = "" if self._expected is None else f" of {self._expected / _MIB:.1f}"
        text = f"{self.received / _MIB:.1f}{of} MiB"
        _log.info("fetching %s: %s", self.model, text)
        if self._progress is not None:
            self._progress(f"fetching {self.model.file.name}: {text}")


def _check(model: RemoteModel, received: int, expected: int | None, digest: str) -> None:
    if not received and not expected:
        raise FetchError(f'{model}: the server sends an empty answer; check "modelUri"')
    if expected is not None and received != expected:
        raise PassingError(f"{model}: only {received} of {expected} bytes arrived; check the network")
    if model.digest is not None and digest != model.digest:
        raise FetchError(f"{model} has the SHA-256 {digest}, not {model.digest}; it is another file: do not use it")


def _limit() -> int:
    return cast(int, _setting(LIMIT_VARIABLE, _LIMIT, size_in_bytes))


def _timeout() -> float:
    return cast(float, _setting(TIMEOUT_VARIABLE, _TIMEOUT, seconds))


def _setting(variable: str, default: str, read: Callable[[object], object]) -> object:
    try:
        return read(os.environ.get(variable) or default)
    except ValueError as error:
        raise FetchError(f"the environment variable {variable}: {error}") from None


def _remove_forgotten(folder: Path) -> None:
    for part in folder.glob("*.part"):
        try:
            if time.time() - part.stat().st_mtime > _FORGOTTEN:
                part.unlink()
        except FileNotFoundError:  # another process was first
            continue
