"""Which hot path the parts of a service take, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pipelines.hotpath import HotPathReport


class PartHotPath(NamedTuple):
    """The hot path of one part of a service."""

    part: str
    """`source NAME`, `sink NAME`, `source NAME codec`, ..."""
    report: HotPathReport


def in_words(parts: Iterable[PartHotPath]) -> str:
    """The parts' hot paths in one line: `native`, or the parts that take it, and why the others do not."""
    native = [part.part for part in parts if part.report.path == "native"]
    plain: dict[str, list[str]] = {}
    for part, report in parts:
        if report.path == "python":
            plain.setdefault(report.reason, []).append(part)
    if not plain:
        return "native"
    texts = [f"native: {', '.join(native)}"] if native else []
    texts += [f"python: {', '.join(names)} ({reason})" for reason, names in plain.items()]
    return "; ".join(texts)
