"""Blocks of payloads for tests of codecs, and what a codec makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import pipelines
from connectors.codecs.registry import codec_of
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from connectors.records import Header, Lane, Records, Span
from pipelines import Data
from streamer.definition.service import Service

Setting = str | dict[str, Any]


def block(values: Sequence[Any], headers: Sequence[Sequence[Header] | None] | None = None) -> Records:
    """Records of these payloads, of one partition of `topic`."""
    count = len(values)
    spans = [Span(Lane("bus", "0", 0), 0, count)]
    positions = np.arange(count, dtype=np.int64)
    return Records("bus", list(values), None, positions, spans, ["topic"], [0], 0, headers=lambda: headers)


def read(
    setting: Setting,
    *payloads: Any,
    wanted: frozenset[str] | None = None,
    headers: Sequence[Sequence[Header] | None] | None = None,
) -> list[Data | str]:
    """The records of these payloads, each its values or the text of its error."""
    decoded = codec_of(setting).decode(block(payloads, headers), wanted)
    rows = dict(zip(decoded.batch.rows.tolist(), decoded.batch.to_list(), strict=True))
    return [rows[row] if row in rows else str(decoded.failed[row]) for row in range(len(payloads))]


def service_of(
    step: Callable[[Data], Any], source: Setting = "protodata", sink: Setting = "protodata", **fields: Any
) -> Service:
    """A service of one function on memory connectors, with a dead letter."""
    return Service(
        name="codecs",
        source=MemorySourceConfig(topic="in", codec=source),
        pipeline=pipelines.Sequence([step]),
        sink=MemorySinkConfig(topic="out", codec=sink),
        **{"dead_letter": MemorySinkConfig(topic="dead"), **fields},
    )
