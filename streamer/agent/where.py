"""`Where`: which records of a source are run, by the conditions of its `where`; all others pass by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from connectors.blockcolumns import emptied
from connectors.codec import Decoded, RecordsOrigin
from connectors.codecs.registry import codec_config
from connectors.config import SourceConfig
from connectors.recordnames import matches
from connectors.records import Ints, Records
from pipelines.conditions.condition import Described, condition, singly
from pipelines.conditions.contract import Condition, Failures
from pipelines.data.batch import Batch
from pipelines.data.columns import Mask
from pipelines.data.rowrange import row_range
from pipelines.errors import StepError
from streamer.agent.bytopic import ByTopic
from streamer.agent.decodedbatch import NONE_PASSED
from streamer.routing.into import Into

STEP: Final = "where"
"""The step of failures of records for which a condition cannot be asked."""
SUSPICIOUS: Final = 100
"""So many records at the start, of which none was run, are worth a warning."""


@dataclass(slots=True)
class Fitting:
    """Those of a block of records that fit the conditions on their metadata, before the block is decoded."""

    records: Records
    """The whole block for the codec. The others' payloads are left out, unless the codec has to see all records."""
    passed: Ints = field(default_factory=lambda: NONE_PASSED)
    """Numbers of the rows that pass by, `int64`, rising."""
    failed: Mapping[int, Exception] = field(default_factory=dict)
    """Rows for which a condition could not be asked, by row number: they are not decoded."""
    is_empty: bool = False
    """Whether nothing is left to decode."""


class Left(NamedTuple):
    """What is left of a decoded block after all conditions."""

    decoded: Decoded
    """The rows to run; `failed` has those for which a condition could not be asked, too."""
    passed: Ints
    """As in `Fitting`, those of the conditions on values among them."""


class Where:
    """The conditions of one source, all of which a record has to fit. Used by the source's intake thread.

    Those on metadata that `into` makes values of are asked before payloads are decoded, those on other values after it.
    """

    def __init__(self, config: SourceConfig, log: Any) -> None:
        """Raises `DefinitionError` if a condition is none."""
        made = config.undecoded_keys
        early: list[Described] = []
        late: list[Described] = []
        for described in singly(config.where):
            (early if condition(described).names <= made else late).append(described)
        self._early = condition(early) if early else None
        self._late = condition(late) if late else None
        self.keys = frozenset[str]() if self._late is None else self._late.names
        """The keys that have to be decoded for the conditions on values."""
        asked = frozenset[str]() if self._early is None else self._early.names
        into = {name: key for name, key in config.into.items() if key in asked}
        self._metadata = Into(into, config.key_type, config.header_types)
        of_topics = all(name == "topic" or matches(name, config.topic_columns) for name in into)
        self._by_topic = ByTopic(self._fitting) if into and of_topics else None
        self._shows_all = any(codec.remembers for codec in codec_config(config.codec).layers)
        self._described = config.where
        self._source = config.label
        self._log = log
        self._passed_so_far: int | None = 0
        """How many records have passed by since the start; `None`: one did not, or all this was told."""

    @staticmethod
    def of(config: SourceConfig, log: Any) -> Where | None:
        """The conditions of this source; `None` if it has none."""
        return Where(config, log) if config.where is not None else None

    def before(self, records: Records, first: int) -> Fitting:
        """Ask the conditions on metadata of these records, which are rows `first`, `first + 1`, ..."""
        if self._early is None:
            return Fitting(records)
        failed: dict[int, Exception] = {}
        left = None if self._by_topic is None else self._by_topic.fitting(records)
        if left is None:
            left, failed = self._asked(self._early, records, first)
        if left.all():
            return Fitting(records)
        for row in records.faults:
            # What a source itself cannot accept fails, whatever its metadata seem to be.
            left[row] = True
            failed.pop(first + row, None)
        passed = ~left
        for row in failed:
            passed[row - first] = False
        shown = records if self._shows_all else records.with_values(emptied(records.values, left))
        return Fitting(shown, first + np.flatnonzero(passed), failed, not (left.any() or self._shows_all))

    def after(self, decoded: Decoded, fitting: Fitting) -> Left:
        """Ask the conditions on values of a block that was decoded and has its metadata as values."""
        batch, samples, failed = decoded.batch, decoded.samples, decoded.failed
        if self._shows_all and (len(fitting.passed) or fitting.failed):
            gone = {*fitting.passed.tolist(), *fitting.failed}
            failed = {row: error for row, error in failed.items() if row not in gone}
            left = np.isin(batch.rows, np.fromiter(gone, np.int64), invert=True)
            batch, samples = batch.take(left), None if samples is None else samples[left]
        if fitting.failed:
            failed = {**failed, **fitting.failed}
        passed = fitting.passed
        if self._late is not None and batch.size:
            mask, wrong = self._late.rows(batch)
            if not mask.all():
                failed = {**failed, **_failures(batch, wrong)} if wrong else failed
                out = ~mask
                out[list(wrong)] = False
                passed = np.concatenate([passed, batch.rows[out]])
                passed.sort()
                batch, samples = batch.take(mask), None if samples is None else samples[mask]
        if self._passed_so_far is not None:
            self._look(len(passed), batch.size + len(failed))
        return Left(Decoded(batch, failed, samples), passed)

    def _fitting(self, records: Records) -> Mask | None:
        """Which of these records fit the conditions on their metadata; `None` if these cannot be asked of all."""
        assert self._early is not None
        left, failed = self._asked(self._early, records, 0)
        return None if failed else left

    def _asked(self, early: Condition, records: Records, first: int) -> tuple[Mask, dict[int, Exception]]:
        """The same, and by row number the errors of records of which they cannot be asked."""
        count = len(records)
        block = Batch({}, count, rows=row_range(first, count), origin=RecordsOrigin(records, first))
        # Metadata that cannot be read are an error of decoding.
        put = self._metadata.put(Decoded(block, {}), records, first)
        mask, wrong = early.rows(put.batch)
        if not put.failed:
            return mask, _failures(put.batch, wrong)
        left = np.zeros(count, np.bool_)
        left[put.batch.rows[mask] - first] = True
        return left, {**put.failed, **_failures(put.batch, wrong)}

    def _look(self, passed: int, others: int) -> None:
        """Warn if all of the first records have passed by: a condition may be wrong."""
        assert self._passed_so_far is not None
        self._passed_so_far += passed
        if others:
            self._passed_so_far = None
        elif self._passed_so_far >= SUSPICIOUS:
            self._log.warning(
                "all records so far have passed by: none fits the where of the source",
                source=self._source,
                records=self._passed_so_far,
                where=self._described,
            )
            self._passed_so_far = None


def _failures(batch: Batch, failures: Failures) -> dict[int, Exception]:
    """The errors of rows for which a condition cannot be asked, by row number."""
    return {int(batch.rows[place]): StepError.of(STEP, error) for place, error in failures.items()}
