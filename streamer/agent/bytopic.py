"""`ByTopic`: answers about records that depend on their topics alone, so that each topic is asked about once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from connectors.coded import Coded
from connectors.records import Ints, Records
from pipelines.data.columns import Mask

MOST_TEXT: Final = 1 << 20
"""So many characters of topics are remembered: whoever can send may make up any number of them."""


class ByTopic:
    """For each record of a block whether its topic fits."""

    def __init__(self, ask: Callable[[Records], Mask | None]) -> None:
        """`ask` says of each of these records whether it fits; `None` if it cannot say it of all of them."""
        self._ask = ask
        self._known: dict[str, bool] = {}
        self._text = 0

    def fitting(self, records: Records) -> Mask | None:
        """Of each record, `bool (N,)`; `None` if that cannot be said of a topic that is new."""
        if self._text > MOST_TEXT:
            self._known, self._text = {}, 0
        topics = records.topics
        places: Ints
        if isinstance(topics, Coded):
            used, places, inverse = np.unique(topics.codes, return_index=True, return_inverse=True)
            names = [topics.names[code] for code in used.tolist()]
        else:
            names = list(topics)
            places = np.array([span.start for span in records.spans], np.int64)
            inverse = np.repeat(np.arange(len(names)), [span.stop - span.start for span in records.spans])
        known = self._known
        new = [at for at, name in enumerate(names) if name not in known]
        if new and not self._learn(records, {int(places[at]): names[at] for at in new}):
            return None
        return np.array([known[name] for name in names], np.bool_)[inverse]

    def _learn(self, records: Records, topics: dict[int, str]) -> bool:
        """Ask about these topics, each by the place of one of its records."""
        places = np.array(sorted(topics), np.int64)
        fits = self._ask(records.take(places))
        if fits is None:
            return False
        for place, fit in zip(places.tolist(), fits.tolist(), strict=True):
            self._known[topics[place]] = fit
            self._text += len(topics[place])
        return True
