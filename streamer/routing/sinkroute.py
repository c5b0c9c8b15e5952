"""`SinkRoute`: which results a sink gets, with which topics and keys, and the messages that are made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from connectors.codec import Codec, RecordsOrigin, failure_document
from connectors.config import SinkConfig
from connectors.records import Header, Messages
from connectors.sink import Sink
from connectors.source import Source
from pipelines.conditions.condition import condition
from pipelines.conditions.contract import Condition, Failures
from pipelines.data.batch import Batch
from pipelines.data.columns import Mask, Rows
from pipelines.data.membership import among
from pipelines.data.rowrange import RowNumbers
from pipelines.errors import DefinitionError, StepError
from pipelines.executors.accounting import NO_ROWS
from streamer.agent.decodedbatch import SOURCE_BITS, DecodedBatch
from streamer.routing.madeby import MadeBy
from streamer.routing.provenance import (
    record_column,
    record_headers,
    record_keys,
    record_positions,
    record_timestamps,
)
from streamer.routing.template import Allowed, Template, allowed, keys_of, template

Failed = dict[int, Exception]
"""Row number to the error."""


NO_MESSAGES: Final = Messages(np.zeros(0, np.int64), [], [])


@dataclass(slots=True)
class Selected:
    """The part of a batch that goes to one sink.

    `batch` holds the values to encode; `topics` and `keys` have an entry for each of its rows. `topics` `None`: the
    sink's own topic. `keys` `None`: the keys of the records.
    """

    batch: Batch
    topics: list[str] | None = None
    keys: list[bytes | None] | None = None
    failed: dict[int, Exception] = field(default_factory=dict)
    """Rows that cannot go to this sink, by row number: `StepError` with the sink's name as the step."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which results and values a sink gets, with which topics and keys: its configuration, compiled once."""

    sink: str
    condition: Condition | None = None
    written: tuple[str, ...] | None = None
    dropped: tuple[str, ...] = ()
    topic: Template | None = None
    topics: Allowed | None = None
    default_topic: str | None = None
    """The topic of results for which `topic` cannot be made, as a value is missing or empty."""
    key: str | None = None
    sources: frozenset[int] | None = None
    """Numbers of the sources whose records' results it gets; `None`: of all."""

    @property
    def is_plain(self) -> bool:
        """Whether the sink gets all results, with all values."""
        return (
            self.condition is None
            and self.sources is None
            and self.topic is None
            and self.key is None
            and self.written is None
            and not self.dropped
        )

    def apply(self, batch: Batch) -> Selected:
        """The part of these results that goes to the sink; `batch` itself if the sink has no choices.

        Values that are not written can still be used in `when`, topics and keys.
        """
        if self.is_plain:
            return Selected(batch)
        failed: dict[int, Exception] = {}
        if self.sources is not None:
            batch = _of_sources(batch, self.sources)
            if not batch.size:
                return Selected(batch)
        if self.condition is not None:
            chosen, failures = self.condition.rows(batch)
            failed = self._failed(batch, failures)
            if not chosen.all():
                batch = batch.take(chosen)
        topics, batch = self._topics(batch, failed)
        keys = None
        if self.key is not None:
            keys, failures = keys_of(batch, self.key)
            if failures:
                failed |= self._failed(batch, failures)
                stay = _others(batch, failures)
                batch, keys = batch.take(stay), [keys[row] for row in stay]
                topics = None if topics is None else [topics[row] for row in stay]
        return Selected(self._values(batch), topics, keys, failed)

    def _topics(self, batch: Batch, failed: dict[int, Exception]) -> tuple[list[str] | None, Batch]:
        if self.topic is None:
            return None, batch
        topics, failures = self.made_topics(batch, self.topic)
        if not failures:
            return topics, batch
        failed |= self._failed(batch, failures)
        stay = _others(batch, failures)
        return [topics[row] for row in stay], batch.take(stay)

    def made_topics(self, batch: Batch, topic: Template) -> tuple[list[str], Failures]:
        """The topic of each row, and the rows that have none."""
        topics, failures = topic.texts(batch)
        default = self.default_topic
        if default is not None:
            lacking = [position for position, text in enumerate(topics) if not text]
            for position in lacking:
                topics[position] = ""
                failures.pop(position, None)
        if self.topics is not None:
            self.topics.check(topics, failures)
        if default is not None:
            for position in lacking:
                topics[position] = default
                failures.pop(position, None)
        return topics, failures

    def _values(self, batch: Batch) -> Batch:
        if self.written is not None:
            batch = batch.select({key: batch.column(key) for key in self.written if key in batch})
        return batch.without(self.dropped) if self.dropped else batch

    def _failed(self, batch: Batch, failures: Failures) -> dict[int, Exception]:
        return {
            number: StepError.of(self.sink, error)
            for position, error in failures.items()
            for number in batch.parents(position).tolist()
        }


@dataclass(slots=True, eq=False)
class SinkRoute:
    """A sink with its codec, its selection of results, and the record metadata that its messages carry."""

    name: str
    sink: Sink
    codec: Codec
    selection: Selection
    source_timestamp: bool = False
    headers: bool = True
    record_headers: Mapping[str, str] = field(default_factory=dict)
    added_headers: Mapping[str, Template] = field(default_factory=dict)
    """Headers of every message, by name."""
    made_by: MadeBy = field(default_factory=MadeBy)
    """Says which version of the models made each result."""
    errors: bool = False
    """Whether it gets answers for records that failed, too."""
    places: bool = False
    """Whether its messages carry the positions of their records (`Messages.positions`)."""
    answers: bool = False
    """Whether its messages go back to the clients that sent the records, so that the service does not wait for them."""
    when_full: Literal["wait", "drop"] | None = "wait"
    """What happens to messages while the sink is full; `None`: they are dropped if all sources are perishable."""
    sources: Sequence[Source] = ()
    blocked: str | None = None
    """Why the messages of this sink wait: its codec cannot encode (a schema registry is down), or the sink accepts no
    messages (its disk is full); `None` while messages leave."""

    @classmethod
    def of(
        cls,
        config: SinkConfig,
        sink: Sink,
        codec: Codec,
        name: str,
        record_names: Iterable[str] = (),
        *,
        sources: Mapping[str, Source] = MappingProxyType({}),
    ) -> SinkRoute:
        """The route of a sink's configuration; `record_names` are those which the service's sources declare, `sources`
        the sources by name, in the order of their numbers.

        Raises `DefinitionError` for a bad `when`, `topic` or `topics`.
        """
        chosen, addressing = selection(config, f"sink {name}", record_names, list(sources)), config.addressing
        # Messages with an outbox count as delivered once they are in it, so they are waited for.
        answers = config.answers and config.outbox is None
        route = cls(name, sink, codec, chosen, answers=answers, when_full=config.when_full, sources=[*sources.values()])
        route.places, route.errors = config.awaited, config.errors
        if addressing is not None:
            route.source_timestamp, route.headers = addressing.source_timestamp, addressing.headers
            route.record_headers = addressing.record_headers
            route.added_headers = _added_headers(addressing.added_headers, f"sink {name}", record_names)
        return route

    @property
    def drops(self) -> bool:
        """Whether messages are dropped while the sink is full; otherwise the service waits."""
        if self.when_full is None and self.sources:
            # That may change: a camera turns out to be a recording.
            return all(source.perishable for source in self.sources)
        return self.when_full == "drop"

    def down(self) -> str | None:
        """Why results do not reach the sink at present; `None` if they do."""
        return self.blocked or self.sink.down()

    def messages(self, selected: Selected) -> tuple[Messages, Failed]:
        """One message for each selected row, and the rows whose values the codec cannot write, which have none."""
        batch = selected.batch
        if not batch.size:
            return NO_MESSAGES, {}
        encoded = self.codec.encode(batch)
        messages = self._block(batch, encoded.values, selected.keys, selected.topics, encoded.headers)
        failed: Failed = {}
        for position, error in encoded.failed.items():
            wrapped = StepError.of(f"sink {self.name}", error)
            failed.update(dict.fromkeys(batch.parents(position).tolist(), wrapped))
        return messages, failed

    def errors_of(self, batch: Batch, kinds: Mapping[int, Header]) -> Messages:
        """One message for each of these rows, which hold the error and the step of a record that failed.

        Rows of other sources are left out, and rows without a topic. `kinds` has a header for each, by row number.
        """
        chosen = self.selection
        if chosen.sources is not None:
            batch = _of_sources(batch, chosen.sources)
        topics: list[str] | None = None
        if chosen.topic is not None and batch.size:
            topics, failures = chosen.made_topics(batch, chosen.topic)
            stay = _others(batch, failures)
            batch, topics = batch.take(stay), [topics[row] for row in stay]
        keys: list[bytes | None] | None = None
        if chosen.key is not None and chosen.key.startswith("record."):
            keys, _ = keys_of(batch, chosen.key)
        encoded = self.codec.encode_failures(batch)
        # A codec of a schema may have no place for them.
        values = [
            failure_document(batch, at) if at in encoded.failed else value for at, value in enumerate(encoded.values)
        ]
        headers: list[list[Header]] = [[kinds[row]] for row in batch.rows.tolist()]
        for at, more in enumerate(encoded.headers or ()):
            headers[at] += more
        return self._block(batch, values, keys, topics, headers)

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
        codec_headers: Sequence[Sequence[Header]] | None = None,
    ) -> Messages:
        headers = record_headers(batch) if self.headers else None
        if self.record_headers and (metadata := self._metadata(batch)) is not None:
            headers = _merged(headers, metadata)
        if self.added_headers:
            headers = _merged(headers, self._added(batch))
        if (versions := self.made_by.headers(batch)) is not None:
            headers = _merged(headers, versions)
        return Messages(
            rows=batch.rows,
            values=values,
            keys=record_keys(batch) if keys is None else keys,
            headers=headers if codec_headers is None else _merged(headers, codec_headers),
            timestamps=record_timestamps(batch) if self.source_timestamp else None,
            topics=topics,
            splits=batch.splits,
            row_range=batch.row_range,
            positions=record_positions(batch) if self.places else None,
        )

    def _added(self, batch: Batch) -> list[list[Header]]:
        headers: list[list[Header]] = [[] for _ in range(batch.size)]
        for name, text in self.added_headers.items():
            made, failures = text.texts(batch)
            for row, value in enumerate(made):
                if row not in failures:
                    headers[row].append((name, value.encode()))
        return headers

    def _metadata(self, batch: Batch) -> list[list[Header]] | None:
        """The source's metadata of the records as headers; `None` if no record has any."""
        headers: list[list[Header]] = [[] for _ in range(batch.size)]
        for name, header in self.record_headers.items():
            column = record_column(batch, name)
            for row in np.flatnonzero(column.present).tolist():
                value = column[row]
                headers[row].append((header, value.encode() if isinstance(value, str) else bytes(value)))
        return headers if any(headers) else None


def _added_headers(texts: Mapping[str, str], label: str, record_names: Iterable[str]) -> dict[str, Template]:
    headers: dict[str, Template] = {}
    for name, text in texts.items():
        try:
            headers[name] = template(text, record_names)
        except DefinitionError as error:
            raise DefinitionError(f"{label}: add_headers.{name}: {error}") from error
        if headers[name].values:
            value = headers[name].values[0]
            raise DefinitionError(
                f'{label}: add_headers.{name}: "{text}" names the value {value}, and headers are made of metadata: '
                "{record.NAME}, such as {record.key}"
            )
    return headers


def _merged(
    headers: Sequence[Sequence[Header] | None] | None, further: Sequence[Sequence[Header]]
) -> Sequence[Sequence[Header] | None]:
    """The headers of each row; those of `further` replace headers of the same name, in any case of letters."""
    if headers is None:
        return further
    made: list[Sequence[Header] | None] = []
    # Most rows have the same objects as one before. They are kept, as the number of an object is used again after it.
    known: dict[tuple[int, int], tuple[Sequence[Header] | None, object, object]] = {}
    for row, added in zip(headers, further, strict=True):
        merged = known.get((id(row), id(added)))
        if merged is None:
            names = {name.lower() for name, _ in added}
            whole = (*(header for header in row or () if header[0].lower() not in names), *added) or None
            merged = known[id(row), id(added)] = whole, row, added
        made.append(merged[0])
    return made


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where the records of a service go."""

    results: list[SinkRoute]
    letters: list[SinkRoute]
    """Where failed records go: each to the first of these that takes records of its source."""

    @property
    def all(self) -> list[SinkRoute]:
        """The routes of results and of failed records."""
        return [*self.results, *self.letters]

    def letter_route(self, source: int) -> SinkRoute | None:
        """Where failed records of the source of this number go; `None`: nowhere."""
        for route in self.letters:
            if route.selection.sources is None or source in route.selection.sources:
                return route
        return None

    @property
    def answered(self) -> list[frozenset[int] | None]:
        """The numbers of the sources of each sink whose messages go back to clients; `None`: all sources."""
        return [route.selection.sources for route in self.results if route.answers]


def selection(sink: SinkConfig, label: str, record_names: Iterable[str] = (), sources: Sequence[str] = ()) -> Selection:
    """The choices of this sink, whose name is `label`: its `when`, `sources`, `keys`, `drop`, and how its messages are
    addressed.

    `record_names` are those which the service's sources declare, `sources` the names of these. Raises
    `DefinitionError` as `check_topics` and `check_condition` do, and for a function that cannot be imported.
    """
    try:
        topic, addressing = check_topics(sink, record_names), sink.addressing
        return Selection(
            sink=label,
            condition=None if sink.when is None else condition(sink.when),
            written=sink.keys,
            dropped=sink.drop,
            topic=topic,
            topics=None if topic is None or addressing is None else allowed(addressing.topics),
            default_topic=None if addressing is None else addressing.default_topic,
            key=None if addressing is None else addressing.key,
            sources=_numbers(sink.takes_from, sources),
        )
    except DefinitionError as error:
        raise DefinitionError(f"{label}: {error}") from error


def check_topics(sink: SinkConfig, record_names: Iterable[str] | None = None) -> Template | None:
    """The template of a topic made from values, `None` if the sink has a plain topic or none.

    `record_names` are those which the service's sources declare; `None`: they are not known, and not checked. Raises
    `DefinitionError` for a template that is malformed, or that has no `topics` to name the allowed ones.
    """
    addressing = sink.addressing
    if addressing is None:
        return None
    allowed(addressing.topics)
    made = template(addressing.topic, record_names)
    if made.constant:
        return None
    if not addressing.topics:
        raise DefinitionError(
            f'"{made.text}" is made from values, so `topics` must list the allowed ones: names, or regular expressions '
            "that begin with ^"
        )
    return made


def select_all(selections: Sequence[Selection], batch: Batch) -> tuple[list[Selected], dict[int, Exception]]:
    """The part of these results that goes to each sink, and the records that failed for one of them, by row number.

    A record that fails for one sink has failed: no sink gets any of its results.
    """
    chosen = [selection.apply(batch) for selection in selections]
    failed: dict[int, Exception] = {}
    for selected in chosen:
        failed |= selected.failed
    if not failed:
        return chosen, failed
    bad = np.fromiter(failed, np.int64, len(failed))
    chosen, more = select_all(selections, batch.take(_without(batch, bad)))
    return chosen, failed | more


def of_sources(rows: Rows, sources: frozenset[int]) -> Mask:
    """Which of these rows are of the sources of these numbers."""
    return among(rows >> SOURCE_BITS, np.fromiter(sources, np.int64, len(sources)))


def count_of_sources(rows: RowNumbers, sources: frozenset[int]) -> int:
    """How many of these rows are of the sources of these numbers. Rows of a range are of one source."""
    if isinstance(rows, range):
        return len(rows) if rows and rows.start >> SOURCE_BITS in sources else 0
    return int(np.count_nonzero(of_sources(rows, sources)))


def _numbers(names: Sequence[str] | None, sources: Sequence[str]) -> frozenset[int] | None:
    if names is None or set(names) >= set(sources):
        return None
    return frozenset(number for number, name in enumerate(sources) if name in names)


def _of_sources(batch: Batch, sources: frozenset[int]) -> Batch:
    """The results of which all records are of these sources."""
    rows = batch.row_range
    if rows is not None and len(rows):
        return batch if rows.start >> SOURCE_BITS in sources else NO_ROWS
    if batch.splits is None:
        hit = of_sources(batch.rows, sources)
    else:
        total = np.concatenate([[0], np.cumsum(of_sources(batch.rows, sources))])
        counts = np.diff(batch.splits)
        hit = (np.diff(total[batch.splits]) == counts) & (counts > 0)
    return batch if hit.all() else batch.take(hit)


def _without(batch: Batch, bad: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    hit = among(batch.rows, bad)
    if batch.splits is None:
        return np.flatnonzero(~hit).tolist()
    edges = batch.splits.tolist()
    return [row for row in range(batch.size) if not hit[edges[row] : edges[row + 1]].any()]


def _others(batch: Batch, failures: Failures) -> list[int]:
    return [row for row in range(batch.size) if row not in failures]
