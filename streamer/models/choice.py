"""`Choice`: which variant of the models each record gets."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING
from pipelines.errors import RowsFailed, StreamerError, nearest
from streamer.routing.provenance import record_keys, record_positions

Codes = npt.NDArray[np.int64]
"""The number of a variant for each row, `int64 (N,)`."""

_TEXT_KEY = "key"
_VALUES = "values."


class Choice:
    """Divides records among variants by their weights. From any thread.

    Where nothing is `sticky` a record's position on its bus decides: a record that is delivered again gets the variant
    that it had, as long as the weights stay. With `sticky` its key or one of its values decides, so that all records of
    a device get the same variant; records without that are divided by their positions. When weights change, no more
    records change their variant than they have to.
    """

    def __init__(self, weights: Mapping[str, float], sticky: str | None = None) -> None:
        """`sticky`: `key` or `values.NAME`."""
        self.names: Sequence[str] = tuple(weights)
        """The variants, whose numbers are their places here."""
        self._weights = dict(weights)
        self._sticky = sticky
        self._guard = threading.Lock()
        self._edges, self._only = self._divided()

    @property
    def weights(self) -> Mapping[str, float]:
        """What each variant weighs at present."""
        return dict(self._weights)

    def weigh(self, name: str, weight: float) -> None:
        """Give a variant another weight.

        Raises `StreamerError` for an unknown variant, a weight that is none, and where all would weigh nothing.
        """
        if name not in self._weights:
            known = ", ".join(self.names)
            raise StreamerError(f'there is no variant "{name}"{nearest(name, self.names)}; there is {known}')
        if not 0 <= weight < float("inf"):
            raise StreamerError(f"{weight} is no weight: it is a number of 0 or more")
        with self._guard:
            changed = {**self._weights, name: float(weight)}
            if not any(changed.values()):
                raise StreamerError(f"all weights would be 0; give another variant a weight before {name} loses its")
            self._weights = changed
            self._edges, self._only = self._divided()

    def codes(self, batch: Batch) -> Codes | int:
        """The number of each row's variant; of all rows, if it is the same."""
        with self._guard:
            edges, only = self._edges, self._only
        if only is not None:
            return only
        return np.searchsorted(edges, self._points(batch), side="right")

    def _divided(self) -> tuple[npt.NDArray[np.float64], int | None]:
        """Where the share of each variant but the last ends, between 0 and 1; and the only one with a weight, if so."""
        weights = np.array(list(self._weights.values()))
        positive = np.flatnonzero(weights)
        edges = np.cumsum(weights) / weights.sum()
        # What rounding leaves between the last edge and 1 is the last variant's that weighs anything.
        return edges[: int(positive[-1])], int(positive[0]) if len(positive) == 1 else None

    def _points(self, batch: Batch) -> npt.NDArray[np.float64]:
        """A number from 0 to below 1 for each row."""
        positions = record_positions(batch)
        hashes = positions if (positions >= 0).all() else np.where(positions < 0, batch.rows, positions)
        if self._sticky is not None:
            hashes = hashes.copy()
            for row, text in enumerate(self._texts(batch)):
                if text is not None:
                    # Far from any position.
                    hashes[row] = crc32(text) | (1 << 62)
        return _mixed(hashes)

    def _texts(self, batch: Batch) -> Sequence[bytes | None]:
        """What decides for each row, `None` where it is missing."""
        if self._sticky == _TEXT_KEY:
            return record_keys(batch) or ()
        name = (self._sticky or "").removeprefix(_VALUES)
        if name not in batch:
            return ()
        column = batch.column(name)
        try:
            values = column.values()
        except RowsFailed as error:
            # A step that reads such a value will say so.
            values = [MISSING if row in error.failures else column[row] for row in range(batch.size)]
        return [None if value is MISSING or value is None else str(value).encode() for value in values]


def _mixed(numbers: Codes) -> npt.NDArray[np.float64]:
    """Numbers that lie evenly between 0 and 1, also for numbers that follow each other.

    It is the finalizer of splitmix64 (Steele, Lea and Flood 2014).
    """
    with np.errstate(over="ignore"):
        bits = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    mixed: npt.NDArray[np.float64] = (bits >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return mixed
