"""`konduit`: JSON, ProtoData or a form by the `content-type` of a record, and answers as its `accept` asks for them.

The formats are those of `POST /predict` of Konduit Serving's HTTP server (`InferenceHttpApi`).
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

import numpy as np

from connectors.codec import Codec, Decoded, Encoded, RecordsOrigin
from connectors.codecs.config import MessageConfig
from connectors.codecs.described import CONTENT_TYPE, header_texts, media_type
from connectors.codecs.images.writtenimages import WritesImages
from connectors.codecs.konduit.form import data_of_form
from connectors.codecs.konduitjson import KonduitJson, KonduitJsonConfig
from connectors.codecs.protodata import ProtoData, ProtoDataConfig
from connectors.codecs.rows import payload_bytes, read_each, row_numbers
from connectors.records import Header, Records
from pipelines.data.batch import Batch
from pipelines.data.data import Data, RecordContext
from pipelines.errors import WireError
from pipelines.wire import protobuf
from pipelines.wire.json import loads

JSON: Final = "application/json"
PROTODATA: Final = "application/octet-stream"
FORM: Final = "multipart/form-data"
WRONG_TYPE: Final = "INVALID_CONTENT_TYPE_HEADER"
WRONG_ACCEPT: Final = "INVALID_ACCEPT_HEADER"
CODES: Final = (WRONG_TYPE, WRONG_ACCEPT)
"""Konduit Serving's codes of errors, with which the texts of such errors begin here."""


class KonduitConfig(WritesImages, MessageConfig):
    """Bodies of Konduit Serving over HTTP: JSON, ProtoData or a form, and answers as the client asks for them."""

    built_by: ClassVar[str] = "connectors.codecs.konduit.codec:Konduit"

    type: Literal["konduit"] = "konduit"
    """The type of codec."""
    byte_order: Literal["big", "little"] = "little"
    """Order of the bytes in the base64 of an array in JSON. Later releases of Konduit Serving write `little`."""
    images: Literal["keep", "png", "jpeg"] = "png"
    """`keep` writes the file that was read, and PNG for images that a step has drawn and for video frames; `png` and `jpeg` write all images in this format. Konduit Serving reads PNG only."""  # noqa: E501


class Konduit(Codec):
    """Each record is read by its `content-type`, by default as JSON, and its result is written as its `accept` says.

    A result without a record, or whose record accepts anything, is JSON.
    """

    def __init__(self, config: KonduitConfig | None = None) -> None:
        self._config = config or KonduitConfig()
        images = {"images": self._config.images, "image_quality": self._config.image_quality}
        order = self._config.byte_order
        self._writers: dict[str, Codec] = {
            JSON: KonduitJson(KonduitJsonConfig.model_validate({"byte_order": order, "pretty": True, **images})),
            PROTODATA: ProtoData(ProtoDataConfig.model_validate(images)),
        }
        self.opens_images = self._config.images != "keep"  # type: ignore[misc]

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """Columns of all keys, decoded."""
        headers = header_texts(records)

        def read(position: int, payload: object) -> Data:
            _answer_type(headers[position].get("accept", ""))
            return self._read(headers[position].get(CONTENT_TYPE), payload_bytes(payload, "konduit"))

        rows, failed = read_each(records, first, read)
        batch = Batch.of(list(rows.values()))
        return Decoded(batch.numbered(row_numbers(rows, first), RecordsOrigin(records, first)), failed)

    def encode(self, batch: Batch) -> Encoded:
        """One body for each row, with the header `content-type`."""
        kinds = [_wanted(batch, place) for place in range(batch.size)]
        values: list[bytes | None] = [None] * batch.size
        failed: dict[int, Exception] = {}
        for kind in dict.fromkeys(kinds):
            places = [place for place, other in enumerate(kinds) if other == kind]
            part = batch if len(places) == batch.size else batch.take(np.array(places, np.int64))
            encoded = self._writers[kind].encode(part)
            for place, value in zip(places, encoded.values, strict=True):
                values[place] = value
            failed |= {places[at]: error for at, error in encoded.failed.items()}
        headers: list[list[Header]] = [[(CONTENT_TYPE, kind.encode())] for kind in kinds]
        return Encoded(values, failed, headers)

    def _read(self, content_type: str | None, body: bytes) -> Data:
        kind, limits = media_type(content_type), self._config.limits
        if kind in ("", JSON):
            return loads(body, self._config.byte_order, limits)
        if kind == PROTODATA:
            return protobuf.decode(body, limits)
        if kind == FORM:
            return data_of_form(content_type or "", body, self._config.byte_order, limits)
        raise WireError(
            f'{WRONG_TYPE}: "{kind}"; the content-type of a request is {JSON}, {PROTODATA} (ProtoData) or {FORM}'
        )


def _wanted(batch: Batch, place: int) -> str:
    parents = batch.parents(place)
    record = None if batch.origin is None or not len(parents) else batch.origin.record(int(parents[0]))
    return JSON if record is None else _answer_type(_accept(record))


def _accept(record: RecordContext) -> str:
    texts = [(value or b"").decode(errors="replace") for name, value in record.headers if name.lower() == "accept"]
    return ", ".join(texts)


def _answer_type(accept: str) -> str:
    """The first type of an `accept` that can be written. Raises `WireError` if none can."""
    for kind in map(media_type, accept.split(",")):
        if kind in (JSON, PROTODATA):
            return kind
        if kind in ("", "*/*", "application/*"):
            return JSON
    raise WireError(f'{WRONG_ACCEPT}: "{accept}"; answers are {JSON} or {PROTODATA} (ProtoData)')
