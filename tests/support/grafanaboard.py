"""The Grafana board of deploy/grafana, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "streamer.json"


def board() -> dict[str, Any]:
    """The board's JSON model."""
    read: dict[str, Any] = json.loads(BOARD.read_text())
    return read


def panels() -> Iterator[dict[str, Any]]:
    """All panels with queries, those in closed rows too."""
    for panel in board()["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def queries(window: str = "1m") -> list[tuple[str, str]]:
    """Title of the panel and expression of each query, with all services chosen and rates over `window`."""
    variables = {"$__rate_interval": window, "$service": ".*", "$instance": ".*"}
    found = []
    for panel in panels():
        for target in panel["targets"]:
            expression: str = target["expr"]
            for name, value in variables.items():
                expression = expression.replace(name, value)
            found.append((panel["title"], expression))
    return found
