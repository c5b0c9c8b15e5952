"""`streamer tap`: watch a topic, decoded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from streamer.cli.options import AsJson, Bootstrap, Client, CodecName, TopicName

if TYPE_CHECKING:
    from connectors.codec import Codec
    from connectors.codecs.config import CodecConfig
    from connectors.records import Records
    from pipelines.data.data import Data, RecordContext
    from streamer.delivery.deadletter import Original


def tap(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC|FILE", help="The topic, or a service file, for the topic of its sink.")
    ],
    start: Annotated[
        str, typer.Option("--from", help="Where to begin: earliest, latest or a time (2026-01-31T12:00:00Z).")
    ] = "latest",
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after this number of records.")] = None,
    end: Annotated[
        bool, typer.Option("--end", help="End with the last record that the topic has now, rather than wait for more.")
    ] = False,
    codec: CodecName = None,
    sink: Annotated[
        str | None, typer.Option("--sink", help="With FILE: the topic of this sink, dead_letter or shadow.")
    ] = None,
    source: Annotated[str | None, typer.Option("--source", help="With FILE: the topic of this source.")] = None,
    named: TopicName = None,
    full: Annotated[bool, typer.Option("--full", help="With --json: whole values, in Konduit's JSON form.")] = False,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Show the records of a topic as they come: key, headers, time and values, arrays summarised.

    Below a record are further metadata, such as the QoS of MQTT. Dead letters are shown with their step, error and
    origin. With a service file, its brokers, login, topic and codec are used.

    The command joins no consumer group and commits nothing, so it does not disturb consumers. Ctrl-C ends it.
    """
    import threading

    from connectors.codecs.registry import codec_config, codec_of
    from streamer.cli.folder import import_from_here
    from streamer.cli.options import position
    from streamer.cli.place import place_named, place_of_sink, place_of_source
    from streamer.cli.route import is_service_file
    from streamer.cli.signals import draining
    from streamer.cli.terminal import quiet, remark

    quiet()
    import_from_here()
    if sink is not None and source is not None:
        raise typer.BadParameter("--sink and --source: one of them")
    take, name = (place_of_sink, sink) if source is None else (place_of_source, source)
    options = {"--sink": sink, "--source": source, "--topic": named}
    place = place_named(topic, take, name, options, codec, bootstrap, client)
    if end and not place.bus.topics_end:
        raise typer.BadParameter(
            "--end: a topic there has no end: the broker sends retained messages, and others as they are published; "
            "end with --count, or with Ctrl-C"
        )
    how = codec_of(place.codec)
    hint = Hint(codec_config(place.codec), in_file=codec is None and is_service_file(topic))
    stop = threading.Event()
    shown = 0
    begin = position(start)
    with (
        draining(stop.set),
        place.bus.reader(place.topic, "streamer-tap") as reader,
    ):
        reader.begin(reader.starts(begin))
        if start == "latest" and not end and sys.stderr.isatty():
            remark(f"waiting for new records of {place.topic}; --from earliest shows those that are there, Ctrl-C ends")
        while not stop.is_set() and not (end and reader.at_end):
            # Poll once more after the last end was reported: a block may hold records and ends.
            for seen in _seen(reader.poll(0.2), how):
                _show(seen, as_json, full)
                hint.look(seen)
                shown += 1
                if shown == count:
                    return


NO_RECORD: Final = "no record: a header row, or an empty list"
"""Shown for a payload that the codec reads but makes no row of."""


class Hint:
    """Names once the codec that would read records that the chosen codec, or the service file's, cannot."""

    def __init__(self, chosen: CodecConfig, *, in_file: bool) -> None:
        """`chosen`: the codec that records are read with, which is never suggested."""
        self._done = False
        self._chosen = chosen
        self._in_file = in_file

    def look(self, seen: TappedRecord) -> None:
        """If this record is the first that was not decoded, try other codecs and suggest the one that reads it."""
        if self._done or seen.error is None or not seen.payload:
            return
        from streamer.cli.terminal import remark
        from streamer.delivery.fitting import fitting_codec, is_read_with

        self._done = True
        fitting = fitting_codec(seen.payload)
        if fitting is None or (fitting.codec is not None and is_read_with(self._chosen, fitting.codec)):
            return
        looks = f"; they look like {fitting.why}" if fitting.why else ""
        if fitting.codec is None:
            remark(f"such payloads look like {fitting.why}")
            return
        said = f" (in the file: codec: {fitting.in_file})" if self._in_file else ""
        remark(f"such payloads are read with --codec {fitting.as_option}{said}{looks}")


class TappedRecord(NamedTuple):
    """One record as far as it could be read."""

    record: RecordContext
    data: Data | None
    payload: bytes | None
    error: Exception | None
    origin: Original | None


def _seen(records: Records, codec: Codec) -> Iterator[TappedRecord]:
    from streamer.delivery.deadletter import original

    if not len(records):
        return
    decoded = codec.decode(records, None)
    rows = dict(zip(decoded.batch.rows.tolist(), decoded.batch.to_list(), strict=True))
    for row in range(len(records)):
        record = records.context(row)
        yield TappedRecord(
            record, rows.get(row), records.values[row], decoded.failed.get(row), original(list(record.headers))
        )


def _show(seen: TappedRecord, as_json: bool, full: bool) -> None:
    from streamer.cli.terminal import plain, say_json

    if as_json:
        say_json(_for_machines(seen, full))
        return
    for text, style in _for_people(seen):
        plain(text, style)


def _for_people(seen: TappedRecord) -> Iterator[tuple[str, str]]:
    from streamer.observe.values import line, values_of

    record = seen.record
    parts = [f"{record.topic}[{record.partition}]@{record.offset}", _time(record.timestamp) or "no time"]
    if record.key is not None:
        parts.append(f"key {_text(record.key)}")
    headers = record.headers if seen.origin is None else seen.origin.headers
    parts += [f"{name}={'' if value is None else _text(value)}" for name, value in headers]
    yield "  ".join(parts), "bold"
    if said := _metadata_text(record.extras):
        yield f"  {said}", "dim"
    if seen.origin is not None:
        origin = seen.origin
        yield f"  dead letter of {origin.topic}[{origin.partition}]@{origin.offset}, step {origin.step}", "yellow"
        yield f"  {origin.error}: {origin.text}", "yellow"
        if origin.left_out:
            what = f"{origin.left_out} left out ({origin.size:,} bytes, SHA-256 {origin.sha256})"
            yield f"  {what}: {origin.refusal}", "yellow"
    if seen.payload is None:
        yield "  no payload (a tombstone)", "dim"
    elif seen.data is None and seen.error is None:
        yield f"  {NO_RECORD}", "dim"
    elif seen.data is None:
        reason = " ".join(str(seen.error).split())
        yield f"  {len(seen.payload):,} bytes, not decoded: {reason}", "red"
        yield f"  {seen.payload[:24].hex(' ')}", "dim"
    else:
        width = max((len(key) for key in seen.data), default=0)
        for key, value in values_of(seen.data).items():
            yield f"  {key.ljust(width)}  {line(value)}", ""
        yield from _metadata(seen.data)


def _metadata(data: Data) -> Iterator[tuple[str, str]]:
    from pipelines.data.data import Data as Value
    from streamer.agent.runs.debugging import TRACE
    from streamer.observe.values import line

    for key, value in (data.metadata or {}).items():
        text = value.get("text") if key == TRACE and isinstance(value, Value) else None
        if not isinstance(text, str):
            yield f"  @{key}  {line(value)}", "dim"
            continue
        yield f"  @{key}", "dim"
        for part in text.splitlines():
            yield f"    {part}", "dim"


def _for_machines(seen: TappedRecord, full: bool) -> dict[str, Any]:
    import json

    from streamer.observe.values import summary, values_of

    record = seen.record
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else _text(record.key),
        "headers": [[name, None if value is None else _text(value)] for name, value in record.headers],
    }
    if record.extras:
        document["record"] = _plain(record.extras)
    if seen.origin is not None:
        origin = {key: value for key, value in seen.origin._asdict().items() if key != "headers"}
        document["dead_letter"] = {**origin, "record": _plain(seen.origin.record)}
    if seen.data is not None:
        # Values of types that `Data` does not have cannot be written as Konduit's JSON.
        whole = full and not seen.data.odd
        document["value"] = json.loads(seen.data.to_json()) if whole else summary(values_of(seen.data))
    elif seen.payload is None:
        document["value"] = None
    elif seen.error is None:
        document["note"] = NO_RECORD
    else:
        document["error"] = str(seen.error)
        document["payload"] = summary(seen.payload)
    return document


def _metadata_text(extras: Mapping[str, Any]) -> str:
    """The source's metadata as text, without false values, and without the topic's levels, which are shown already."""
    shown = {name: value for name, value in _plain(extras).items() if not name.startswith("levels.")}
    return "  ".join(
        name if value is True else f"{name}={value}" for name, value in shown.items() if value is not False
    )


def _plain(extras: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _text(value) if isinstance(value, bytes) else value for name, value in extras.items()}


def _time(stamp: int | None) -> str:
    if stamp is None or stamp < 0:
        return ""
    return datetime.fromtimestamp(stamp / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.hex(" ")
