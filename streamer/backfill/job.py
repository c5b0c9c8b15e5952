"""`ServiceJob`: a service and its outputs, on their way to the processes that run pieces."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.arrow.outputs import OutputColumns
from streamer.backfill.results import LinesForm, ResultForm, TableForm
from streamer.backfill.rowsfile import Format
from streamer.backfill.worker import PieceWorker
from streamer.cli.folder import import_from_here
from streamer.definition.openedpipeline import opened_pipeline
from streamer.definition.service import Service


@dataclass(frozen=True, slots=True)
class ServiceJob:
    """What all pieces of a backfill have in common (`streamer.backfill.engines.engine.Job`)."""

    service: bytes
    """The service, pickled: modules of its functions may have to be importable before."""
    file: str
    """The absolute path of its file, beside which such modules lie; empty: it was made in Python."""
    allows_code: bool
    versions: Mapping[Path, int]
    """The versions of models in version folders, by folder."""
    output: str
    """The folder of outputs."""
    format: Format
    """The format of outputs."""
    schema: Any | None
    """The `pyarrow.Schema` of results; `None`: the format needs none."""

    def open(self) -> PieceWorker:
        """A worker with its models loaded. Raises `StreamerError`."""
        import_from_here(*([Path(self.file)] if self.file else []), no_code=not self.allows_code)
        service: Service = pickle.loads(self.service)  # noqa: S301 - of the driver, as the worker itself is
        executor = opened_pipeline(service, versions=self.versions)
        try:
            return PieceWorker(service, executor, self._form(service), self.format, self.output)
        except BaseException:
            executor.close()
            raise

    def _form(self, service: Service) -> ResultForm:
        if self.schema is None:
            return LinesForm(service)
        columns = OutputColumns((), errors=False)
        columns.state(list(self.schema))
        return TableForm(columns)
