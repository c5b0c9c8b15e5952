"""Downloads of `jgo` that were cut short: it takes half a file in its cache for a whole one, for ever."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BEGUN = "begun"
_COMPLETE = "complete"


@contextmanager
def finished(folder: Path, repository: Path) -> Iterator[None]:
    """The block downloads into `repository`, and makes `folder` of that; it may be ended at any moment.

    If an earlier one did not come to its end, what it had left is removed before: the whole folder, and each file of
    the repository that is younger than its beginning and not whole.

    Raises:
        OSError: The folder cannot be written.
    """
    if (folder / _COMPLETE).exists():
        yield
        return
    if (folder / _BEGUN).exists():
        _remove_halves(repository, (folder / _BEGUN).stat().st_mtime)
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _BEGUN).touch()
    yield
    (folder / _COMPLETE).touch()


def _remove_halves(repository: Path, since: float) -> None:
    for file in repository.rglob("*"):
        if file.suffix in (".jar", ".pom") and file.stat().st_mtime >= since and not _whole(file):
            file.unlink()


def _whole(file: Path) -> bool:
    if file.suffix == ".jar":
        # The list of contents is at the end of the file.
        return zipfile.is_zipfile(file)
    return file.read_bytes().rstrip().endswith(b"</project>")
