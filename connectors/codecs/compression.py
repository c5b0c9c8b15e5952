"""gzip and zstd of untrusted payloads: the output is bounded while it is decompressed."""

from __future__ import annotations

import gzip
import importlib
import zlib
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Final, Protocol

from pipelines.errors import MissingPackageError, WireError

MOST_MEMBERS: Final = 1000
"""Gzip members or zstd frames that one payload may have: empty ones cost time and hold nothing."""
_PIECE: Final = 1 << 16
"""Bytes that the decompressor gets at once: it copies those that follow a member."""
_LARGEST_WINDOW: Final = 23
"""Logarithm of the window that every reader of zstd should support, 8 MiB."""


class Decompressor(Protocol):
    """The common interface of `zlib` and `compression.zstd`: a reader of one member, or frame."""

    @property
    def eof(self) -> bool:
        """Whether the member has ended."""

    @property
    def unused_data(self) -> bytes:
        """The bytes after the member."""

    def decompress(self, data: Any, max_length: int) -> bytes:
        """Decompress `data`. Returns at most `max_length` bytes."""


class Format(ABC):
    """A compression format."""

    name: ClassVar[str]
    """Its name in configurations and in `content-encoding`."""
    magic: ClassVar[bytes]
    """The bytes that payloads in this format begin with."""
    levels: ClassVar[range]
    """The levels of compression that there are."""

    def decompressed(self, payload: bytes, limit: int) -> bytes:
        """The decompressed payload, all members of it one after the other.

        Raises `WireError` for more than `limit` bytes, without decompressing them all, and for data that are damaged,
        incomplete or followed by anything else.
        """
        made: list[bytes] = []
        left, at, members = limit, 0, 0
        view = memoryview(payload)
        while at < len(view) or not members:
            members += 1
            if members > MOST_MEMBERS:
                raise WireError(f"the payload has more than {MOST_MEMBERS} {self.name} members")
            member, begin = self._member(limit), at
            while not member.eof:
                piece = view[at : at + _PIECE]
                if not piece:
                    raise self._refusal(payload, begin, f"the payload ends in the middle of its {self.name} data")
                try:
                    # At least one byte more than is allowed, as 0 would mean any number.
                    data = member.decompress(piece, left + 1)
                except (zlib.error, self._error) as error:
                    message = f"the payload is not valid {self.name} data: {error}"
                    raise self._refusal(payload, begin, message) from None
                left -= len(data)
                if left < 0:
                    raise WireError(
                        f"the payload is more than {limit} bytes when decompressed; "
                        "raise max_size of the codec if such payloads are expected"
                    )
                made.append(data)
                at += len(piece) - len(member.unused_data)
        return made[0] if len(made) == 1 else b"".join(made)

    @abstractmethod
    def compressed(self, payload: bytes, level: int | None) -> bytes:
        """The payload in this format; `level` is one of `levels`, `None` the usual one."""

    @abstractmethod
    def _member(self, limit: int) -> Decompressor:
        """A reader of one member; `limit` is the largest size of the decompressed payload."""

    @property
    def _error(self) -> type[Exception]:
        """The exception that the reader raises for damaged data."""
        return zlib.error

    def _refusal(self, payload: bytes, begin: int, message: str) -> WireError:
        """The error of the data from `begin` on: `message` if a member begins there, else that other bytes follow."""
        if begin and not payload.startswith(self.magic, begin):
            message = (
                f"{len(payload) - begin} bytes follow the {self.name} data of the payload, and are not {self.name}"
            )
        return WireError(message)


class Gzip(Format):
    """RFC 1952, by `zlib`."""

    name = "gzip"
    magic = b"\x1f\x8b\x08"
    levels = range(10)

    def compressed(self, payload: bytes, level: int | None) -> bytes:
        # Without a time the same payload always makes the same bytes.
        return gzip.compress(payload, 6 if level is None else level, mtime=0)

    def _member(self, limit: int) -> Decompressor:
        return zlib.decompressobj(wbits=31)


class Zstd(Format):
    """RFC 8878, by `compression.zstd` of Python 3.14 or its backport."""

    name = "zstd"
    magic = b"\x28\xb5\x2f\xfd"
    levels = range(1, 23)

    def compressed(self, payload: bytes, level: int | None) -> bytes:
        made: bytes = self._library.compress(payload, level)
        return made

    def _member(self, limit: int) -> Decompressor:
        # A few bytes can ask for a window of gigabytes.
        window = max(_LARGEST_WINDOW, min(limit.bit_length(), 30))
        decompressor: Decompressor = self._library.ZstdDecompressor(
            options={self._library.DecompressionParameter.window_log_max: window}
        )
        return decompressor

    @property
    def _error(self) -> type[Exception]:
        error: type[Exception] = self._library.ZstdError
        return error

    @cached_property
    def _library(self) -> Any:
        for name in ("compression.zstd", "backports.zstd"):
            try:
                return importlib.import_module(name)
            except ImportError:
                continue
        raise MissingPackageError("backports.zstd", "zstd", "payloads that are compressed with zstd")


FORMATS: Final[dict[str, Format]] = {form.name: form for form in (Gzip(), Zstd())}
"""The formats by their names."""


def detected(payload: bytes) -> Format | None:
    """The format that a payload begins as; `None` if it is not compressed."""
    return next((form for form in FORMATS.values() if payload.startswith(form.magic)), None)
