"""The working directory and the folders of service files: places to import from, or not."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def import_from_here(*files: Path, no_code: bool = False) -> bool:
    """Allow imports from the working directory and the folders of these files, after all installed modules; not with
    `no_code`, or where the environment refuses code.

    Returns whether code may run.

    The packages of streamer are imported first, so that a user's folder `connectors` does not hide one of them, also in
    editable installations, whose import hook comes after the path.
    """
    from streamer.definition.nocode import code_allowed

    if no_code or not code_allowed():
        import_nothing_from_here()
        return False
    for package in ("protos", "pipelines", "connectors", "streamer"):
        importlib.import_module(package)
    for folder in (Path.cwd(), *(file.absolute().parent for file in files)):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    return True


def import_nothing_from_here() -> None:
    """Remove the working directory from `sys.path`, where `python -m streamer` puts it first.

    It stays if it holds the packages of streamer.
    """
    here, ours = Path.cwd(), Path(__file__).parents[2]
    sys.path[:] = [folder for folder in sys.path if Path(folder or ".").absolute() != here or here == ours]
