"""The places of a service's files in the folder, relative to each other as they are now, so that paths stay true."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from pipelines.errors import DefinitionError
from pipelines.plugins.modelfiles import is_remote
from streamer.build.uses import FileUsed
from streamer.definition.naming import default_name

_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


@dataclass(slots=True)
class Layout:
    """Files and folders with their places below `service/`."""

    service_file: Path
    files: dict[Path, PurePosixPath] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Files that are not copied, each with a hint what to do."""

    @property
    def folder(self) -> PurePosixPath:
        """The place of the service file's folder."""
        return self.files[self.service_file].parent


def laid_out(service_file: Path, used: Iterable[FileUsed], modules: Mapping[str, Path]) -> Layout:
    """The layout of a service file, of the files that its parts name, and of its modules, which go beside it.

    Raises `DefinitionError` for a file that is not there.
    """
    layout = Layout(_normal(service_file))
    paths = [layout.service_file]
    for file in used:
        if is_remote(file.name):
            layout.notes.append(f"{file.part}: {file.name} is fetched when the service starts")
            continue
        name = file.name.removeprefix("file://").removeprefix("file:")
        if Path(name).expanduser().is_absolute():
            layout.notes.append(f"{file.part}: {name} is an absolute path and is not copied; mount it there")
            continue
        path = _normal(file.base / name)
        if not path.exists():
            raise DefinitionError(f"{file.part}: {path} is not there, so it cannot be copied")
        paths += [path, *_weights(path)]
    root = Path(os.path.commonpath([path.parent for path in paths]))
    if root == layout.service_file.parent and default_name(layout.service_file) != layout.service_file.stem:
        # The service's name, and so its consumer group, comes from its folder: keep that folder.
        root = root.parent
    layout.files.update((path, PurePosixPath(path.relative_to(root).as_posix())) for path in paths)
    for place in modules.values():
        layout.files[_normal(place)] = layout.folder / place.name
    return layout


def copied(layout: Layout, target: Path) -> list[str]:
    """Copy the files of the layout into `target`. Returns the paths of all files below it, sorted."""
    for source, place in layout.files.items():
        goal = target / place
        goal.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, goal, dirs_exist_ok=True, ignore=_LEFT_OUT)
        else:
            shutil.copy(source, goal)
    return sorted(file.relative_to(target).as_posix() for file in target.rglob("*") if file.is_file())


def _weights(model: Path) -> list[Path]:
    """Files that belong to a model by their name: `model.onnx.data`, `model.onnx_data`."""
    if not model.is_file():
        return []
    return [file for file in sorted(model.parent.glob(f"{model.name}[._]*")) if file.is_file()]


def _normal(path: Path) -> Path:
    # Links are not resolved: their targets may lie elsewhere.
    return Path(os.path.normpath(path.absolute()))
