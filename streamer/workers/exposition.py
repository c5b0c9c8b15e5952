"""Metrics of several workers as those of one endpoint, in the text format of Prometheus."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

_SAMPLE: Final = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+(?: \S+)?)")
"""Name, labels, and value with its time; labels may hold any character but a line end."""
_RESTARTS: Final = "streamer_worker_restarts_total"
_POISON: Final = "streamer_poison_records_total"


def merged(texts: Iterable[tuple[int, str]]) -> str:
    """The metrics of workers, by their numbers, with a label `worker`; each family is written once, with its help.

    Of samples that two endpoints of a worker have in common, such as those of its process, the first counts.
    """
    heads: dict[str, dict[str, str]] = {}
    samples: dict[str, dict[str, str]] = {}
    for worker, text in texts:
        family = ""
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                kind, family = line.split(" ", 3)[1:3]
                heads.setdefault(family, {}).setdefault(kind, line)
            elif (match := _SAMPLE.fullmatch(line)) is not None:
                name, labels, value = match.groups()
                inside = ",".join(filter(None, (f'worker="{worker}"', labels)))
                samples.setdefault(family, {}).setdefault(f"{name}{{{inside}}}", value)
    lines: list[str] = []
    for family, values in samples.items():
        lines += heads.get(family, {}).values()
        lines += [f"{name} {value}" for name, value in values.items()]
    return "".join(f"{line}\n" for line in lines)


def of_parent(restarts: Mapping[tuple[int, str], int], poison: Mapping[str, int], services: Iterable[str]) -> str:
    """The parent's own metrics: restarts by worker and reason, convicted records by service."""
    counts = Counter(poison)
    lines = [
        f"# HELP {_RESTARTS} Worker processes that died and were started again.",
        f"# TYPE {_RESTARTS} counter",
        *(f'{_RESTARTS}{{worker="{worker}",reason="{reason}"}} {n}.0' for (worker, reason), n in restarts.items()),
        f"# HELP {_POISON} Records that killed the process that ran them, and fail without being run.",
        f"# TYPE {_POISON} counter",
        *(f'{_POISON}{{service="{_escaped(service)}"}} {counts[service]}.0' for service in services),
    ]
    return "".join(f"{line}\n" for line in lines)


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
