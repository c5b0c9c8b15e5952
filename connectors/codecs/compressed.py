"""`compressed`: gzip or zstd around the payloads of another codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Literal

from pydantic import Field, model_validator

from connectors.codec import Decoded, Encoded, RecordsOrigin
from connectors.codecs.compression import FORMATS, Format, detected
from connectors.codecs.described import CONTENT_ENCODING, CONTENT_TYPE, header_texts, media_type
from connectors.codecs.registry import codec_of
from connectors.codecs.rows import payload_bytes, read_each
from connectors.codecs.wrapping import Wrapper, WrapperConfig
from connectors.records import Header, Records
from connectors.units import Size
from pipelines.data.batch import Batch
from pipelines.errors import WireError
from pipelines.plugins.requirements import Requires, any_of

_NAMES: Final = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd", "": None, "identity": None}
"""The values of `content-encoding` and the formats that they mean; `None`: not compressed."""
_TYPES: Final = {"application/gzip": "gzip", "application/x-gzip": "gzip", "application/zstd": "zstd"}
_WITH_ZSTD: Final = any_of("compression.zstd", "backports.zstd", extra="zstd")


class CompressedConfig(WrapperConfig):
    """Payloads of another codec, compressed with gzip or zstd; the output is bounded."""

    built_by: ClassVar[str] = "connectors.codecs.compressed:Compressed"

    type: Literal["compressed"] = "compressed"
    """The type of codec."""
    by: Literal["detect", "headers", "gzip", "zstd"] = "detect"
    """Which payloads are taken for compressed. `gzip` or `zstd`: all, in this format. `headers`: those whose record has a `content-encoding` or `content-type` that says so. `detect`: those that begin with the magic bytes of gzip or zstd; not for `tensor` and `raw`, whose payloads may begin with the same bytes by chance."""  # noqa: E501
    max_size: Size = Field(default=16 << 20, gt=0)
    """Bytes of the largest payload when decompressed; a larger one fails, and is not decompressed further."""
    write: Literal["gzip", "zstd", "none"] | None = None
    """The compression of results; by default the format that `by` names, else gzip. With `by: headers` their header `content-encoding` names it."""  # noqa: E501
    level: int | None = None
    """How hard to compress: 0 to 9 for gzip, by default 6; 1 to 22 for zstd, by default 3."""

    @model_validator(mode="after")
    def _level_of_the_form(self) -> CompressedConfig:
        form = self.form
        if self.level is not None and (form is None or self.level not in form.levels):
            there = "there is none to choose" if form is None else f"{form.levels[0]} to {form.levels[-1]}"
            raise ValueError(f"level {self.level} does not exist for {self.written}: {there}")
        return self

    @model_validator(mode="after")
    def _told_apart(self) -> CompressedConfig:
        if self.by == "detect" and self.wrapped.type == "tensor":
            raise ValueError(
                "the bytes of a tensor may begin as any form does by chance: add by: gzip, zstd or headers"
            )
        return self

    @property
    def written(self) -> str:
        """The name of the format that results are written in, or `none`."""
        return self.write or (self.by if self.by in FORMATS else "gzip")

    @property
    def form(self) -> Format | None:
        """The format that results are written in; `None`: they are not compressed."""
        return FORMATS.get(self.written)

    @property
    def needs(self) -> Requires:
        """A library for zstd, where the configuration names zstd; else the first zstd payload needs it."""
        return _WITH_ZSTD if "zstd" in (self.by, self.written) else ()


class Compressed(Wrapper):
    """Compressed payloads and plain ones, mixed row by row.

    codec = CompressedConfig(codec="json", by="headers").build()
    """

    def __init__(self, config: CompressedConfig | None = None) -> None:
        self._config = config or CompressedConfig()
        super().__init__(codec_of(self._config.codec, self._config.sink_topic))

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """The decompressed payloads, decoded by the inner codec.

        The header `content-encoding` is removed from the records.
        """
        form = self._reader(records)
        limit = self._config.max_size

        def opened_payload(row: int, payload: object) -> bytes:
            raw = payload_bytes(payload, "compressed")
            compression = form(row, raw)
            return raw if compression is None else compression.decompressed(raw, limit)

        values, failed = read_each(records, first, opened_payload)
        # The inner codec gets a payload that failed as a tombstone.
        payloads = [values.get(row) for row in range(len(records))]
        inside = self._inside.decode(records.with_values(payloads), wanted, first)
        inner = inside.batch.origin
        origin = inner if isinstance(inner, RecordsOrigin) else RecordsOrigin(records, first)
        opened = origin.of_payloads(records, (CONTENT_ENCODING,))
        return Decoded(inside.batch.with_origin(opened), failed | dict(inside.failed), inside.samples)

    def encode(self, batch: Batch) -> Encoded:
        """The payloads of the inner codec, compressed."""
        form, level = self._config.form, self._config.level
        inside = self._inside.encode(batch)
        if form is None:
            return inside
        values = [None if value is None else form.compressed(value, level) for value in inside.values]
        if self._config.by != "headers":
            return Encoded(values, inside.failed, inside.headers)
        said = (CONTENT_ENCODING, form.name.encode())
        headers: Sequence[Sequence[Header]] = inside.headers or [()] * len(values)
        return Encoded(values, inside.failed, [(*row, said) for row in headers])

    def _reader(self, records: Records) -> Callable[[int, bytes], Format | None]:
        """A function that returns the format of a row's payload; `None`: not compressed."""
        if self._config.by == "detect":
            return lambda row, payload: detected(payload)
        if self._config.by == "headers":
            headers = header_texts(records)
            return lambda row, payload: _said(headers[row].get(CONTENT_ENCODING), headers[row].get(CONTENT_TYPE))
        form = FORMATS[self._config.by]
        return lambda row, payload: form


def _said(encoding: str | None, content_type: str | None) -> Format | None:
    if encoding is not None:
        name = encoding.strip().lower()
        if name not in _NAMES:
            raise WireError(f'the content-encoding "{encoding[:100]}" is not one of gzip, zstd and identity')
        return None if _NAMES[name] is None else FORMATS[str(_NAMES[name])]
    kind = media_type(content_type)
    named = _TYPES.get(kind) or kind.rpartition("+")[2]
    return FORMATS.get(named)
