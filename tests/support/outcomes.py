"""Narrow what an executor gave for a record to the result that a test expects."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines import Data
from pipelines.executors.executor import Outcome


def result_of(outcome: Outcome) -> Data:
    """The one result of a record; fails the test if the record failed, was dropped, or gave several results."""
    assert isinstance(outcome, Data), outcome
    return outcome


def results_of(outcomes: Iterable[Outcome]) -> list[Data]:
    """`result_of` of each record."""
    return [result_of(outcome) for outcome in outcomes]
