"""How results become rows of an output: columns of a table, or lines of JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from connectors.codecs.registry import codec_of
from pipelines.arrow.library import pa
from pipelines.arrow.outputs import OutputColumns, of_records
from pipelines.data.batch import Batch
from pipelines.errors import StepError, WireError
from pipelines.hotpath import choosing
from streamer.backfill.payloads import codec_setting
from streamer.definition.service import Service


class ResultForm(ABC):
    """Makes rows of results."""

    schema: Any | None = None
    """The `pyarrow.Schema` of the rows; `None`: they are lines."""

    @abstractmethod
    def rows(self, results: Batch, failed: dict[int, Exception]) -> tuple[Any, int]:
        """The rows of the results as a `RowsFile` takes them, and how many there are.

        Records with a result that cannot be written are put into `failed`, by number; of these there are no rows.
        """


class TableForm(ResultForm):
    """Columns that are known before, each of one type."""

    def __init__(self, columns: OutputColumns) -> None:
        self._columns = columns
        self.schema = columns.schema()

    def rows(self, results: Batch, failed: dict[int, Exception]) -> tuple[Any, int]:
        arrays, results = self._columns.fitting(results, failed)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), results.size


class LinesForm(ResultForm):
    """A JSON document for each result, by the codec that a sink of the service writes it with."""

    def __init__(self, service: Service) -> None:
        with choosing(service.hot_path):
            self._codec = codec_of(codec_setting(service))

    def rows(self, results: Batch, failed: dict[int, Exception]) -> tuple[Any, int]:
        encoded = self._codec.encode(results)
        unfit: Mapping[int, Exception] = encoded.failed
        if not unfit:
            lines = b"\n".join([*encoded.values, b""])
            if lines.count(b"\n") == results.size:
                return lines, results.size
            unfit = _of_several_lines(encoded.values)
        _blame(results, unfit, failed)
        return self.rows(results.take(~of_records(results, failed)), failed)


def _of_several_lines(values: Any) -> Mapping[int, Exception]:
    why = WireError("its JSON has line feeds: write the codec of the sink without pretty")
    return {row: why for row, value in enumerate(values) if value is not None and b"\n" in value}


def _blame(results: Batch, unfit: Mapping[int, Exception], failed: dict[int, Exception]) -> None:
    for position, why in unfit.items():
        for number in results.parents(position).tolist():
            failed.setdefault(number, StepError.of("encode", why))
