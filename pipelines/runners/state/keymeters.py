"""`KeyMeters`: the metrics that all steps with a state for each key have."""

from __future__ import annotations

import logging

from pipelines.observe.metrics import EVICTED, KEYS, StepMetrics

_log = logging.getLogger("pipelines.keyed")


class KeyMeters:
    """How many keys a step remembers, and how many it had to forget because there were more than `most`."""

    def __init__(self, metrics: StepMetrics, name: str, most: int) -> None:
        """`name`: the step in the log; `most`: keys of a partition, the field `keys` of the step."""
        self._name = name
        self._most = most
        self._keys = metrics.gauge(KEYS, "Keys that a step remembers.")
        self._evicted = metrics.counter(EVICTED, "Keys that a step forgot because there were too many.")

    def remembers(self, keys: int) -> None:
        """The step remembers so many keys now."""
        self._keys.set(keys)

    def evict(self, keys: int) -> None:
        """So many keys had to go, of which there is a warning the first time."""
        if not self._evicted.value:
            _log.warning(
                "%s: there are more than %d keys in a partition, and those that were silent longest are forgotten; "
                '"keys" says how many are remembered',
                self._name,
                self._most,
            )
        self._evicted.add(keys)
