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
    alike = by_report(parts)
    if len(alike) == 1:
        (report,) = alike
        return f"{report.path}{_why(report)}"
    return "; ".join(f"{report.path}: {', '.join(names)}{_why(report)}" for report, names in alike.items())


def by_report(parts: Iterable[PartHotPath]) -> dict[HotPathReport, list[str]]:
    """The parts that take the same hot path for the same reason; those that take the compiled one first."""
    alike: dict[HotPathReport, list[str]] = {}
    for part, report in sorted(parts, key=lambda part: part.report.path != "native"):
        alike.setdefault(report, []).append(part)
    return alike


def _why(report: HotPathReport) -> str:
    return f" ({report.reason})" if report.reason else ""
