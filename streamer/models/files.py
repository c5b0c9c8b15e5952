"""`ModelFiles`: the files of a pipeline's models, and whether they have changed."""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pipelines import Pipeline
from pipelines.definitions.walk import walk
from pipelines.errors import StreamerError
from pipelines.plugins.modelfiles import is_remote
from pipelines.plugins.versionfolders import model_in, versions_in
from pipelines.runners.runner import OpenContext

MOST_FILES: Final = 10_000
"""How many files of one model are looked at."""


class State(NamedTuple):
    """What there is at a moment. Files of equal states have not changed, as far as that shows without reading them."""

    versions: Mapping[Path, int]
    """The current version of each model in version folders, by the folder that holds these."""
    marks: tuple[Hashable, ...]

    @property
    def label(self) -> str:
        """The numbers of the versions, in the order of the steps; empty without version folders."""
        return "-".join(str(number) for number in self.versions.values())


class ModelFiles:
    """Looks at names, sizes, times and inodes of files, through links: a platform such as Kubernetes swaps links."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Raises `DefinitionError` for a definition in another file that is wrong."""
        self.paths = list(dict.fromkeys(_paths(pipeline)))
        """The files and folders that the steps name, without those behind URLs."""

    def look(
        self,
        version: int | None = None,
        without: Collection[int] = (),
        refused: Collection[tuple[Path, int]] = (),
    ) -> State:
        """What there is now; of a file or folder that is not there, that it is not.

        Of a model in version folders it is the version of this number, if any model has that, else the highest that is
        not in `without`, nor in `refused` with its folder. A number that no model has is the current one all the same:
        opening it says that it is not there.
        """
        versions: dict[Path, int] = {}
        marks: list[Hashable] = []
        there = {
            path: [number for number in versions_in(path) if model_in(path / str(number), folder=True)]
            for path in self.paths
        }
        nowhere = version is not None and not any(version in whole for whole in there.values())
        for path, whole in there.items():
            # One of several models may have no version of the number.
            others = (
                whole
                if version is not None
                else [number for number in whole if number not in without and (path, number) not in refused]
            )
            current = version if version in whole or (nowhere and whole) else next(iter(others), None)
            if current is not None:
                versions[path] = current
            marks.append((current, *_mark(path if current is None else path / str(current))))
        return State(versions, tuple(marks))

    def check(self, version: int) -> None:
        """Raise `StreamerError` if no model has a version of this number."""
        there = {path: versions_in(path) for path in self.paths}
        if any(version in numbers and model_in(path / str(version), folder=True) for path, numbers in there.items()):
            return
        known = "; ".join(
            f"{path} has {', '.join(map(str, sorted(numbers)))}" for path, numbers in there.items() if numbers
        )
        raise StreamerError(f"there is no version {version}; {known or 'no model is in version folders'}")


def _paths(pipeline: Pipeline) -> Iterator[Path]:
    for part in walk(pipeline):
        uri = getattr(part.what, "model_uri", None)
        if isinstance(uri, str) and uri and not is_remote(uri):
            yield OpenContext(base=part.base).path(uri)


def _mark(path: Path) -> Iterator[Hashable]:
    yield _file(path)
    count = 0
    for folder, folders, names in os.walk(path, followlinks=True):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > MOST_FILES:
                return
            file = Path(folder, name)
            yield str(file.relative_to(path)), _file(file)


def _file(path: Path) -> Hashable:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
