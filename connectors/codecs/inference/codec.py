"""`Inference`: requests of the Open Inference Protocol to rows, and results to answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from connectors.codec import Codec, Decoded, Encoded, RecordsOrigin, failure_document
from connectors.codecs.inference.answers import JSON_HEADERS, Answers
from connectors.codecs.inference.columns import alike, columns, values_of
from connectors.codecs.inference.config import InferenceConfig
from connectors.codecs.inference.message import Ask
from connectors.codecs.inference.reader import Reader, Request
from connectors.codecs.inference.wire import HEADER_LENGTH
from connectors.codecs.rows import payload_bytes
from connectors.records import Header, Records
from connectors.source import Served
from pipelines.data.batch import Batch
from pipelines.data.rowrange import row_range
from pipelines.hotpath import HotPathReport, choose

_OF_REQUESTS: Final = frozenset({HEADER_LENGTH, "content-type", "content-length"})
"""Headers that describe the payload of a request, so that its results do not have them."""


class Inference(Codec):
    """A request is a row whose keys are the names of its inputs; a row is the answer, with an output for each key.

    codec = InferenceConfig().build()
    """

    opens_images: ClassVar[bool] = False

    def __init__(self, config: InferenceConfig | None = None) -> None:
        config = config or InferenceConfig()
        choice = choose()
        self._hot_path = choice.report
        self._native = choice.native
        self._reader = Reader(config.max_bytes, choice.native)
        self._version: Callable[[], str] = lambda: ""
        """Says which version makes results, where a service does; empty: as the request or the configuration says."""
        self._versions: Callable[[Batch], Sequence[str] | None] = lambda batch: None
        """The same for each row, where several versions run."""
        self._named = "model" in config.model_fields_set
        self._ask = Ask(
            "grpc" if config.form == "grpc" else "http", all_binary=config.form == "binary", model=config.model
        )

    @property
    def hot_path(self) -> HotPathReport:
        """Compiled where that was built and is wanted."""
        return self._hot_path

    def serves(self, served: Served) -> None:
        """Requests are checked against the inputs and outputs of this pipeline, and results have its service's name."""
        self._reader.serves(served)
        self._version = served.version
        self._versions = served.versions
        if not self._named:
            self._ask = replace(self._ask, model=served.service)

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """An array, or strings, for each input; what a request asks of its answer is in the origin of the batch."""
        headers = records.header_column()
        failed: dict[int, Exception] = {}
        read: list[Request] = []
        places: list[int] = []
        for place, payload in enumerate(records.values):
            if payload is None:
                continue
            try:
                # A view of bytes needs no copy, as nobody can change them.
                is_view = isinstance(payload, memoryview) and isinstance(payload.obj, bytes)
                body = payload if is_view else payload_bytes(payload, "inference")
                request = self._reader.read(body, None if headers is None else headers[place])
            except Exception as error:  # noqa: BLE001 - any exception fails this record alone
                failed[first + place] = error
            else:
                read.append(request)
                places.append(place)
        made = alike(read)
        if made is None:
            wrong: dict[int, Exception] = {}
            rows = values_of(read, wrong)
            if wrong:
                failed |= {first + places[at]: error for at, error in wrong.items()}
                left = [at for at in range(len(read)) if at not in wrong]
                read, rows, places = [read[at] for at in left], [rows[at] for at in left], [places[at] for at in left]
            made = columns(read, rows)
        whole = len(read) == len(records)
        asks: list[Ask | None] = [None] * len(records)
        for place, request in zip(places, read, strict=True):
            asks[place] = request.ask
        described = records if headers is None else records.without_headers(_OF_REQUESTS)
        metadata = [request.head.metadata for request in read]
        batch = Batch(
            made,
            len(read),
            rows=row_range(first, len(read)) if whole else np.array(places, np.int64) + first,
            metadata=metadata if any(entry is not None for entry in metadata) else None,
            origin=RecordsOrigin(described, first, asks),
        )
        samples = [request.head.samples for request in read]
        return Decoded(batch, failed, None if set(samples) <= {1} else np.array(samples, np.int64))

    def encode(self, batch: Batch) -> Encoded:
        """An answer for each row, with its outputs in the order that its request names, or of the batch's keys."""
        failed: dict[int, Exception] = {}
        values: list[bytes | None] = [None] * batch.size
        headers: list[Sequence[Header]] = [()] * batch.size
        answers = Answers(batch, failed, self._native, self._version(), self._versions(batch))
        for row, ask in enumerate(self._asks(batch)):
            if row in failed:
                continue
            try:
                values[row], headers[row] = answers.write(row, ask)
            except Exception as error:  # noqa: BLE001 - as above
                failed[row] = error
        return Encoded(values, failed, headers)

    def encode_failures(self, batch: Batch) -> Encoded:
        """`{"error": TEXT, "step": NAME}` for each row."""
        texts = [failure_document(batch, row) for row in range(batch.size)]
        return Encoded(texts, {}, [JSON_HEADERS] * batch.size)

    def _asks(self, batch: Batch) -> list[Ask]:
        origin = batch.origin
        if not isinstance(origin, RecordsOrigin) or origin.asks is None:
            return [self._ask] * batch.size
        asks, first, count = origin.asks, origin.first, len(origin.asks)
        rows: Sequence[int]
        if batch.splits is None:
            rows = batch.row_numbers if isinstance(batch.row_numbers, range) else batch.rows.tolist()
        else:
            rows = [int(batch.parents(row)[0]) if len(batch.parents(row)) else -1 for row in range(batch.size)]
        return [self._asked(asks[row - first] if 0 <= row - first < count else None) for row in rows]

    def _asked(self, ask: object) -> Ask:
        return ask if isinstance(ask, Ask) else self._ask
