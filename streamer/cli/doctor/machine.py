"""CPUs, memory, open files, room on disks, the clock."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from connectors.models.cache import cache_folder
from streamer.cli.doctor.clock import clock
from streamer.cli.doctor.line import Line
from streamer.observe.limits import CgroupLimits, cgroup_limits, machine_memory

_GIB: Final = 1 << 30
_FEW_FILES: Final = 1024
_LITTLE: Final = _GIB
"""Free bytes on a disk below which there is a warning."""
_NOTHING: Final = 64 << 20
"""Free bytes on a disk below which nothing works for long."""


def machine() -> list[Line]:
    """What this machine, and the container of this process, give it."""
    limits = cgroup_limits()
    return [_cpus(limits), _memory(limits), *_open_files(), *_disks(), clock()]


def _cpus(limits: CgroupLimits) -> Line:
    total = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    text = f"{total}" if usable == total else f"{usable} of {total}, by the affinity of this process"
    if limits.cpus is not None and limits.cpus < usable:
        return Line("CPUs", "ok", f"{limits.cpus:g} by the container's limit, of {text}")
    return Line("CPUs", "ok", text)


def _memory(limits: CgroupLimits) -> Line:
    total, available = _physical()
    if total is None:
        return Line("memory", "ok", "not checked: this system does not say")
    text = gib(total) if available is None else f"{gib(total)}, {gib(available)} available"
    if limits.memory is not None and limits.memory < total:
        return Line("memory", "ok", f"{gib(limits.memory)} by the container's limit, of {text}")
    if available is not None and available < _GIB // 4:
        return Line("memory", "warning", text, "end what uses it, or move the service: out of memory, it is killed")
    return Line("memory", "ok", text)


def _physical() -> tuple[int | None, int | None]:
    """Bytes of memory, and those that programs can have; `None` where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return sizes["MemTotal"], sizes.get("MemAvailable")
    except (OSError, ValueError, KeyError, IndexError):
        return machine_memory(), None


def open_file_limit() -> tuple[int, int] | None:
    """How many files and connections this process may have open: now, and at most if it raises that.

    Returns:
        `None` where the system has no such limit; a limit of -1 is none.
    """
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _open_files() -> Iterator[Line]:
    limit = open_file_limit()
    if limit is None:
        return
    soft, hard = limit
    text = f"{_number(soft)} at most (the limit may be raised to {_number(hard)})"
    if 0 <= soft < _FEW_FILES:
        yield Line("open files", "warning", text, raise_open_files(_FEW_FILES))
    else:
        yield Line("open files", "ok", text)


def raise_open_files(number: int) -> str:
    """Where the limit of open files is set, as advice."""
    return f"ulimit -n {number} in a shell, LimitNOFILE={number} for systemd, docker run --ulimit nofile={number}"


def _number(limit: int) -> str:
    return "unlimited" if limit < 0 else f"{limit:,}"


def _disks() -> Iterator[Line]:
    yield disk("model cache", cache_folder())
    yield disk("temporary files", Path(tempfile.gettempdir()))
    if (shared := Path("/dev/shm")).is_dir():  # noqa: S108 - its size is shown; nothing is written there
        free = shutil.disk_usage(shared).free
        yield Line("shared memory", "ok", f"{gib(free)} free in {shared}")


def disk(part: str, folder: Path) -> Line:
    """Room on the disk of a folder, which need not exist yet, and whether it can be written to."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Line(part, "wrong", f"{folder}: {error.strerror}", "choose another folder")
    text = f"{gib(free)} free in {folder}"
    if not os.access(place, os.W_OK):
        return Line(part, "warning", f"{text}; {place} cannot be written to by this user", "change its owner or mode")
    if free < _NOTHING:
        return Line(part, "wrong", text, "make room there, or choose another folder")
    return Line(part, "warning" if free < _LITTLE else "ok", text, "make room there" if free < _LITTLE else "")


def gib(size: int) -> str:
    """A number of bytes as text."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB // 10 else f"{size / (1 << 20):.0f} MiB"
