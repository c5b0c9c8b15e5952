"""Where the control ports of workers are: any free ones, which a worker writes into a file beside the shared one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

Address = tuple[str, int]


def tell_addresses(pages: Path, worker: int, addresses: Mapping[str, Address]) -> None:
    """Write the control port of each service of this worker; `pages` is the shared file."""
    file = _file(pages, worker)
    unfinished = file.with_suffix(".new")
    unfinished.write_text(json.dumps(addresses), encoding="utf-8")
    unfinished.replace(file)


def forget_addresses(pages: Path, worker: int) -> None:
    """Remove those of a worker that has died."""
    _file(pages, worker).unlink(missing_ok=True)


def addresses_of(pages: Path, worker: int) -> dict[str, Address]:
    """The control port of each service of a worker that has opened it."""
    try:
        document = json.loads(_file(pages, worker).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return {service: (host, port) for service, (host, port) in document.items()}


def _file(pages: Path, worker: int) -> Path:
    return pages.with_name(f"control-{worker}.json")
