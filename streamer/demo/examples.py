"""The examples: from the checkout, or from the installed package."""

from __future__ import annotations

from pathlib import Path

from pipelines.errors import StreamerError

NAMES = ("digits", "sensors", "cameras")
"""Those that a wheel carries."""


def folder(name: str) -> Path:
    """Where `NAME.yaml` and what belongs to it lie. Raises `StreamerError` if they are nowhere."""
    here = Path(__file__).parent
    # A wheel has examples/NAME beside this file; a checkout has it where it is edited.
    for found in (here / name, here.parents[1] / "examples" / name):
        if (found / f"{name}.yaml").is_file():
            return found
    raise StreamerError(f"the {name} example is not installed; reinstall, or use a checkout of the repository")
