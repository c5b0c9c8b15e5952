"""Which codec would read a payload that another one cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.codecs.compression import detected
from connectors.codecs.config import CodecConfig
from connectors.codecs.registry import CODECS, codec_of
from connectors.codecs.schemas.framing import foreign_form
from connectors.message import Message, records_of
from pipelines.errors import step_of

if TYPE_CHECKING:
    from streamer.agent.decodedbatch import DecodedBatch

_TRIED: Final = ("json", "konduit-json", "image", "protodata", "sparkplug", "msgpack")
"""Codecs to try, the strictest first. Not `raw` and `text`, which read any payload, nor `csv`, which reads any text."""
LARGEST: Final = 1 << 20
"""Bytes of a payload that a running service tries with other codecs at most: its records wait meanwhile."""
_FRAME: Final = 5
"""Bytes before a payload of a schema registry: 0 and the id of the schema."""
_MOST_ID: Final = 1 << 24
_REGISTRY: Final = {"url": "http://localhost:8081"}
_COMPRESSED: Final[dict[str, Any]] = {"type": "compressed", "codec": "NAME"}
"""The setting for a compressed payload whose content is not known."""
_XERIAL: Final = b"\x82SNAPPY\x00"
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.:/-]*")


class Fitting(NamedTuple):
    """A codec that would read a payload."""

    codec: str | dict[str, Any] | None
    """Its name, or its setting as service files have it; `None` if there is none that could."""
    why: str = ""
    """The format that the payload looks like, if it is a guess: `framed by a schema registry (schema id 7)`."""

    @property
    def in_file(self) -> str:
        """The setting as text for a service file, of one line."""
        return _flow(self.codec)

    @property
    def as_option(self) -> str:
        """The setting as the option `--codec` takes it."""
        return self.codec if isinstance(self.codec, str) else f"'{json.dumps(self.codec)}'"


def fitting_codec(payload: bytes) -> Fitting | None:
    """The codec that decodes the payload to at least one value, or the one of the format that it looks like.

    The codecs of plain payloads are tried. Payloads of schema registries, gzip, zstd and Snappy are recognised by
    their first bytes. Last comes text with commas and the like.
    """
    fitting = _compressed(payload) or _framed(payload) or _read(payload)
    return fitting or _table(payload)


def _read(payload: bytes) -> Fitting | None:
    records = records_of([Message(payload)], "payload")
    for name in _TRIED:
        if name not in CODECS.known:
            continue
        try:
            decoded = codec_of(name).decode(records, None)
            if not decoded.failed and any(len(data) for data in decoded.batch.to_list()):
                return Fitting(name)
        except Exception:  # noqa: BLE001, S112 - no package, no values, or bytes made to break it: no hint is worth that
            continue
    return None


def _framed(payload: bytes) -> Fitting | None:
    schema = int.from_bytes(payload[1:_FRAME], "big")
    form = foreign_form(payload)
    if form is not None:
        return Fitting(None, form)
    if len(payload) <= _FRAME or payload[0] or not 0 < schema < _MOST_ID:
        return None
    why = f"framed by a schema registry (schema id {schema})"
    rest = payload[_FRAME:]
    if rest[:1] in (b"{", b"["):
        return Fitting({"type": "json-schema", "registry": _REGISTRY}, why)
    # Of a message of protobuf the place in its schema comes next, which is 0 as a rule; few records of Avro begin so.
    kinds = ("protobuf", "avro") if rest[0] == 0 else ("avro", "protobuf")
    return Fitting({"type": kinds[0], "registry": _REGISTRY}, f"{why}; if not {kinds[0]}, type: {kinds[1]}")


def _compressed(payload: bytes) -> Fitting | None:
    if payload.startswith(_XERIAL):
        return Fitting(
            None,
            "Snappy, compressed before they came to Kafka, which no codec reads: let the producer's client compress "
            "(compression.type), or use gzip or zstd",
        )
    form = detected(payload)
    if form is None:
        return None
    try:
        plain = form.decompressed(payload, LARGEST)
        inside = _framed(plain) or _read(plain) or _table(plain)
    except Exception:  # noqa: BLE001 - damaged, too large, or a package is missing: the content stays unknown
        inside = None
    if inside is None or inside.codec is None:
        return Fitting(_COMPRESSED, f"{form.name} of a payload that is not known")
    return Fitting(
        {"type": "compressed", "codec": inside.codec}, f"{form.name}{inside.why and f' of a payload {inside.why}'}"
    )


def _table(payload: bytes) -> Fitting | None:
    try:
        lines = payload.decode().splitlines()
    except UnicodeDecodeError:
        return None
    if not 0 < len(lines) <= 2 or lines[0][:1] in ("{", "[", "<") or not all(map(str.isprintable, lines)):
        # A broken JSON or XML document has commas, too.
        return None
    delimiter = max(",;|", key=lines[0].count)
    count = lines[0].count(delimiter) + 1
    if count == 1 or any(line.count(delimiter) + 1 != count for line in lines):
        return None
    more = {} if delimiter == "," else {"delimiter": delimiter}
    if len(lines) == 2:
        return Fitting({"type": "csv", **more} if more else "csv", f"a header and a row of {count} fields")
    names = [f"NAME_{number}" for number in range(1, count + 1)] if count <= 4 else ["NAME_1", "NAME_2", "..."]
    return Fitting({"type": "csv", "names": names, **more}, f"a row of {count} fields")


def is_read_with(config: CodecConfig, codec: str | dict[str, Any]) -> bool:
    """Whether the source's codec is this one already, or reads the payloads of registries as this one does."""
    if codec is _COMPRESSED:
        return config.type == "compressed"
    if isinstance(codec, str):
        return config.type == codec
    if "registry" in codec:
        return getattr(config, "registry", None) is not None
    inner = codec.get("codec")
    if inner is not None:
        return config.type == codec["type"] and config.wrapped is not None and is_read_with(config.wrapped, inner)
    return config.type == str(codec["type"])


def _flow(setting: Any) -> str:
    if isinstance(setting, dict):
        return "{" + ", ".join(f"{key}: {_flow(value)}" for key, value in setting.items()) + "}"
    if isinstance(setting, list):
        return f"[{', '.join(map(_flow, setting))}]"
    return setting if _PLAIN.fullmatch(setting) and "://" not in setting else json.dumps(setting)


class CodecHints:
    """Logs once for each source which codec would read its payloads, where the source's own codec cannot.

    One payload of a source is tried, so that a topic of broken records costs no more than one.
    """

    def __init__(self, log: Any, configs: Mapping[str, CodecConfig]) -> None:
        """`configs` has the codec of each source, by the source's name: it is no news that this codec reads a payload.

        Payloads of other sources are not tried.

        A codec reads more when no step asks for a value, such as a number that is too large for any type.
        """
        self._log = log
        self._configs = configs
        self._fittings: dict[str, Fitting | None] = {}

    def look(self, decoded: DecodedBatch, place: Callable[[int], str]) -> None:
        """Try the payload of the first row that could not be decoded, if none of its source was tried before.

        `place` gives topic, partition and offset of a row's record, as text. Payloads that are empty, larger than
        `LARGEST`, or no bytes, such as a camera's picture, are passed over.
        """
        if decoded.source in self._fittings or decoded.source not in self._configs:
            return
        for row, error in decoded.failed.items():
            if step_of(error) != "decode":
                continue
            payload = decoded.records.values[row - decoded.first]
            if isinstance(payload, bytes) and 0 < len(payload) <= LARGEST:
                fitting = fitting_codec(payload)
                if (
                    fitting is not None
                    and fitting.codec is not None
                    and is_read_with(self._configs[decoded.source], fitting.codec)
                ):
                    fitting = None
                self._fittings[decoded.source] = fitting
                if fitting is not None:
                    self._tell(fitting, decoded.source, place(row))
                return

    def of(self, source: str) -> str:
        """The hint to add to the error that stops the service; empty if no codec was found."""
        fitting = self._fittings.get(source)
        if fitting is None:
            return ""
        if fitting.codec is None:
            return f"; such payloads look like {fitting.why}"
        looks = f"; they look like {fitting.why}" if fitting.why else ""
        return f'; such payloads are read with "codec: {fitting.in_file}" in the source {source}{looks}'

    def _tell(self, fitting: Fitting, source: str, at: str) -> None:
        if fitting.codec is None:
            self._log.warning("no codec reads this record", source=source, at=at, looks_like=fitting.why)
        elif fitting.why:
            self._log.warning(
                "another codec reads this record", source=source, at=at, codec=fitting.in_file, looks_like=fitting.why
            )
        else:
            self._log.warning("another codec reads this record", source=source, at=at, codec=fitting.in_file)
