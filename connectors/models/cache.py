"""The cache of fetched models, which all services of a user share, and the place of a model in it."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import platformdirs

from pipelines.errors import StreamerError
from pipelines.plugins.modelfiles import shortened

CACHE_VARIABLE: Final = "STREAMER_CACHE"
"""Environment variable: the folder of the cache."""

_HOST: Final = re.compile(r"[^\s\x00-\x20\x7f]+")


class FetchError(StreamerError):
    """A model could not be fetched."""


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


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model's URL, taken apart. As a text it shows no secrets."""

    url: str
    """The URL without user, password and checksum."""
    login: str
    """User and password as the URL has them, `user:p%40ss`; empty for none."""
    digest: str | None
    """The SHA-256 that the file must have, in lower case; `None` if the URL gives none."""
    file: Path
    """The path of the file in the cache."""

    @classmethod
    def of(cls, uri: str) -> RemoteModel:
        """Take a URL apart. Raises `FetchError` if it is malformed."""
        shown = f"the model {shortened(uri)}"
        try:
            parts = urlsplit(uri)
            host, port = parts.hostname, parts.port
        except ValueError:
            # Its text may hold the password.
            raise FetchError(f'{shown}: this is not a URL; is host:port as it should be? "modelUri" says it') from None
        if not host or not _HOST.fullmatch(host) or port == 0:
            raise FetchError(f'{shown}: the URL names no host; "modelUri" is a path or a whole URL')
        digest = None
        if parts.fragment:
            match = re.fullmatch(r"sha256=([0-9a-fA-F]{64})", parts.fragment)
            if match is None:
                raise FetchError(f'{shown}: "#{parts.fragment}" is not #sha256= and 64 hexadecimal digits')
            digest = match[1].lower()
        login, _, netloc = parts.netloc.rpartition("@")
        url = parts._replace(netloc=netloc, fragment="").geturl()
        # The name is kept, because libraries detect formats by its suffix.
        name = re.sub(r"[^A-Za-z0-9._-]", "_", unquote(parts.path).rpartition("/")[2])[-100:].lstrip(".") or "model"
        key = hashlib.sha256(url.encode()).hexdigest()[:32]
        return cls(url, login, digest, cache_folder() / "models" / key / name)

    def cached(self) -> bool:
        """Whether the file is in the cache, with the right checksum."""
        if not self.file.is_file():
            return False
        if self.digest is None:
            return True
        with self.file.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.digest

    def __str__(self) -> str:
        return f"the model {shortened(self.url)}"
