"""Entries of a folder that `Path.glob` leaves out silently: links to nothing, and folders that may not be listed."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path


def unread(folder: Path, pattern: str, suffixes: Collection[str] | None = None) -> list[str]:
    """The entries that `folder.glob(pattern)` leaves out silently, each with the reason, for an error message.

    `suffixes`: suffixes of the files that count. Hidden files and folders do not count. Subfolders are searched only
    where the pattern has `**`.
    """
    entries = [
        f"{path} (a link to nothing)"
        for path in folder.glob(pattern)
        if path.is_symlink()
        and not path.exists()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and (suffixes is None or path.suffix.lower() in suffixes)
    ]
    if "**" in pattern:
        for _, names, _ in os.walk(folder, onerror=lambda error: entries.append(_named(error))):
            names[:] = [name for name in names if not name.startswith(".")]
    return sorted(entries)


def _named(error: OSError) -> str:
    return f"{error.filename} ({error.strerror})"
