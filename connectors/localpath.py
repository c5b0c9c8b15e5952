"""`LocalPath`: a path in a service file, relative to the folder of that file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo


def _relative_to_its_file(path: Path, info: ValidationInfo) -> Path:
    base = (info.context or {}).get("base")
    return path.expanduser() if base is None else Path(base) / path.expanduser()


LocalPath = Annotated[Path, AfterValidator(_relative_to_its_file)]
"""A path field. Validated with `context={"base": folder}`, a relative path is relative to that folder."""
