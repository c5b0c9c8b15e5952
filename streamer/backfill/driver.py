"""`backfill`: a service's pipeline over files, by an engine that runs pieces of them."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

from pipelines.errors import DefinitionError, StreamerError
from streamer.backfill.columns import check_inputs, schema_of_results
from streamer.backfill.engines.engine import Engine
from streamer.backfill.fingerprint import differences, fingerprint
from streamer.backfill.fitting import check_service, check_steps
from streamer.backfill.job import ServiceJob
from streamer.backfill.locations import place_of
from streamer.backfill.pieces import Outcome, Piece
from streamer.backfill.plans.deadletters import LETTERS, partitions
from streamer.backfill.plans.listing import InputFile, listed
from streamer.backfill.plans.manifest import FOLDER, Entry, Head, Manifest
from streamer.backfill.plans.plan import Plan, planned
from streamer.backfill.rowsfile import Format, check_schema
from streamer.backfill.summary import BackfillSummary
from streamer.definition.openedpipeline import opened_pipeline
from streamer.definition.refusals import check_code
from streamer.definition.service import Service
from streamer.models.files import ModelFiles
from streamer.shipped import ShippedService

_NOTED: Final = 2.0
"""Seconds between two parts of the manifest."""


class Watcher(Protocol):
    """What is told how far a backfill is. In the thread that runs it."""

    def planning(self, files: int, what: str) -> None:
        """So many files were looked at so far; `what` is done with them, as `listed`."""

    def begun(self, pieces: Sequence[Piece], before: int) -> None:
        """These pieces are to be run; so many are done already."""

    def progressed(self, summary: BackfillSummary) -> None:
        """Called when a piece has ended, and at least about every half second."""


def backfill(
    service: Service,
    inputs: Sequence[str],
    output: str,
    engine: Engine,
    *,
    watcher: Watcher,
    stop: threading.Event,
    format: Format = "parquet",
    again: bool = False,
) -> BackfillSummary:
    """Run the service's pipeline over files, and return what was done.

    Args:
        service: The service; its sources and sinks are not opened.
        inputs: Patterns, paths or folders, of this machine or URLs; or "letters", the service's own dead letters.
        output: The folder of results. What is done in it is not done again.
        engine: What runs pieces.
        watcher: Is told of the progress.
        stop: Ends it early once it is set: what is not done then is left to the next run.
        format: The format of results.
        again: Whether all is done anew, also what is done already or was made by another pipeline.

    Raises:
        DefinitionError: For settings that a backfill cannot have, for inputs that do not exist or lack a column, and
            for an output of another pipeline.
        StreamerError: The pipeline cannot be opened, the output cannot be written, or another backfill writes there.
    """
    began = time.monotonic()
    check_service(service)
    check_code(service, connected=False)
    place = place_of(output)
    target = place.absolute(output)
    files = _inputs(service, inputs, target, watcher)
    with place.lock(place.child(target, FOLDER)):
        place.clean(target)
        manifest = Manifest(place, target)
        versions = ModelFiles(service.sequence()).look().versions
        marks = fingerprint(service, versions, inputs)
        if again:
            _forget(manifest, files, place, target)
        elif manifest.head is not None:
            _check_same(manifest.head, marks, format, output)
        plan = planned(files, manifest, lambda count: watcher.planning(count, "looked at"))
        schema = _checked(service, versions, plan, manifest, format)
        for name in plan.stale:
            place.remove(place.child(target, name))
        summary = BackfillSummary(service.name, before=plan.before, changed=plan.changed)
        watcher.begun(plan.pieces, plan.before)
        if plan.pieces:
            manifest.begin(Head(marks, format, schema[0] if schema[1] else None))
            job = _job(service, versions, target, format, schema[0])
            _run(engine.outcomes(job, plan.pieces, stop), manifest, summary, watcher)
            # Of processes that have died in the middle.
            place.clean(target)
        summary.left = len(plan.pieces) - summary.pieces - len(summary.failed)
        summary.stopped = stop.is_set()
        summary.seconds = round(time.monotonic() - began, 3)
        return summary


def _inputs(service: Service, inputs: Sequence[str], target: str, watcher: Watcher) -> list[InputFile]:
    if LETTERS not in inputs:
        return listed(inputs, target, lambda count: watcher.planning(count, "listed"))
    if len(inputs) > 1:
        raise DefinitionError(
            f"--input {LETTERS}: dead letters are no input beside others, as their results have other columns; run "
            f"them alone, with an --output of their own. A file of this name is ./{LETTERS}"
        )
    return partitions(service)


def _run(
    outcomes: Generator[Outcome | None, None, None], manifest: Manifest, summary: BackfillSummary, watcher: Watcher
) -> None:
    done: list[Entry] = []
    noted = time.monotonic()
    with closing(outcomes):
        try:
            for outcome in outcomes:
                if outcome is not None:
                    _count(outcome, summary, done)
                if done and time.monotonic() - noted >= _NOTED:
                    manifest.add(done)
                    done.clear()
                    noted = time.monotonic()
                watcher.progressed(summary)
        finally:
            manifest.add(done)


def _count(outcome: Outcome, summary: BackfillSummary, done: list[Entry]) -> None:
    if outcome.failure is not None:
        summary.failed.append((outcome.piece.label, outcome.failure))
        return
    done.append(Entry.of_outcome(outcome))
    summary.pieces += 1
    summary.rows += outcome.rows
    summary.results += outcome.results
    summary.errors += outcome.errors
    summary.error = summary.error or outcome.error


def _checked(
    service: Service, versions: Any, plan: Plan, manifest: Manifest, format: Format
) -> tuple[Any | None, bool]:
    """The schema of results, if the format needs one, and whether it is known. The pipeline is opened for that."""
    if not plan.pieces:
        return None, False
    executor = opened_pipeline(service, versions=versions)
    try:
        check_steps(service, executor)
        check_inputs(executor, plan.schemas)
        if format == "jsonl":
            return None, False
        if manifest.head is not None and manifest.head.schema is not None:
            return manifest.head.schema, True
        schema, known = schema_of_results(service, executor, plan.schemas, plan.pieces)
        check_schema(format, schema)
        return schema, known
    finally:
        executor.close()


def _check_same(head: Head, marks: dict[str, str], format: Format, output: str) -> None:
    before = {**head.fingerprint, "format": head.format}
    different = differences(before, {**marks, "format": format})
    if different:
        raise DefinitionError(
            f"--output {output} has results that were made otherwise: {', '.join(different)} differs. Choose another "
            "--output, or do all of it anew with --again"
        )


def _forget(manifest: Manifest, files: Sequence[Any], place: Any, target: str) -> None:
    """Remove all outputs and the manifest, in an order in which nothing ever counts as done that is not."""
    listed_paths = {entry.file.path for entry in files}
    lost = [file.path for entry in manifest.entries.values() for file in entry.files if file.path not in listed_paths]
    if lost:
        raise DefinitionError(
            f"--again would remove the results of {len(lost):,} files that are not among the inputs, such as "
            f"{lost[0]}: name them too, or choose another --output"
        )
    outputs = [name for entry in manifest.entries.values() for name in entry.outputs]
    manifest.forget()
    for name in outputs:
        place.remove(place.child(target, name))


def _job(service: Service, versions: Any, target: str, format: Format, schema: Any | None) -> ServiceJob:
    written = service.written
    file = None if written is None or written.file is None else Path(written.file)
    try:
        shipped = ShippedService.of(service, file)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise StreamerError(
            f"service {service.name}: it cannot be sent to other processes ({error}): put the functions of its "
            "pipeline into a module"
        ) from error
    return ServiceJob(shipped, service.pipeline.base, versions, target, format, schema)
