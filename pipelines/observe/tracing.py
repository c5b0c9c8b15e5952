"""Traces: the input and output of each step for a record, and how long it took."""

from __future__ import annotations

import html
from collections.abc import Collection
from dataclasses import dataclass, field

from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.data.describing import described_row
from pipelines.errors import StepError
from pipelines.observe.observing import StepRun

MOST_ROWS = 10
"""How many rows of one record a trace lists at most, where a step made several."""


@dataclass(frozen=True, slots=True)
class StepTrace:
    """One step's work on one record."""

    step: str
    runner: str
    """Name of the class that ran the step: a runner or a junction."""
    seconds: float
    """How long it took for the whole batch."""
    rows: int
    """How many rows that batch had."""
    given: list[str]
    """The input: `key KIND` of each of the record's rows; kinds and sizes, not contents."""
    made: list[str]
    """The output, in the same form; empty if the record failed, was dropped or is held."""

    def __str__(self) -> str:
        among = "" if self.rows == 1 else f", with {self.rows - 1} more"
        head = f"{self.step} ({self.runner}) {_time(self.seconds)}{among}"
        return "\n".join(
            [head, *(f"    in   {text}" for text in self.given), *(f"    out  {text}" for text in self._out)]
        )

    @property
    def _out(self) -> list[str]:
        return self.made or ["no row"]


@dataclass(frozen=True, slots=True)
class Trace:
    """The way of one record through the pipeline, in the order in which the steps ran.

    `str(trace)` is the text. A step inside a PIPELINE step stands before that one, as `outer/inner`.
    """

    steps: list[StepTrace]
    seconds: float
    """From the first step to the last."""
    result: Data | list[Data] | None = None
    """The result that `run` would have returned."""
    error: StepError | None = None
    """The error that `run` would have raised."""

    def __str__(self) -> str:
        end = [] if self.error is None else [f"failed in {self.error.step}: {_cause(self.error)}"]
        return "\n".join([*map(str, self.steps), f"{len(self.steps)} steps, {_time(self.seconds)}", *end])

    def to_data(self) -> Data:
        """The trace as a value: `text`, `seconds`, and `steps` with `step runner seconds rows in out`."""
        data = Data({"text": str(self), "seconds": self.seconds})
        if self.steps:
            data["steps"] = [
                Data(
                    {
                        "step": step.step,
                        "runner": step.runner,
                        "seconds": step.seconds,
                        "rows": step.rows,
                        "in": "; ".join(step.given),
                        "out": "; ".join(step.made),
                    }
                )
                for step in self.steps
            ]
        return data

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(step.step)}</td><td>{html.escape(step.runner)}</td><td>{_time(step.seconds)}</td>"
            f"<td>{html.escape('; '.join(step.given))}</td><td>{html.escape('; '.join(step._out))}</td></tr>"
            for step in self.steps
        )
        head = "<tr><th>step</th><th>runner</th><th>time</th><th>in</th><th>out</th></tr>"
        end = (
            "" if self.error is None else f"<p>failed in {html.escape(f'{self.error.step}: {_cause(self.error)}')}</p>"
        )
        return f"<table>{head}{rows}</table><p>{_time(self.seconds)}</p>{end}"


@dataclass(slots=True)
class Tracer:
    """An observer that notes the steps' work on the records with these numbers; `None`: on all records."""

    numbers: Collection[int] | None
    _traces: dict[int, list[StepTrace]] = field(default_factory=dict)

    def step(self, run: StepRun) -> None:
        """Note a run of a step."""
        given: dict[int, list[str]] = {}
        made: dict[int, list[str]] = {}
        for batch in run.given:
            self._describe(run, batch, given)
        self._describe(run, run.batch, made)
        # Records of a window that comes out now may have gone in earlier.
        for number in given.keys() | made.keys():
            trace = StepTrace(run.step, run.runner, run.seconds, run.rows, given.get(number, []), made.get(number, []))
            self._traces.setdefault(number, []).append(trace)

    def steps(self, number: int) -> list[StepTrace]:
        """The steps' work on the record with this number."""
        return self._traces.get(number, [])

    def everything(self) -> list[StepTrace]:
        """The steps' work on all noted records."""
        return [trace for steps in self._traces.values() for trace in steps]

    def _describe(self, run: StepRun, batch: Batch, texts_by_number: dict[int, list[str]]) -> None:
        for position, records in run.records(batch, self.numbers):
            text = described_row(batch, position)
            for number in records:
                texts = texts_by_number.setdefault(number, [])
                if len(texts) < MOST_ROWS:
                    texts.append(text)


def _cause(error: StepError) -> str:
    # Not its text, which may hold values of the record.
    return type(error.__cause__ or error).__name__


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 0.001 else f"{seconds * 1e3:.3g} ms"
