"""`streamer send`: files to a topic, or to a service that answers requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamer.cli.options import AsJson, Bootstrap, Client, CodecName, TopicName

if TYPE_CHECKING:
    from connectors.records import Header
    from connectors.sink import Sink
    from streamer.cli.payloads import PayloadBatch
    from streamer.cli.serving.sending import Answered, Asking

Format = Literal["auto", "jsonl", "konduit-jsonl", "protodata", "lines", "image", "raw"]

FULL = 30.0
"""Timeout in seconds of sending to a full sink, and of the confirmations at the end."""


def send(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC|FILE", help="The topic, or a service file, for the topic of its source. With --http a file."
        ),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Files: JSON lines, ProtoData messages with their lengths, text, images, or, with --format raw, any.",
        ),
    ] = None,
    form: Annotated[
        Format,
        typer.Option("--format", help="The files' format; auto: by their endings (.jsonl .pb .txt .png ...)."),
    ] = "auto",
    codec: CodecName = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source", help="With FILE: the source to send to; by default the first that reads from a broker."
        ),
    ] = None,
    named: TopicName = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Record key; may be made from values: '{device}'. Images: their name.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="A header as NAME=VALUE; may be repeated.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.01, help="The most records that are sent in a second.")
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="How many times all files are sent.")] = 1,
    bootstrap: Bootstrap = None,
    client: Client = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="URL",
            help="Instead of to a topic: as requests, each a record, to http://host:port/v2/models/NAME or /v1/NAME.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="PATH", help="With --http: a file with the service's token.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Send the records in files to a topic, and wait until the brokers have confirmed them.

    With a service file, its brokers, login, topic and codec are used: the records go to the topic of its source.
    A topic may be made from values: site/{device}/telemetry. So are the named levels of an MQTT source.

    JSON lines are plain JSON, one record a line; with --format konduit-jsonl they are in Konduit's form. An image
    becomes the value `image`. With --format raw each file is one record, its bytes unchanged. Ctrl-C stops the
    command, after the records that were sent are confirmed.

    With --http, or with the file of a service that is asked over HTTP and reads no topic, records are requests. Each
    answer is printed as JSON, in the order of the records. The exit code is 1 if one is an error. A path /v1/NAME gets
    records in the form of --codec, by default json; others the Open Inference Protocol.
    """
    import threading

    from pipelines.errors import nearest
    from streamer.cli.folder import import_from_here
    from streamer.cli.options import codec_setting, token_of
    from streamer.cli.payloads import parts, size_of, template_of
    from streamer.cli.place import place_named, place_of_source
    from streamer.cli.route import is_service_file
    from streamer.cli.serving.place import RequestsPlace, place_of_requests
    from streamer.cli.serving.sending import Asking
    from streamer.cli.signals import draining
    from streamer.cli.terminal import counted, quiet, say, say_json, warn

    quiet()
    import_from_here()
    service = Path(topic) if http is None and is_service_file(topic) else None
    asked = RequestsPlace(http) if http is not None else None if service is None else place_of_requests(service, source)
    if asked is not None:
        of_topics = {"--topic": named, "--key": key, "--header": header, "-b": bootstrap, "-X": client}
        for option, value in {**of_topics, **({"--source": source} if service is None else {})}.items():
            if value is not None:
                raise typer.BadParameter(f"{option} is for topics; leave it out for requests")
        # With a URL in place of the topic all arguments are files.
        files = [*([Path(topic)] if service is None else []), *(files or ())]
        setting = asked.codec if codec is None else codec_setting(codec)
        token = asked.token if token_file is None else token_of(token_file)
        asking = Asking(asked.url, token, setting, raw=form == "raw")
        return _ask(asking, files, form, rate=rate, repeat=repeat, as_json=as_json)
    if not files:
        raise typer.BadParameter("name the files to send, behind the topic")
    if token_file is not None:
        raise typer.BadParameter("--token-file is for requests; add --http URL")
    headers = [_header(text) for text in header or ()]
    total = sum(size_of(file) for file in files) * repeat
    options = {"--source": source, "--topic": named}
    place = place_named(topic, place_of_source, source, options, codec, bootstrap, client)
    browser, topic = place.bus, place.topic
    # First list the topics, which fails at once if the brokers are down: a sink would wait for them.
    known = browser.topics()
    made = template_of(topic)
    if browser.lists_topics and made is None and topic not in known:
        warn(f'there was no topic "{topic}"{nearest(topic, known)}; brokers that create topics by themselves do so now')
    # If topics are made from values, each message has its topic and the sink needs none.
    sink = browser.sink(topic if made is None else "", "send")
    stop = threading.Event()
    kept = Rate(rate)
    sent = 0
    began = time.monotonic()
    with draining(stop.set), _progress_of(total) as advance:
        sink.open()
        try:
            for part in parts(
                files, form, place.codec, key, repeat=repeat, at_most=kept.at_once, topic=topic, made=made
            ):
                if stop.is_set():
                    break
                _send(sink, part, headers)
                sent += len(part.values)
                advance(part.size, sent)
                kept.wait(sent, stop)
            _confirm(sink)
        except typer.BadParameter as error:
            if not sent:
                raise typer.BadParameter(f"{error.message}; nothing was sent") from error
            _confirm(sink)
            raise typer.BadParameter(f"{error.message}; {counted(sent, 'record')} sent before that") from error
        finally:
            sink.close()
    seconds = time.monotonic() - began
    if as_json:
        say_json({"topic": topic, "sent": sent, "seconds": seconds, "complete": not stop.is_set()})
    else:
        say(f"{counted(sent, 'record')} sent to {topic} in {seconds:.1f} s{' (stopped)' if stop.is_set() else ''}")
    return 0


def _ask(
    asking: Asking,
    files: list[Path],
    form: Format,
    *,
    rate: float | None,
    repeat: int,
    as_json: bool,
) -> int:
    """Send the records as requests, and show the answers."""
    import json
    import threading

    from streamer.cli.payloads import parts, size_of
    from streamer.cli.signals import draining
    from streamer.cli.terminal import complain, counted, plain, remark, say_json

    if not files:
        raise typer.BadParameter("name the files to send, behind the service file")
    for file in files:
        size_of(file)
    stop = threading.Event()
    kept = Rate(rate)
    began = time.monotonic()
    counts = {"sent": 0, "failed": 0}

    def show(answered: Answered) -> None:
        counts["sent"] += 1
        counts["failed"] += answered.error is not None
        status = "" if answered.status is None else f"{answered.status}: "
        if answered.error is not None and not as_json:
            complain(f"record {answered.number}: {status}{answered.error}")
        elif answered.error is not None:
            say_json({"record": answered.number, "error": answered.error, "status": answered.status})
        elif as_json:
            say_json({"record": answered.number, "answer": answered.answer})
        else:
            plain(json.dumps(answered.answer, ensure_ascii=False))

    number = 0
    try:
        with draining(stop.set):
            for part in parts(files, form, asking.codec, None, repeat=repeat, at_most=kept.at_once):
                for payload in part.values:
                    if stop.is_set():
                        break
                    number += 1
                    for answered in asking.send(payload):
                        show(answered)
                    kept.wait(number, stop)
            for answered in asking.rest():
                show(answered)
    finally:
        asking.close()
    seconds = time.monotonic() - began
    if as_json:
        say_json({"url": asking.url, **counts, "seconds": seconds, "complete": not stop.is_set()})
    else:
        wrong = f", {counted(counts['failed'], 'error')}" if counts["failed"] else ""
        remark(f"{counted(counts['sent'], 'request')} to {asking.url} in {seconds:.1f} s{wrong}")
    return 1 if counts["failed"] else 0


class Rate:
    """Limits sending to `rate` records a second; `None`: no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self.at_once = 1000 if rate is None else max(1, min(1000, int(rate / 20)))
        """The most records of one send, so that the limit is applied twenty times a second."""

    def wait(self, sent: int, stop: Any) -> None:
        """Wait until the next record is due, or `stop` is set."""
        if self._rate is not None:
            stop.wait(max(0.0, self._began + sent / self._rate - time.monotonic()))


def _send(sink: Sink, part: PayloadBatch, headers: list[Header]) -> None:
    import numpy as np

    from connectors.records import Messages

    count = len(part.values)
    given = [headers] * count if part.headers is None else [[*added, *headers] for added in part.headers]
    messages = Messages(
        np.arange(count, dtype=np.int64),
        part.values,
        part.keys,
        given if any(given) else None,
        topics=part.topics,
    )
    for error in sink.send(messages, time.monotonic() + FULL).values():
        raise error


def _confirm(sink: Sink) -> None:
    for error in sink.barrier(time.monotonic() + FULL).values():
        raise error


def _header(text: str) -> Header:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise typer.BadParameter(f"--header takes NAME=VALUE, not {text!r}")
    return name, value.encode()


@contextmanager
def _progress_of(total: int) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal; the function that it gives takes the bytes done and the records sent so far."""
    from streamer.cli.terminal import notes

    console = notes()
    if not console.is_terminal:
        yield lambda size, sent: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.fields[sent]:,} records"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("sending", total=total, sent=0)
        yield lambda size, sent: progress.update(task, advance=size, sent=sent)
