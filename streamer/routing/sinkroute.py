"""`SinkRoute`: makes the messages of one sink from a batch of results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from connectors.blockcolumns import joined
from connectors.codec import Codec, RecordsOrigin
from connectors.config import SinkConfig
from connectors.records import Header, Ints, Messages
from connectors.sink import Sink
from pipelines.data.batch import Batch
from pipelines.errors import StepError
from streamer.agent.decodedbatch import DecodedBatch
from streamer.routing.provenance import record_column, record_headers, record_keys, record_timestamps
from streamer.routing.selection import Selected, Selection, selection

Failed = dict[int, Exception]
"""Row number to the error."""


def _never() -> bool:
    return False


@dataclass(slots=True)
class SinkRoute:
    """A sink with its codec, its selection of results, and the record metadata that its messages carry."""

    name: str
    sink: Sink
    codec: Codec
    selection: Selection
    source_timestamp: bool = False
    headers: bool = True
    record_headers: Mapping[str, str] = field(default_factory=dict)
    answers: bool = False
    """Whether its messages go back to the clients that sent the records: the service waits for none of them."""
    drops: Callable[[], bool] = _never
    """Whether messages are dropped while the sink is full; otherwise the service waits."""
    blocked: str | None = None
    """Why the messages of this sink wait: its codec can write none (a schema registry is away), or the sink accepts
    none (its disk is full); `None` while they leave."""

    @classmethod
    def of(
        cls,
        config: SinkConfig,
        sink: Sink,
        codec: Codec,
        name: str,
        record_names: Iterable[str] = (),
        *,
        sources: Sequence[str] = (),
        perishable: Callable[[], bool] = _never,
    ) -> SinkRoute:
        """The route of a sink's configuration; `record_names` are those which the service's sources declare, `sources`
        their names in the order of their numbers, and `perishable` tells whether all sources are at present.

        Raises `DefinitionError` for a bad `when`, `topic` or `topics`.
        """
        chosen, addressing = selection(config, f"sink {name}", record_names, sources), config.addressing
        # In an outbox messages wait for themselves.
        answers = config.answers and config.outbox is None
        chosen_drop = config.when_full == "drop"
        drops = perishable if config.when_full is None else lambda: chosen_drop
        if addressing is None:
            return cls(name, sink, codec, chosen, answers=answers, drops=drops)
        stamped, headers, records = addressing.source_timestamp, addressing.headers, addressing.record_headers
        return cls(name, sink, codec, chosen, stamped, headers, records, answers, drops)

    def down(self) -> str | None:
        """Why no result gets to the sink at present; `None` if they do."""
        return self.blocked or self.sink.down()

    def messages(self, selected: Selected) -> tuple[Messages, Failed]:
        """One message for each selected row, and the rows whose values the codec cannot write, which have none."""
        batch = selected.batch
        encoded = self.codec.encode(batch)
        messages = self._block(batch, encoded.values, selected.keys, selected.topics, encoded.headers)
        failed: Failed = {}
        for position, error in encoded.failed.items():
            wrapped = StepError.of(f"sink {self.name}", error)
            failed.update(dict.fromkeys(batch.parents(position).tolist(), wrapped))
        return messages, failed

    def tombstones(self, decoded: DecodedBatch) -> tuple[Messages, Failed]:
        """The records of `decoded` that have no payload, as messages without one, and those that have no topic here."""
        rows = np.array(decoded.tombstones, np.int64)
        batch = Batch({}, len(rows), rows=rows, origin=RecordsOrigin(decoded.records, decoded.first))
        chosen = self.selection
        bare = Selection(chosen.sink, topic=chosen.topic, topics=chosen.topics, sources=chosen.sources)
        selected = bare.apply(batch)
        messages = self._block(selected.batch, [None] * selected.batch.size, None, selected.topics)
        return messages, selected.failed

    def _block(
        self,
        batch: Batch,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        topics: list[str] | None,
        own: Sequence[Sequence[Header]] | None = None,
    ) -> Messages:
        headers = record_headers(batch) if self.headers else None
        if self.record_headers and (told := self._told(batch)) is not None:
            headers = _with_own(headers, told)
        return Messages(
            rows=batch.rows,
            values=values,
            keys=record_keys(batch) if keys is None else keys,
            headers=headers if own is None else _with_own(headers, own),
            timestamps=record_timestamps(batch) if self.source_timestamp else None,
            topics=topics,
            splits=batch.splits,
            row_range=batch.row_range,
        )

    def _told(self, batch: Batch) -> list[list[Header]] | None:
        """The source's metadata of the records as headers; `None` if no record has any."""
        found: list[list[Header]] = [[] for _ in range(batch.size)]
        for name, header in self.record_headers.items():
            column = record_column(batch, name)
            for row in np.flatnonzero(column.present).tolist():
                value = column[row]
                found[row].append((header, value.encode() if isinstance(value, str) else bytes(value)))
        return found if any(found) else None


def _with_own(
    headers: Sequence[Sequence[Header] | None] | None, own: Sequence[Sequence[Header]]
) -> list[Sequence[Header] | None]:
    """The headers of the records, with those of the codec in place of headers of the same names."""
    made: list[Sequence[Header] | None] = []
    for row, added in zip([None] * len(own) if headers is None else headers, own, strict=True):
        names = {name.lower() for name, _ in added}
        made.append([*(one for one in row or () if one[0].lower() not in names), *added] or None)
    return made


def without(messages: Messages, rows: Collection[int]) -> Messages:
    """The messages that answer none of these rows."""
    hit = np.isin(messages.rows, np.fromiter(rows, np.int64, len(rows)))
    if messages.splits is not None:
        # The empty sum of a message without parents is zero, which `reduceat` does not give.
        total = np.concatenate([[0], np.cumsum(hit)])
        hit = total[messages.splits[1:]] > total[messages.splits[:-1]]
    return messages.take(np.flatnonzero(~hit)) if hit.any() else messages


def in_row_order(first: Messages, second: Messages) -> Messages:
    """Both blocks as one, ordered by row, so that messages of one key keep their order.

    A message for several records has the place of the last of them.
    """
    if not len(first):
        return second
    if not len(second):
        return first
    return _joined(first, second).take(np.argsort(np.concatenate([_last(first), _last(second)]), kind="stable"))


def _last(messages: Messages) -> Ints:
    if messages.splits is None:
        return messages.rows
    return np.array([messages.parents(at).max(initial=-1) for at in range(len(messages))], np.int64)


def _joined(first: Messages, second: Messages) -> Messages:
    def join(a: Any, b: Any) -> Any:
        if a is None and b is None:
            return None
        return joined([[None] * len(first) if a is None else a, [None] * len(second) if b is None else b])

    stamps = splits = None
    if first.timestamps is not None and second.timestamps is not None:
        stamps = np.concatenate([first.timestamps, second.timestamps])
    if first.splits is not None or second.splits is not None:
        edges, more = _edges(first), _edges(second)
        splits = np.concatenate([edges, more[1:] + edges[-1]])
    return Messages(
        rows=np.concatenate([first.rows, second.rows]),
        values=join(first.values, second.values),
        keys=join(first.keys, second.keys),
        headers=join(first.headers, second.headers),
        timestamps=stamps,
        topics=join(first.topics, second.topics),
        splits=splits,
    )


def _edges(messages: Messages) -> Ints:
    return np.arange(len(messages) + 1, dtype=np.int64) if messages.splits is None else messages.splits
