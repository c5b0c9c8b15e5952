"""`ServiceJob`: a service and its outputs, on their way to the processes that run pieces."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipelines.arrow.outputs import OutputColumns
from pipelines.errors import StreamerError
from streamer.backfill.locations import place_of
from streamer.backfill.plans.manifest import FOLDER
from streamer.backfill.results import LinesForm, ResultForm, TableForm
from streamer.backfill.rowsfile import Format
from streamer.backfill.worker import PieceWorker
from streamer.definition.openedpipeline import opened_pipeline
from streamer.definition.service import Service
from streamer.shipped import ShippedService, cannot_be_opened

_HOW: Final = "as the working directory of the job: ray job submit --working-dir"


@dataclass(frozen=True, slots=True)
class ServiceJob:
    """What all pieces of a backfill have in common (`streamer.backfill.engines.engine.Job`)."""

    service: ShippedService
    base: Path | None
    """Where relative paths of the pipeline start, on the driver."""
    versions: Mapping[Path, int]
    """The versions of models in version folders, by folder, on the driver."""
    output: str
    """The folder of outputs."""
    format: Format
    """The format of outputs."""
    schema: Any | None
    """The `pyarrow.Schema` of results; `None`: the format needs none."""

    def open(self) -> PieceWorker:
        """A worker with its models loaded. Raises `StreamerError`, also where the folder of outputs is not to be seen,
        as on a machine that has other disks.
        """
        place = place_of(self.output)
        if not place.is_folder(place.child(self.output, FOLDER)):
            raise StreamerError(
                f"{self.output} is not there on {platform.node()}: inputs and outputs have to be where all machines "
                "see them, on a file system that they share or in an object store"
            )
        service = self.service.arrived(Path.cwd)
        try:
            executor = opened_pipeline(service, versions=self._versions(service))
        except (StreamerError, OSError) as error:
            raise cannot_be_opened(service, error, _HOW) from error
        try:
            return PieceWorker(service, executor, self._form(service), self.format, self.output)
        except BaseException:
            executor.close()
            raise

    def _versions(self, service: Service) -> Mapping[Path, int]:
        base = service.pipeline.base
        if base is None or self.base is None or base == self.base:
            return self.versions
        return {
            base / path.relative_to(self.base) if path.is_relative_to(self.base) else path: number
            for path, number in self.versions.items()
        }

    def _form(self, service: Service) -> ResultForm:
        if self.schema is None:
            return LinesForm(service)
        columns = OutputColumns((), errors=False)
        columns.state(list(self.schema))
        return TableForm(columns)
