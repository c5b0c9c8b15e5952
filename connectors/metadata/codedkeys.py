"""`CodedKeys`: record keys that a codec reads, such as Avro of a schema registry, as the values that `into` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from connectors.codecs.config import CodecConfig
from connectors.codecs.guarded import Guarded
from connectors.codecs.registry import codec_config
from connectors.codecs.schemas.framing import HEADER, KEY_HEADER
from connectors.records import Header, Records
from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.errors import DefinitionError, WireError, nearest
from pipelines.plugins.requirements import required

WHOLE: Final = "key"
_FIELD: Final = "key."
_VALUE: Final = "__key__"
"""The key of a record key that is one value, in the codec that reads it."""


class CodedKeys:
    """Reads the keys of records by a codec."""

    def __init__(self, setting: Mapping[str, Any], into: Mapping[str, str]) -> None:
        """`setting` is that of the codec, `into` that of the source.

        Raises:
            DefinitionError: As for `check_keys`.
            MissingPackageError: A package that the codec needs is not installed.
        """
        config = check_keys(setting, into)
        required(config.needs).check(f"the codec {config.type}")
        self._codec = Guarded(config.build(), config.type)
        self._single = WHOLE in into
        value = getattr(config, "value_key", None) or _VALUE
        self._keys = {name: value if name == WHOLE else name.removeprefix(_FIELD) for name in into if _of_key(name)}

    def read(self, records: Records, failed: dict[int, Exception]) -> dict[str, Column]:
        """The columns of all N records, by the names that `into` has for them. `failed` gets the errors by place.

        Raises:
            ConnectorError: A schema registry does not answer, for example.
        """
        count = len(records)
        if records.keys is None:
            return {name: Column.absent(count) for name in self._keys}
        decoded = self._codec.decode(_as_payloads(records, records.keys), frozenset(self._keys.values()))
        for place, error in decoded.failed.items():
            failed.setdefault(place, WireError(f"the key cannot be read: {error}"))
        batch, places = decoded.batch, decoded.batch.rows
        several = places[1:][np.diff(places) == 0]
        for place in several.tolist():
            failed.setdefault(place, WireError("the key holds several records; its codec has to read it as one"))
        if self._single:
            for place, why in _records(batch, self._keys[WHOLE]).items():
                failed.setdefault(place, WireError(why))
        index = np.full(count, -1, np.int64)
        index[places] = np.arange(len(places))
        return {name: _spread(batch.columns.get(key), index) for name, key in self._keys.items()}


def check_keys(setting: Mapping[str, Any], into: Mapping[str, str]) -> CodecConfig:
    """The codec of keys of this setting, which reads what `into` takes of them.

    Raises:
        DefinitionError: Unknown codec or option; a codec that does not read bytes, or does not read what `into` takes.
    """
    config = codec_config(setting)
    if config.carries != "bytes":
        raise DefinitionError(f"the codec {config.type} is for {config.carries}, and keys are bytes; choose another")
    if WHOLE in into:
        single = config.of_values(_VALUE)
        if single is None:
            raise DefinitionError(
                f"the codec {config.type} reads keys that are records; name a value in it, into: {{key.NAME: "
                f"{into[WHOLE]}}}"
            )
        return single
    fields = config.read_fields()
    for name in into if fields is not None and not fields.others else ():
        if _of_key(name) and fields is not None and (field := name.removeprefix(_FIELD)) not in fields.names:
            raise DefinitionError(f'into: keys have no "{field}"{nearest(field, fields.names)}')
    return config


def _of_key(name: str) -> bool:
    return name == WHOLE or name.startswith(_FIELD)


def _as_payloads(records: Records, keys: Sequence[bytes | None]) -> Records:
    """The same records with their keys as payloads."""

    def headers() -> Sequence[Sequence[Header] | None] | None:
        # A header that names the schema of the key is to the codec as one of the payload.
        column = records.header_column()
        if column is None:
            return None
        return [[(HEADER, value) for name, value in row or () if name == KEY_HEADER] or None for row in column]

    return replace(records, values=keys, faults={}, headers=headers, _cache={})


def _records(batch: Batch, value: str) -> dict[int, str]:
    """Why these keys, by place, are not one value but records."""
    everywhere = np.ones(batch.size, np.bool_)
    masks = {key: everywhere if column.mask is None else column.mask for key, column in batch.columns.items()}
    single = masks.pop(value, ~everywhere)
    wrong: dict[int, str] = {}
    for row in np.flatnonzero(np.logical_or.reduce([*masks.values()]) & ~single).tolist() if masks else ():
        names = [key for key, there in masks.items() if there[row]]
        wrong[int(batch.rows[row])] = (
            f"the key is a record with the values {', '.join(names[:_SHOWN])}; take one of them, into: "
            f"{{key.{names[0]}: KEY}}"
        )
    return wrong


def _spread(column: Column | None, index: Any) -> Column:
    """The values at these positions, absent where they are -1."""
    if column is None:
        return Column.absent(len(index))
    if len(column) == len(index) and (index >= 0).all():
        return column.take(index)
    return Column.concat([column, Column.absent(1)]).take(np.where(index < 0, len(column), index))


_SHOWN: Final = 5
