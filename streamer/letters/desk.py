"""`LetterDesk`: the dead letters of one service, to be looked at and sent back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from pipelines.errors import ConnectorError, DefinitionError, StreamerError
from streamer.letters.nosuchletter import NoSuchLetter
from streamer.letters.replayed import GROUP, Replayed
from streamer.letters.sources import source_of
from streamer.letters.stored import StoredLetter, parsed

if TYPE_CHECKING:
    from connectors.browser import TopicReader
    from connectors.codec import Codec
    from streamer.definition.service import Service
    from streamer.delivery.deadletter import Original
    from streamer.letters.replaying import ReplayReport
    from streamer.letters.route import Route

_RESERVE: Final = 0.5
"""Seconds before a deadline at which reading ends, so that there is an answer."""


class LetterDesk:
    """Reads the dead letters that a service has written, and sends them back to the topics that it reads.

    What it does is what `streamer replay` with the service's file does, under the same group: what one of them has
    sent, the other does not send again unless asked to. Its methods connect, and are for one thread at a time.
    """

    def __init__(self, service: Service, log: Any) -> None:
        self._service = service
        self._log = log
        self._codecs: dict[str, Codec] = {}

    def newest(self, count: int, deadline: float) -> dict[str, Any]:
        """The letters that were written last, at most `count`, the newest first, as plain data.

        Where letters cannot be read again, there are none, with the `reason`. Raises a retriable `ConnectorError` if
        they could be, but not now. `deadline` is in seconds on `time.monotonic`.
        """
        from streamer.letters.document import document
        from streamer.letters.newest import newest
        from streamer.letters.route import readable_letters

        topic = None
        try:
            topic, there = readable_letters(self._service)
            with there.reader(topic, GROUP) as reader:
                letters, whole = newest(reader, count, deadline - _RESERVE)
                marks = _marks(reader)
        except DefinitionError as error:
            return {"place": topic, "letters": [], "reason": str(error)}
        except ConnectorError as error:
            if error.retriable:
                raise
            return {"place": topic, "letters": [], "reason": str(error)}
        route = self._route()
        shown = [
            {
                **document(stored, self._codec_of(stored.letter)),
                "replayed": None if marks is None else _is_in(marks, stored),
                "stays": _stays(stored, route),
            }
            for stored in letters
        ]
        return {"place": topic, "letters": shown, "reason": None, "whole": whole}

    def replay(self, name: str, deadline: float, *, again: bool = False) -> dict[str, Any]:
        """Send the letter of this name back to where its record came from, and note that; `again`: although it was.

        Raises `NoSuchLetter`, a `ConnectorError` where a bus does not answer or refuses something, and another
        `StreamerError` where the letter must not or cannot be sent.
        """
        from streamer.letters.replaying import Choice, replayed
        from streamer.letters.route import readable_letters, route_of_service

        partition, offset, fingerprint = parsed(name)
        readable_letters(self._service)
        route = route_of_service(self._service)
        with route.there.reader(route.topic, GROUP) as reader, route.sending() as back:
            left = deadline - _RESERVE - time.monotonic()
            report = replayed(
                reader,
                back,
                Choice(fingerprint=fingerprint),
                route,
                again=again,
                place=(partition, offset),
                stopped=lambda: time.monotonic() >= deadline - _RESERVE,
                patience=max(left, 0.1),
            )
        origin = _sent(report, name, late=time.monotonic() >= deadline - _RESERVE)
        self._log.info("a dead letter was replayed", letter=name, topic=origin)
        return {"letter": name, "topic": origin, "state": "sent"}

    def _route(self) -> Route | StreamerError:
        """Where letters are sent back to, or why they are not."""
        from streamer.letters.route import route_of_service

        try:
            return route_of_service(self._service)
        except StreamerError as error:
            return error

    def _codec_of(self, letter: Original) -> Codec | StreamerError:
        """The codec of the source that reads the topic of this letter's record; that of a window is always the same."""
        from connectors.codecs.registry import codec_of

        if letter.is_window:
            return codec_of("konduit-json")
        try:
            setting = source_of(self._service, letter.topic, lambda source: source.codec).codec
            key = repr(setting)
            if key not in self._codecs:
                self._codecs[key] = codec_of(setting)
        except StreamerError as error:
            return error
        return self._codecs[key]


def _stays(stored: StoredLetter, route: Route | StreamerError) -> str | None:
    """Why a letter cannot be sent back, as far as is known without asking its bus; `None`: it may be."""
    letter = stored.letter
    if letter.left_out:
        return _empty(letter.place)
    if letter.is_window:
        return _window(letter.place)
    return str(route) if isinstance(route, StreamerError) else route.refusal(letter.topic)


def _marks(reader: TopicReader) -> dict[int, Replayed] | None:
    """Which letters were replayed, by partition; `None` if that cannot be known."""
    try:
        return {number: Replayed(*mark) for number, mark in reader.committed().items()}
    except ConnectorError:
        return None


def _is_in(marks: dict[int, Replayed], stored: StoredLetter) -> bool:
    return stored.partition in marks and stored.offset in marks[stored.partition]


def _sent(report: ReplayReport, name: str, *, late: bool) -> str:
    """The topic that the one letter of a report was sent to. Raises as `LetterDesk.replay` does if it was not."""
    if report.sent:
        return next(iter(report.sent))[0]
    if report.failed:
        raise StreamerError(next(iter(report.failed)))
    if report.empty:
        raise StreamerError(_empty(report.empty[0]))
    if report.windows:
        raise StreamerError(_window(report.windows[0]))
    if report.before:
        raise StreamerError('it was replayed before; list the letters again, or send {"again": true}')
    if late:
        raise ConnectorError("the dead letter could not be read in time; try again", retriable=True)
    raise NoSuchLetter(f"there is no dead letter {name} any more; list the letters again")


def _window(place: str) -> str:
    return f"it has the values of a window, which no topic of records takes; the window's last record is at {place}"


def _empty(place: str) -> str:
    return f"it has no payload to send; the record is, as long as its topic keeps it, at {place}"
