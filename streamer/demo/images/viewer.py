"""The viewer: reads the predictions as any other consumer would, and keeps the score."""

from __future__ import annotations

import numpy as np

from connectors.codec import Codec
from connectors.records import Records
from connectors.source import Source
from pipelines.data.data import Data
from streamer.demo.images.feeder import RUN_HEADER
from streamer.demo.images.score import Score
from streamer.demo.reader import Reader

WANTED = frozenset({"id", "label"})


class PredictionViewer(Reader):
    """Takes the predictions of one run from a source."""

    def __init__(self, source: Source, codec: Codec, score: Score, run: str) -> None:
        super().__init__(source, self._answered)
        self._codec = codec
        self._score = score
        self._run_id = run.encode()

    def _answered(self, records: Records) -> bool:
        headers = records.header_column() or [None] * len(records)
        batch = self._codec.decode(records, WANTED).batch
        # The batch lacks tombstones and records that cannot be decoded, so headers are looked up by row number.
        ours = [
            data
            for row, data in zip(batch.rows.tolist(), batch.to_list(), strict=True)
            if (RUN_HEADER, self._run_id) in (headers[row] or ())
        ]
        if ours:
            self._score.answered(_ids(ours), _labels(ours))
        return bool(ours)


def _ids(predictions: list[Data]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([data.get_int64("id") for data in predictions], np.int64)


def _labels(predictions: list[Data]) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    return np.array([int(data.get_string("label")) for data in predictions], np.int8)
