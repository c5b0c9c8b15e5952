"""Running a case: its records through the whole service, on connectors in memory."""

from __future__ import annotations

import time
from dataclasses import dataclass

from connectors.config import SourceConfig
from connectors.memory.config import MemorySinkConfig
from connectors.message import Message
from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.errors import DataError, DefinitionError, WireError, nearest
from streamer.definition.refusals import check_code
from streamer.definition.service import Service
from streamer.definition.settings import BatchSettings, FailureSettings, ModelSettings
from streamer.routing.template import template
from streamer.testing.cases import Case
from streamer.testing.differences import differences
from streamer.testing.recordclock import RecordClock
from streamer.testing.running import DeadLetter, run


@dataclass(frozen=True, slots=True)
class Tried:
    """The outcome of a case."""

    case: Case
    results: list[Data | None]
    """The sink's messages, decoded; `None` for one without a payload."""
    problems: list[str]
    """The differences from the expected results, a line each."""
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the results are as expected."""
        return not self.problems


def tried(service: Service, case: Case, *, timeout: float = 60.0) -> Tried:
    """Run a case by itself: models are loaded for it, windows begin empty.

    Codecs, pipeline, batching and the choice of sinks are the service's; no bus is connected to, and records that fail
    go to a dead letter in memory. Raises `DefinitionError` for a source or sink that the service does not have, and
    the errors of opening the pipeline, and `DefinitionError` for a service that may run no code and would.
    """
    # First, because encoding records may access a schema registry.
    check_code(service, connected=False)
    source = _named(case, "source", case.source, [config.label for config in service.sources])
    sink = _named(case, "sink", case.sink, [config.label for config in service.sinks])
    began = time.monotonic()
    try:
        report = run(
            _alone(service, case),
            {source: _messages(case, next(config for config in service.sources if config.label == source))},
            timeout=timeout,
            check=False,
            clock=None if case.at is None else RecordClock(case.at[0] / 1000),
            schemas={source: schema} if (schema := case.input_schema()) is not None else None,
            sink_schemas={sink: schema} if (schema := case.result_schema()) is not None else None,
        )
    except (WireError, DataError) as error:
        problems = [f"the input cannot be written by the codec of the source {source}: {error}"]
        return Tried(case, [], problems, time.monotonic() - began)
    results = report.decoded[sink]
    problems = [] if report.summary.error is None else [report.summary.error]
    problems += _of_failures(case, report.dead)
    if not problems:
        unreadable = report.unreadable.get(sink, {})
        problems = [f"result {number} cannot be read back: {error}" for number, error in unreadable.items()]
        problems = problems or _of_results(case, results)
    return Tried(case, results, problems, time.monotonic() - began)


def _alone(service: Service, case: Case) -> Service:
    # Where records have times, each is run by itself, so that steps are asked for what is due before it.
    batch = {} if case.at is None else {"batch": BatchSettings(max_records=1)}
    return service.model_copy(
        update={
            **batch,
            "dead_letter": MemorySinkConfig(name="dead_letter", topic="dead_letter"),
            "on_error": "stop",
            "errors": FailureSettings(stop_ratio=1.0),
            "delivery": "at_least_once",
            "control": None,
            "profile": None,
            "tracing": None,
            "models": ModelSettings(),
        }
    )


def _messages(case: Case, source: SourceConfig) -> list[Message]:
    key = None if case.key is None else case.key.encode()
    headers = tuple((name, value.encode()) for name, value in case.headers.items())
    return [
        Message(record, key, headers, timestamp, topic=case.topic or _topic(source, record))
        for record, timestamp in zip(case.records(), case.times(), strict=True)
    ]


def _topic(source: SourceConfig, record: Data | bytes) -> str | None:
    """The topic of a record whose values it is made from; `None` if it is not made from values, or lacks some."""
    sent_to = source.sent_to
    if sent_to is None or "{" not in sent_to or isinstance(record, bytes):
        return None
    (topic,), failures = template(sent_to).texts(Batch.of([record]))
    return None if failures else topic


def _of_failures(case: Case, dead: list[DeadLetter]) -> list[str]:
    if not case.fails:
        return [f"failed in {letter.step}: {letter.error}" for letter in dead]
    where = "" if case.fails is True else f" in {case.fails}"
    if any(case.fails is True or letter.step == case.fails for letter in dead):
        return []
    other = f"; one failed in {dead[0].step}" if dead else ""
    return [f"no record failed{where}, and one should have{other}"]


def _of_results(case: Case, results: list[Data | None]) -> list[str]:
    expected = case.expected()
    if expected is None:
        return []
    problems = []
    if len(expected) != len(results):
        problems.append(f"expected {len(expected)} results, got {len(results)}")
    for number, (values, result) in enumerate(zip(expected, results, strict=False)):
        if result is None:
            problems.append(f"result {number} has no payload")
            continue
        lines = differences(values, result, case.value, tolerance=case.tolerance, exact=case.exact)
        problems += [f"result {number}: {line}" for line in lines] if len(expected) > 1 else lines
    return problems


def _named(case: Case, kind: str, name: str | None, known: list[str]) -> str:
    if name is None:
        return known[0]
    if name not in known:
        raise DefinitionError(f'case "{case.name}": the service has no {kind} "{name}"{nearest(name, known)}')
    return name
