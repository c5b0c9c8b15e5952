"""`PieceReader`: reads pieces block by block, and runs the blocks."""

from __future__ import annotations

from collections.abc import Generator

from connectors.config import SourceConfig
from pipelines.data.batch import Batch
from pipelines.executors.executor import Executor
from pipelines.executors.keep import Keep, kept
from streamer.backfill.formats.inputformat import Block, Feed
from streamer.backfill.formats.registry import FORMATS
from streamer.backfill.locations import place_of
from streamer.backfill.payloads import PayloadDecoder, source_for
from streamer.backfill.pieces import Piece
from streamer.definition.service import Service


class PieceReader:
    """Runs the rows of pieces through a service's open pipeline. Owned by one thread."""

    def __init__(self, service: Service, executor: Executor) -> None:
        """`executor`: the service's open pipeline, which somebody else closes."""
        self._service = service
        self._executor = executor
        self._batch = service.batch.for_sources(perishable=False, in_flight=service.limits.in_flight)
        executor.limit(self._batch.max_records)
        self._decoders: list[tuple[SourceConfig, PayloadDecoder]] = []

    def blocks(self, piece: Piece) -> Generator[Block, None, None]:
        """The rows of a piece, block by block. Raises as `InputFormat.blocks`."""
        feed = Feed(
            place_of(piece.files[0].path),
            self._batch.max_records,
            self._batch.max_bytes,
            self._decoder_of,
            self._service,
            self._decoder,
        )
        return FORMATS[piece.format].blocks(piece, feed)

    def run(self, block: Block) -> tuple[Batch, dict[int, Exception]]:
        """The results, with the values of `keep`, and the errors of the records that failed, by row number."""
        result = self._executor.run_batch(block.batch)
        return kept(result.batch, block.origin, self._keep(block)), {**block.failed, **result.failed}

    def _keep(self, block: Block) -> Keep | None:
        keep = self._service.keep
        return keep if keep == "all" or not block.origins else (*(keep or ()), *block.origins)

    def _decoder_of(self, codecs: frozenset[str]) -> PayloadDecoder:
        return self._decoder(source_for(self._service, codecs))

    def _decoder(self, config: SourceConfig) -> PayloadDecoder:
        for known, decoder in self._decoders:
            if known == config:
                return decoder
        made = PayloadDecoder(self._service, config, self._executor, len(self._decoders))
        self._decoders.append((config, made))
        return made
