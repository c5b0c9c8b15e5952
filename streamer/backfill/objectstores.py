"""`ObjectStore`: files behind `s3://`, `gs://`, `az://` and `hf://`."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final, TypeVar, cast
from urllib.parse import urlsplit

from connectors.stores.filesystems import LOGINS, PACKAGES, filesystem, shown
from pipelines.errors import RAISED, DefinitionError, StreamerError
from streamer.backfill.patterns import Pattern
from streamer.backfill.places import Place, StoredFile

Result = TypeVar("Result")

_BLOCK: Final = 4 << 20
"""Bytes that are asked for at once where fewer are read: the footers of Parquet and lines, not its columns."""
_STAMPS: Final = ("ETag", "etag", "blob_id", "mtime", "LastModified", "last_modified")
"""What stores say of a version of a file, the best first."""
_READ_ONLY: Final = frozenset({"hf"})


class ObjectStore(Place):
    """The files of a store, for any threads of a process.

    A file that is written is in a temporary one of this machine until it is whole. So nothing of it is in the store
    until then, not even what stores keep of an upload that nobody ends.
    """

    def __init__(self, scheme: str) -> None:
        """`scheme` is one of `PACKAGES`. Raises `MissingPackageError` if its package is not installed."""
        PACKAGES[scheme].check(f"{scheme}://")
        self._scheme = scheme
        self._files: Any = self._asked(f"{scheme}://", "opened", lambda: filesystem(scheme))

    def absolute(self, location: str) -> str:
        url = location.rstrip("/")
        store = url.partition("://")[2].partition("/")[0]
        if not store:
            raise DefinitionError(f'"{location}" names no bucket; a URL is {self._scheme}://BUCKET/FOLDER')
        if "@" in store:
            raise DefinitionError(
                f"{urlsplit(url).scheme}://{store.rpartition('@')[2]}: a URL with a user or password opens no store; "
                f"remove them, and give this machine credentials: {LOGINS[self._scheme]}"
            )
        return url

    def is_folder(self, path: str) -> bool:
        return bool(self._asked(path, "listed", lambda: self._files.isdir(_key(path))))

    def matching(self, pattern: Pattern) -> Iterator[StoredFile]:
        base = _key(pattern.base)
        if not base:
            raise DefinitionError(f"{'/'.join((pattern.base, *pattern.rest))}: name the bucket without * and {{}}")
        listed = self._asked(pattern.base, "listed", lambda: self._listed(base, pattern))
        matches = pattern.matcher()
        for name, about in sorted(listed.items()):
            relative = name.removeprefix(f"{base}/")
            if _is_file(about) and matches(relative):
                yield StoredFile(f"{self._scheme}://{name}", relative, about["size"], _stamp(about))

    def open(self, path: str) -> BinaryIO:
        def opened() -> Any:
            return self._files.open(_key(path), "rb", block_size=_BLOCK, cache_type="readahead")

        file = self._asked(path, "read", opened)
        return cast(BinaryIO, _Content(file, lambda call: self._asked(path, "read", call)))

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        self._check_written(path)
        with tempfile.TemporaryFile() as file:
            yield cast(BinaryIO, file)
            file.flush()
            # It has no name, so that it goes with its process, however that ends.
            self._asked(path, "written", lambda: self._files.put_file(f"/dev/fd/{file.fileno()}", _key(path)))

    def remove(self, path: str) -> None:
        def removed() -> None:
            with suppress(FileNotFoundError):
                self._files.rm_file(_key(path))

        self._asked(path, "removed", removed)

    def names(self, folder: str) -> list[str]:
        listed = self._asked(folder, "listed", lambda: self._beside(_key(folder)))
        return sorted(name.rpartition("/")[2] for name, about in listed.items() if _is_file(about))

    def clean(self, folder: str) -> None:
        """Nothing: a writer that was ended has left nothing."""

    @contextmanager
    def lock(self, folder: str) -> Iterator[None]:
        """Stores have no locks that end with their process. Two writers do the same work, each file of it whole."""
        self._check_written(folder)
        yield

    def _listed(self, base: str, pattern: Pattern) -> Mapping[str, Any]:
        """The files among which those of the pattern are, by their names. One request lists 1,000 of any folders."""
        # Hugging Face's library keeps lists, whatever it is told.
        self._files.invalidate_cache()
        if not pattern.wild:
            with suppress(FileNotFoundError):
                about = self._files.info(f"{base}/{pattern.rest[0]}")
                return {about["name"]: about}
        if pattern.is_of_one_folder and (beside := self._beside(base)):
            return beside
        # It raises an error if there is no bucket, and none if there is no such folder.
        return cast(Mapping[str, Any], self._files.find(base, detail=True))

    def _beside(self, folder: str) -> Mapping[str, Any]:
        """What is in a folder; nothing if it is not there."""
        try:
            return {about["name"]: about for about in self._files.ls(folder, detail=True)}
        except FileNotFoundError:
            return {}

    def _check_written(self, path: str) -> None:
        if self._scheme in _READ_ONLY:
            raise DefinitionError(
                f"{path}: the Hugging Face Hub takes a commit for each file, and few of them in an hour; choose a "
                "folder of this machine or a store as the output, and then: hf upload"
            )

    def _asked(self, url: str, done: str, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except RAISED as error:
            remedy = f"check the network, the credentials of this machine ({LOGINS[self._scheme]}) and what they may do"
            if isinstance(error, FileNotFoundError):
                remedy = "check the names of bucket and folder"
            # A traceback would show what is masked here.
            raise StreamerError(f"{url} cannot be {done}: {shown(error)}; {remedy}") from None


class _Content(io.RawIOBase):
    """A file of a store, whose library's errors are `StreamerError`s."""

    def __init__(self, file: Any, asked: Callable[[Callable[[], bytes]], bytes]) -> None:
        self._file = file
        self._asked = asked

    def read(self, size: int | None = -1, /) -> bytes:
        return self._asked(lambda: self._file.read(-1 if size is None else size))

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


def _key(url: str) -> str:
    """Bucket and path of a URL. Without its scheme no library reads a chain of URLs in it."""
    return url.partition("://")[2]


def _is_file(about: Mapping[str, Any]) -> bool:
    # Some tools make an empty object for a folder.
    return about["type"] == "file" and not about["name"].endswith("/")


def _stamp(about: Mapping[str, Any]) -> str:
    return next((str(about[name]) for name in _STAMPS if about.get(name)), "")
