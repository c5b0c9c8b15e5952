"""The examples: from the checkout, or from the installed package."""

from __future__ import annotations

from pathlib import Path

from pipelines.errors import StreamerError

NAMES = ("digits", "sensors", "cameras", "objects")
"""The examples that a wheel contains."""


def folder(name: str) -> Path:
    """The folder of `NAME.yaml` and its files. Raises `StreamerError` if the files are not there."""
    here = Path(__file__).parent
    # In a wheel examples/NAME lies beside this file, in a checkout at its root.
    for candidate in (here / name, here.parents[1] / "examples" / name):
        if (candidate / f"{name}.yaml").is_file():
            return candidate
    raise StreamerError(f"the {name} example is not installed; reinstall, or use a checkout of the repository")
