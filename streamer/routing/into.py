"""`Into`: the values that `into` of a source makes of its records' metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from connectors.codec import Decoded
from connectors.config import SourceConfig
from connectors.metadata.bytetypes import ByteType, read_bytes
from connectors.metadata.codedkeys import CodedKeys
from connectors.records import Records
from pipelines.data.columns import Column
from pipelines.errors import WireError
from streamer.routing.provenance import header_values, record_column


class Into:
    """Which metadata of a source's records becomes which value, and how keys and headers are read."""

    def __init__(
        self,
        into: Mapping[str, str],
        key_type: ByteType | None = None,
        header_types: Mapping[str, ByteType] | None = None,
        coded_keys: CodedKeys | None = None,
    ) -> None:
        """`into` maps key, timestamp, topic, partition, offset, source, `headers.NAME`, or a name that the source
        declares, to the value's key. Without a type keys and headers become text if they are UTF-8, else bytes.
        `coded_keys` reads keys, also their values `key.NAME`.
        """
        self._into = into
        self._coded_keys = coded_keys
        types = {f"headers.{name}": of for name, of in (header_types or {}).items()}
        if key_type is not None:
            types["key"] = key_type
        self._types = {name: types[name] for name in into if name in types}

    @classmethod
    def of(cls, source: SourceConfig) -> Into:
        """That of this source. Raises the errors of building the codec of its keys."""
        into, setting = source.into, source.key_codec
        asked = any(name == "key" or name.startswith("key.") for name in into)
        coded = CodedKeys(setting, into) if setting is not None and asked else None
        return cls(into, source.key_type, source.header_types, coded)

    def __bool__(self) -> bool:
        return bool(self._into)

    def put(self, decoded: Decoded, records: Records, first: int) -> Decoded:
        """The same rows with these values. One replaces a value of the payload that has the same key; a row lacks the
        value if its record lacks the metadata. Records with a key or header that is not of its type fail.

        `decoded` is what a codec made of `records`, the first of which has the row number `first`. Raises
        `ConnectorError` as the codec of keys does.
        """
        batch = decoded.batch
        failed: dict[int, Exception] = {}
        keys = {} if self._coded_keys is None else self._coded_keys.read(records, failed)
        known = batch.row_range
        places = None if known is not None and len(known) == len(records) else batch.rows - first
        columns: dict[str, Column] = {}
        for name, key in self._into.items():
            of = self._types.get(name)
            if of is None and name not in keys:
                columns[key] = record_column(batch, name)
                continue
            column = keys[name] if of is None else _typed(records, name, of, failed)
            columns[key] = column if places is None else column.take(places)
        batch = batch.with_columns(columns)
        if not failed:
            return Decoded(batch, decoded.failed, decoded.samples)
        return _without(Decoded(batch, decoded.failed, decoded.samples), failed, first)


def _typed(records: Records, name: str, of: ByteType, failed: dict[int, Exception]) -> Column:
    """The key or header `name` of all records of a block; `failed` gets the errors by place in the block."""
    entries: Sequence[bytes | None] | None
    if name == "key":
        entries, what = records.keys, "the key"
    else:
        header = name.removeprefix("headers.")
        entries, what = header_values(records.header_column(), header), f'the header "{header}"'
    if entries is None:
        return Column.absent(len(records))
    wrong: dict[int, WireError] = {}
    column = read_bytes(entries, of, what, wrong)
    for place, error in wrong.items():
        failed.setdefault(place, error)
    return column


def _without(decoded: Decoded, failed: Mapping[int, Exception], first: int) -> Decoded:
    """Without the rows of these records, by place, which fail. Records without rows have failed before, or have no
    payload."""
    rows = decoded.batch.rows
    wrong = np.isin(rows, np.fromiter(failed, np.int64) + first)
    errors = {row: failed[row - first] for row in rows[wrong].tolist()}
    samples = None if decoded.samples is None else decoded.samples[~wrong]
    return Decoded(decoded.batch.take(~wrong), {**decoded.failed, **errors}, samples)
