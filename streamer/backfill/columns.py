"""Which columns the results of a backfill have: as steps state them, else as the first results are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, Final

from pipelines.arrow.declared import UnknownTypesError, check_columns
from pipelines.arrow.library import pa
from pipelines.arrow.outputs import OutputColumns
from pipelines.errors import RAISED, DefinitionError, StreamerError
from pipelines.executors.executor import Executor
from pipelines.executors.sequence import SequenceExecutor
from streamer.backfill.formats.registry import FORMATS
from streamer.backfill.piecereader import PieceReader
from streamer.backfill.pieces import Piece
from streamer.definition.service import Service

_MOST_TRIED: Final = 64
"""How many blocks of rows are run to see what results are."""


def check_inputs(executor: Executor, schemas: Iterable[tuple[str, Any]]) -> None:
    """Raise `DefinitionError` that names the file, if records of a `pyarrow.Schema` lack a column that steps need."""
    for path, schema in schemas:
        try:
            check_columns(executor, schema)
        except StreamerError as error:
            raise DefinitionError(f"{path}: {error}") from None


def schema_of_results(
    service: Service, executor: Executor, schemas: Sequence[tuple[str, Any]], pieces: Sequence[Piece]
) -> tuple[Any, bool]:
    """The `pyarrow.Schema` of the results of these pieces, and whether it is known.

    If no step says it, the first blocks of rows are run. Without any result it is that of the values to keep, and is
    not known. Raises `StreamerError` if the first 64 blocks have no result, as all of their records failed.
    """
    origins = _origins(pieces)
    schema, known = _schema(service, executor, schemas, pieces)
    return pa.schema([*origins, *(field for field in schema if field.name not in origins.names)]), known


def _schema(
    service: Service, executor: Executor, schemas: Sequence[tuple[str, Any]], pieces: Sequence[Piece]
) -> tuple[Any, bool]:
    given = _united(schemas) if all(piece.format in ("parquet", "arrow") for piece in pieces) and schemas else None
    keep = service.keep or ()
    columns = OutputColumns((given.names if given is not None else ()) if keep == "all" else keep, errors=False)
    try:
        columns.state_declared(executor, given)
    except UnknownTypesError:
        if not _settled(columns, PieceReader(service, executor), given, pieces):
            columns.state([field for field in given or () if field.name in columns.keep])
            return columns.schema(), False
        columns.state([*(columns.fields or ()), *_passing_by(executor, given, columns)])
    return columns.schema(), True


def _origins(pieces: Sequence[Piece]) -> Any:
    """The columns of results that say where records of these pieces are from."""
    formats = sorted({piece.format for piece in pieces})
    return pa.schema([field for name in formats for field in FORMATS[name].origins.items()])


def _passing_by(executor: Executor, given: Any | None, columns: OutputColumns) -> list[Any]:
    """The columns of other files than the first, if all steps leave what they do not know in place."""
    if not isinstance(executor, SequenceExecutor) or not all(step.runner.keeps_keys for step in executor.open_steps):
        return []
    known = {field.name for field in columns.fields or ()}
    return [field for field in given or () if field.name not in known]


def _settled(columns: OutputColumns, reader: PieceReader, given: Any | None, pieces: Sequence[Piece]) -> bool:
    tried = 0
    why: Exception | None = None
    for piece in pieces:
        try:
            with closing(reader.blocks(piece)) as blocks:
                for block in blocks:
                    results, failed = reader.run(block)
                    if columns.settle(results, given):
                        return True
                    why = next(iter(failed.values()), why)
                    tried += bool(failed)
                    if tried == _MOST_TRIED:
                        raise _AllFailedError(
                            f"all records of the first {_MOST_TRIED} batches failed, so that the columns of the "
                            f"results are not known: {why}"
                        )
        except _AllFailedError:
            raise
        except RAISED:  # It is a failure of the piece, when that is run.
            continue
    return False


class _AllFailedError(StreamerError):
    """No record has a result."""


def _united(schemas: Sequence[tuple[str, Any]]) -> Any:
    """The columns of all files, each of the type that it has first."""
    fields: dict[str, Any] = {}
    for _, schema in schemas:
        for field in schema:
            fields.setdefault(field.name, field)
    return pa.schema(list(fields.values()))
