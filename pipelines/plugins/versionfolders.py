"""Version folders: a folder that holds `1/`, `2/`, ..., each with one version of a model, as for model servers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}")
_SAVED_MODEL: Final = "saved_model.pb"


def versions_in(folder: Path) -> list[int]:
    """The numbers of the versions in a folder, the highest first; other names are ignored. Empty: it holds none."""
    try:
        names = [entry.name for entry in folder.iterdir() if _NUMBER.fullmatch(entry.name) and entry.is_dir()]
    except OSError:
        return []
    return sorted(map(int, names), reverse=True)


def model_in(version: Path, *, folder: bool = False) -> Path | None:
    """The model in the folder of one version; `None` if it holds none, or it is not clear which.

    The file `model.*`, or the only file; with `folder` a SavedModel of TensorFlow is the folder itself.
    """
    try:
        if folder and (version / _SAVED_MODEL).is_file():
            return version
        files = [entry for entry in version.iterdir() if entry.is_file() and not entry.name.startswith(".")]
    except OSError:
        return None
    named = [file for file in files if file.stem == "model"]
    for candidates in (named, files):
        if len(candidates) == 1:
            return candidates[0]
    return None
