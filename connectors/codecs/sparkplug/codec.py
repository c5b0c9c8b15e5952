"""The codec `sparkplug`: metrics become values under their names, aliases are those that births gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from google.protobuf.message import DecodeError
from pydantic import Field, PositiveInt, field_validator

from connectors.codec import Codec, Decoded, Encoded, Request
from connectors.codecs.config import CodecConfig
from connectors.codecs.described import topics_of
from connectors.codecs.rows import decode_mappings, encode_rows, payload_bytes
from connectors.codecs.sparkplug.births import SEQUENCE, EdgeNode, EdgeNodes, Known, Table
from connectors.codecs.sparkplug.rebirths import Rebirths
from connectors.codecs.sparkplug.topics import SparkplugTopic, address
from connectors.codecs.sparkplug.values import MetricReader, Order, reading_of, readings, write
from connectors.measures import Measure
from connectors.records import Records
from connectors.units import Duration, Size
from pipelines.data.batch import Batch
from pipelines.data.data import Data, check_key
from pipelines.errors import WireError
from pipelines.steps.config import Key
from protos import sparkplug_pb2 as pb

_BD_SEQ: Final = "bdSeq"
_NOTHING: Final[Table] = {}


class SparkplugConfig(CodecConfig):
    """Sparkplug B messages: metrics under their names; aliases are learnt from births, and kept by device."""

    built_by: ClassVar[str] = "connectors.codecs.sparkplug.codec:Sparkplug"

    remembers: ClassVar[bool] = True

    type: Literal["sparkplug"] = "sparkplug"
    """The type of codec."""
    metrics: dict[str, Key] | None = None
    """Which metrics become values, and under which keys: `{Motor/Speed: speed}`; by default all, under their names."""
    attributes: dict[Literal["group", "edge", "device", "message", "timestamp", "seq", "gap", "historical"], Key] = (
        Field(default_factory=dict)
    )
    """Attributes of a message that become values: `{edge: plant, device: machine, timestamp: ts}`. `message` is its type, as NDATA; `timestamp` is in milliseconds; `gap` is how many messages of the edge node are missing before it; `historical` whether it holds such metrics."""  # noqa: E501
    topic: str = "topic"
    """Where the Sparkplug topic of a record stands: `topic`, `key`, or `headers.NAME`, where a bridge has put it."""
    historical: Literal["take", "skip"] = "take"
    """What to do with historical metrics, which an edge node stored while it was offline. If they are taken, they never replace a current metric of the same message."""  # noqa: E501
    byte_order: Order = "little"
    """Order of the bytes of array elements. The specification says little, and shows big in two of its examples."""
    bit_order: Order = "big"
    """Order of the booleans of an array: `big` as in the specification, `little` for writers that begin at the lowest bit."""  # noqa: E501
    max_bytes: Size = 1 << 20
    """Size of the largest payload; a larger one is an error of its record."""
    rebirth: Annotated[Duration, Field(ge=1)] | None = None
    """Asks an edge node to send its births again (`Node Control/Rebirth`) where one was missed, or a message of the sequence is missing: at most once in this time for each edge node. The source has to be one of MQTT that may publish `spBv1.0/GROUP/NCMD/EDGE_NODE`. By default no request is sent."""  # noqa: E501
    max_aliases: PositiveInt = 1_000_000
    """How many names and aliases of metrics are kept, of all devices together; those of the edge node that was silent longest are dropped first."""  # noqa: E501

    @field_validator("topic")
    @classmethod
    def _known_place(cls, topic: str) -> str:
        if topic not in ("topic", "key") and not (topic.startswith("headers.") and len(topic) > len("headers.")):
            raise ValueError(f'"{topic}" is not a place of a topic: there are topic, key or headers.NAME')
        return topic


class Sparkplug(Codec):
    """Messages of edge nodes in the order in which they came, from one source.

    It keeps the contents of births in memory: after a restart, messages with aliases fail until the edge node sends its
    birth again, as `rebirth` asks it to. Templates, property sets, properties and metadata are ignored.

        codec = SparkplugConfig(metrics={"Motor/Speed": "speed"}, attributes={"device": "machine"}).build()
    """

    opens_images: ClassVar[bool] = False

    def __init__(self, config: SparkplugConfig | None = None) -> None:
        self._config = config or SparkplugConfig()
        self._readings = readings(self._config.byte_order, self._config.bit_order)
        self._nodes = EdgeNodes(self._config.max_aliases)
        self._unborn = 0
        self._rebirths = None if self._config.rebirth is None else Rebirths(self._config.rebirth)
        self._usual = self._config.historical == "take" and "historical" not in self._config.attributes

    def metrics(self) -> Sequence[Measure]:
        """Gaps in the sequences of edge nodes, and messages whose birth was not seen."""
        return (
            Measure("gaps", "Gaps in the sequence numbers of edge nodes.", self._nodes.gaps),
            Measure("births_missing", "Messages with aliases whose birth was not seen.", self._unborn),
            Measure(
                "rebirths", "Births that were asked for again.", 0 if self._rebirths is None else self._rebirths.asked
            ),
        )

    def requests(self) -> Sequence[Request]:
        """See `Codec.requests`: commands to edge nodes to send their births again."""
        return () if self._rebirths is None else self._rebirths.take()

    @property
    def gaps(self) -> Mapping[tuple[str, str], int]:
        """Gaps in the sequence of each edge node that is known, by group and edge node."""
        return {name: node.gaps for name, node in self._nodes}

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """A row for each message, births and deaths too, with the values of its metrics that are not null."""
        topics = self._topics(records)
        return decode_mappings(records, first, lambda row, payload: self._row(payload, topics[row]))

    def encode(self, batch: Batch) -> Encoded:
        """A message for each row, its metrics with names and types: for readers that need no births.

        This makes no edge node: there are no births, aliases and sequence numbers.
        """
        return encode_rows(batch, self._written)

    def _topics(self, records: Records) -> Sequence[str]:
        where = self._config.topic
        if where == "topic":
            return topics_of(records)
        if where == "key":
            return [(key or b"").decode(errors="replace") for key in records.keys or [None] * len(records)]
        name = where.removeprefix("headers.").lower()
        return [
            next(
                (value.decode(errors="replace") for key, value in reversed(row or ()) if key.lower() == name and value),
                "",
            )
            for row in records.header_column() or [None] * len(records)
        ]

    def _row(self, payload: object, topic: str) -> dict[str, Any]:
        raw = payload_bytes(payload, "sparkplug")
        if len(raw) > self._config.max_bytes:
            raise WireError(
                f"the payload has {len(raw)} bytes, more than {self._config.max_bytes}; "
                "raise max_bytes of the codec if such messages are expected"
            )
        place = address(topic)
        try:
            message = pb.Payload.FromString(raw)
        except DecodeError as error:
            raise WireError(f"the payload is not a Sparkplug message: {error}") from None
        node = table = None
        missing = 0
        if place is not None:
            node = self._node(place, message)
            if node is not None:
                table = node.tables.get(place.device)
                if message.HasField("seq") and place.counted:
                    missing = self._followed(node, message.seq)
                    if missing and self._rebirths is not None:
                        self._rebirths.ask(place)
        row, historical = self._values(message.metrics, _NOTHING if table is None else table, place)
        if self._config.attributes:
            self._add_attributes(row, message, place, missing, historical)
        return row

    def _node(self, place: SparkplugTopic, message: Any) -> EdgeNode | None:
        """The edge node of a message, updated by this message; `None` if its birth was not seen."""
        if place.message in ("NBIRTH", "DBIRTH"):
            bd_seq = _bd_seq(message.metrics) if place.message == "NBIRTH" else None
            return self._nodes.born(place, self._described(message.metrics), bd_seq)
        if place.message == "NDEATH":
            self._nodes.died(place, _bd_seq(message.metrics))
        return self._nodes.seen(place)

    def _followed(self, node: EdgeNode, seq: int) -> int:
        if seq >= SEQUENCE:
            raise WireError(f"the sequence number {seq} is above {SEQUENCE - 1}")
        return self._nodes.follow(node, seq)

    def _described(self, metrics: Any) -> Table:
        """The metrics of a birth by name and alias."""
        table: dict[str | int, Known] = {}
        for metric in metrics:
            if not metric.name:
                raise WireError("a metric of a birth has no name")
            known = self._known(metric.name, metric)
            table[known.name] = known
            if metric.HasField("alias") and table.setdefault(metric.alias, known).name != known.name:
                raise WireError(f'the birth gives "{known.name}" an alias that another metric has, {metric.alias}')
        return table

    def _known(self, name: str, metric: Any) -> Known:
        datatype = metric.datatype
        reading = self._readings.get(datatype) if datatype else reading_of(metric.WhichOneof("value"))
        key = name if self._config.metrics is None else self._config.metrics.get(name)
        if key is None or reading is None:
            return Known(None, None, _UNREAD, name)
        check_key(key)
        return Known(key, None if reading.convert else reading.get, reading, name)

    def _values(self, metrics: Any, table: Table, place: SparkplugTopic | None) -> tuple[dict[str, Any], bool]:
        """The values by their keys, and whether some are historical."""
        if self._usual:
            usual = _usual_values(metrics, table)
            if usual is not None:
                return usual, False
        values: dict[str, Any] = {}
        stored: dict[str, Any] = {}
        historical = False
        for metric in metrics:
            alias = metric.alias
            known = table.get(alias) if alias else None
            if known is None:
                known = self._unusual(metric, table, place)
            key, _, reading, name = known
            into = values
            if metric.is_historical:
                historical, into = True, stored
            if key is None or metric.is_null:
                continue
            value = reading.value(metric, name)
            if value is not None:
                into[key] = value
        if stored and self._config.historical == "take":
            values = {**stored, **values}
        return values, historical

    def _unusual(self, metric: Any, table: Table, place: SparkplugTopic | None) -> Known:
        """A metric that has its own name, the alias 0, or an alias that no birth has given."""
        name = metric.name
        if name:
            known = table.get(name)
            return self._known(name, metric) if known is None or metric.datatype else known
        if not metric.HasField("alias"):
            raise WireError("a metric has neither a name nor an alias")
        known = table.get(metric.alias)
        if known is not None:
            return known
        self._unborn += 1
        if place is None:
            raise WireError(
                f"the alias {metric.alias} means nothing: the record's {self._config.topic} is not a Sparkplug topic, "
                "by which births are found; say in `topic` of the codec where it stands"
            )
        if self._rebirths is not None and place.counted:
            self._rebirths.ask(place)
        birth = "DBIRTH" if place.device else "NBIRTH"
        raise WireError(
            f"the alias {metric.alias} of {place.label} is not known: its birth ({birth}) was not seen since this "
            "service started, or did not name it; have the edge node send it again (Node Control/Rebirth)"
        )

    def _add_attributes(
        self, row: dict[str, Any], message: Any, place: SparkplugTopic | None, missing: int, historical: bool
    ) -> None:
        said: dict[str, Any] = {"gap": missing, "historical": historical}
        if message.HasField("timestamp"):
            said["timestamp"] = message.timestamp
        if message.HasField("seq"):
            said["seq"] = message.seq
        if place is not None:
            said |= {"group": place.group, "edge": place.edge, "message": place.message}
            if place.device:
                said["device"] = place.device
        for name, key in self._config.attributes.items():
            if name not in said:
                continue
            if isinstance(said[name], int) and said[name] >= 1 << 63:
                raise WireError(f"the {name} of the message is {said[name]}, which is too large")
            row[key] = said[name]

    def _written(self, data: Data) -> bytes:
        message = pb.Payload()
        if data.record is not None and data.record.timestamp is not None:
            message.timestamp = data.record.timestamp
        for key, value in data.items():
            try:
                write(message.metrics.add(name=key), value, self._config.byte_order, self._config.bit_order)
            except ValueError as error:
                raise WireError(f'the value of "{key}" cannot be written: {error}') from None
        written: bytes = message.SerializeToString()
        return written


def _usual_values(metrics: Any, table: Table) -> dict[str, Any] | None:
    """The values of metrics that all have aliases and values, as in most messages; `None` if one has not.

    Reading a field of a metric costs as much as all other work on it, so as few as possible are read. Historical
    metrics are taken like others, as long as no metric is in the message twice.
    """
    values: dict[str, Any] = {}
    known_as = table.get
    for metric in metrics:
        alias = metric.alias
        known = known_as(alias)
        if known is None or not (alias or metric.HasField("alias")):
            return None
        key, plain, reading, name = known
        if key is None:
            return None
        # A null metric has no value. So a value that is not zero, false or empty is present, and of the right type.
        if plain is not None and (value := plain(metric)):
            values[key] = value
            continue
        value = None if metric.is_null else reading.value(metric, name)
        if value is None:
            return None
        values[key] = value
    return values if len(values) == len(metrics) else None


def _no_value(metric: object) -> None:
    return None


_UNREAD: Final = MetricReader("", frozenset(), _no_value)


def _bd_seq(metrics: Any) -> int | None:
    return next(
        (metric.long_value for metric in metrics if metric.name == _BD_SEQ and metric.HasField("long_value")), None
    )
