"""`Canary`: gives a variant more and more of the records, and takes them away if it does worse than the current one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from pipelines.observe.meters import Reading
from streamer.models.choice import Choice
from streamer.models.settings import CURRENT, WHOLE, CanarySettings
from streamer.models.tally import Counted, Tally
from streamer.models.version import Version

LEAST_CALLS: Final = 10
"""Calls of both variants before their times are compared."""
_ERRORS: Final = 2.0
"""Standard errors by which a share or a time has to lie beyond its limit: few records prove little."""


class Canary:
    """Steps through the weights of its settings. `look` is called about once a second by the run thread.

    At each look the variant is compared with `current` over the records since the last step. A version that takes its
    place begins with the first weight. If somebody gives the variants other weights, those stay, and it does nothing
    any more until then.
    """

    def __init__(self, name: str, settings: CanarySettings, choice: Choice, tally: Tally, log: Any) -> None:
        self.stage = -1
        """The number of the weight in use; -1: its version was worse, or it has not begun."""
        self.rollbacks = 0
        """How many versions were worse."""
        self._name = name
        self._settings = settings
        self._choice = choice
        self._tally = tally
        self._log = log
        self._version: Version | None = None
        self._began = 0.0
        self._since = (tally.of(CURRENT), tally.of(name))
        self._weight: float | None = None
        """What it set; `None`: it is at rest."""

    @property
    def name(self) -> str:
        """The variant."""
        return self._name

    def look(self, version: Version, now: float) -> None:
        """Compare, and change weights if it is time.

        `version` is the variant's at present, `now` as `time.monotonic`.
        """
        if version is not self._version:
            self._version = version
            self._step(0, now)
            return
        if self._weight is None:
            if version.state == "REJECTED" and self._choice.weights[self._name]:
                # Somebody has decided otherwise.
                version.state, version.reason = "READY", ""
            return
        if self._choice.weights[self._name] != self._weight:
            self._log.info("a canary leaves its variant the weight that it was given", variant=self._name)
            self._weight = None
            return
        current, canary = self._counts()
        if canary.records < self._settings.records:
            return
        worse = self._worse(current, canary)
        if worse is not None:
            self._roll_back(version, worse)
        elif now - self._began >= self._settings.each:
            if self.stage + 1 < len(self._settings.weights):
                self._step(self.stage + 1, now)
            else:
                self._log.info("a canary is as good as the current version", variant=self._name, version=version.label)
                self._weight = None

    def readings(self) -> Iterator[Reading]:
        """Its metrics."""
        text = "The step of a canary's weights, from 0; -1: its version was worse."
        yield Reading("streamer_canary_stage", text, "gauge", ("variant",), [((self._name,), self.stage)])
        text = "Versions of a canary that were worse."
        samples = [((self._name,), self.rollbacks)]
        yield Reading("streamer_canary_rollbacks_total", text, "counter", ("variant",), samples)

    def _counts(self) -> tuple[Counted, Counted]:
        before, canary_before = self._since
        return self._tally.of(CURRENT).since(before), self._tally.of(self._name).since(canary_before)

    def _step(self, stage: int, now: float) -> None:
        self.stage, self._began = stage, now
        weight = self._weight = float(self._settings.weights[stage])
        self._divide(weight)
        self._since = (self._tally.of(CURRENT), self._tally.of(self._name))
        self._log.info("a canary gets a share of the records", variant=self._name, weight=weight)

    def _roll_back(self, version: Version, reason: str) -> None:
        self.stage, self._weight = -1, None
        self.rollbacks += 1
        version.state, version.reason = "REJECTED", reason
        self._divide(0.0)
        self._log.error(
            "a canary does worse than the current version and gets no records any more",
            variant=self._name,
            version=version.label,
            reason=reason,
        )

    def _divide(self, weight: float) -> None:
        weights = self._choice.weights
        others = sum(each for name, each in weights.items() if name not in (self._name, CURRENT))
        left = max(0.0, WHOLE - others - weight)
        # In this order, as not all weights may be 0 in between.
        changes = [(self._name, weight), (CURRENT, left)]
        for name, each in changes if weight else reversed(changes):
            self._choice.weigh(name, each)

    def _worse(self, current: Counted, canary: Counted) -> str | None:
        """What is worse than allowed, with the numbers; `None`: nothing."""
        checks: tuple[Callable[[Counted, Counted], str | None], ...] = (self._fails, self._is_slow, self._labels_differ)
        return next((text for check in checks if (text := check(current, canary)) is not None), None)

    def _fails(self, current: Counted, canary: Counted) -> str | None:
        share, before = canary.failed / canary.records, current.failed / max(current.records, 1)
        if share - before <= self._settings.max_errors + _margin(share, canary.records):
            return None
        return f"{share:.1%} of {canary.records} records failed, and {before:.1%} of {current.records} in {CURRENT}"

    def _is_slow(self, current: Counted, canary: Counted) -> str | None:
        longest = self._settings.max_latency
        if longest is None or min(current.calls, canary.calls) < LEAST_CALLS:
            return None
        rows, seconds = canary.records / canary.calls, canary.seconds / canary.calls
        expected = current.seconds_for(rows)
        # A single call that something else held up proves nothing.
        margin = _ERRORS * math.hypot(canary.seconds_error, longest * current.seconds_error)
        if seconds <= longest * expected + margin:
            return None
        return (
            f"a call with {rows:.0f} records takes {1e3 * seconds:.2f} ms, "
            f"{seconds / expected:.1f} times as long as in {CURRENT}"
        )

    def _labels_differ(self, current: Counted, canary: Counted) -> str | None:
        most = self._settings.max_labels
        if most is None or current.records < self._settings.records:
            return None
        for label in {*current.labels, *canary.labels}:
            share, before = canary.labels.get(label, 0) / canary.records, current.labels.get(label, 0) / current.records
            margin = math.hypot(_margin(share, canary.records), _margin(before, current.records))
            if abs(share - before) > most + margin:
                return f'{share:.1%} of its results have the label "{label}", and {before:.1%} in {CURRENT}'
        return None


def _margin(share: float, count: int) -> float:
    """How far the share that was counted may lie from the true one by chance."""
    return _ERRORS * math.sqrt(share * (1 - share) / count)
