"""What this process may use: the machine's memory, and the limits that its container or systemd unit sets.

The latter are those of Linux's control groups. The files are described in the kernel's
"Control Group v2" (`cpu.max`, `memory.max`) and, for version 1, in "CFS Bandwidth Control" and "Memory Resource
Controller". A group's limits are those of all groups above it, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_UNLIMITED: Final = 1 << 60
"""Version 1 writes a number beyond all memory where there is no limit."""


def machine_memory() -> int | None:
    """Bytes of the machine's memory; `None` where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """Limits of the process's control groups, `None` where there are none, or they cannot be read."""

    cpus: float | None
    """CPU seconds in a second."""
    memory: int | None
    """Bytes."""


def cgroup_limits(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> CgroupLimits:
    """The smallest limits of the groups of this process, and of those above them.

    Args:
        root: Where the kernel's cgroup file systems are mounted.
        membership: The file that lists the groups of the process.
    """
    cpus: list[float] = []
    memory: list[int] = []
    for line in _text(membership).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        names = controllers.split(",")
        if not controllers:
            for folder in _folders(root, path):
                quota, _, period = _text(folder / "cpu.max").partition(" ")
                cpus += _cpus(quota, period)
                memory += _numbers(_text(folder / "memory.max"))
        if "cpu" in names:
            for folder in _mounted(root, controllers, "cpu", path):
                cpus += _cpus(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))
        if "memory" in names:
            for folder in _mounted(root, controllers, "memory", path):
                memory += _numbers(_text(folder / "memory.limit_in_bytes"))
    return CgroupLimits(min(cpus, default=None), min(memory, default=None))


def _mounted(root: Path, controllers: str, controller: str, path: str) -> Iterator[Path]:
    """Version 1 has a tree for each set of controllers, often with a link by the name of each."""
    for name in dict.fromkeys((controller, controllers)):
        yield from _folders(root / name, path)


def _folders(root: Path, path: str) -> Iterator[Path]:
    """The group's folder and those above it. In a container the path may be that of the host, which is not there."""
    folder = root / path.strip("/")
    while folder != root and root in folder.parents:
        yield folder
        folder = folder.parent
    yield root


def _cpus(quota: str, period: str) -> list[float]:
    limits, periods = _numbers(quota), _numbers(period)
    return [limits[0] / periods[0]] if limits and periods and periods[0] > 0 else []


def _numbers(text: str) -> list[int]:
    """The number in a file, if it is a limit: `max` and -1 are none."""
    return [int(text)] if text.isdigit() and int(text) < _UNLIMITED else []


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
