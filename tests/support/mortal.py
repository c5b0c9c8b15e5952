"""What the random tests of services share: sources whose process dies, and a pipeline with a fate for each record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from connectors.memory import MemorySource
from connectors.records import Lane
from pipelines import Data
from pipelines.errors import ConnectorError


class Mortal(MemorySource):
    """A source whose process can die: its group expels it, so that it can commit nothing either."""

    dead = False

    def poll(self, *arguments: Any) -> Any:
        self._check()
        return super().poll(*arguments)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        self._check()
        super().acknowledge(positions, wait=wait)

    def standing_still(self, still: bool) -> None:
        if not self.dead:
            super().standing_still(still)

    def die(self) -> None:
        self.dead = True
        self.expel()

    def expel(self) -> None:
        """Its session is over; it does not know yet."""
        with self.topic.changed:
            self.group.expel(self)
            self.topic.changed.notify_all()

    def _check(self) -> None:
        if self.dead:
            raise ConnectorError("dead")


def fate(number: int) -> str:
    """What the pipeline does with the record of this number."""
    if number % 53 == 0:
        return "fails"
    if number % 31 == 0:
        return "dropped"
    return "doubled" if number % 17 == 0 else "passed"


def pipeline(data: Data) -> Any:
    number = data["number"]
    match fate(number):
        case "fails":
            raise ValueError("poison")
        case "dropped":
            return None
        case "doubled":
            return [data, data]
    if number % 7 == 0:
        time.sleep(0.001)
    return data
