"""`ProducerClient`: a producer with its thread and callbacks. Sinks that send in the same transactions share one."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from connectors.kafka.client.bridge import join, report
from connectors.kafka.client.errors import REFUSED_LOGIN, error_of, explained
from connectors.kafka.client.hints import with_hints
from connectors.kafka.client.properties import scrubber, sink_properties
from connectors.kafka.client.reachability import Reachability
from connectors.kafka.config import KafkaSinkConfig
from connectors.kafka.producer.presence import Presence
from connectors.kafka.producer.writing import CompiledWriting, PlainWriting, Writing
from pipelines.errors import ConnectorError
from pipelines.hotpath import HotPathReport, choose

_SLICE = 0.1


class Calls:
    """How many calls of `send` one sink has made, and how many of them are known to be confirmed or lost."""

    def __init__(self, presence: Presence) -> None:
        self.presence = presence
        """Whether the sink's topic exists."""
        self.made = 0
        """Written by the sink."""
        self.reported = 0
        """Written by the client's thread: the number of calls before the last moment without outstanding messages."""


class ProducerClient:
    """An idempotent producer, its `Writing`, and a thread that serves its callbacks.

    The thread notices moments without outstanding messages, at which all messages sent so far are confirmed or lost,
    and checks whether absent brokers and topics are back.
    """

    def __init__(self, config: KafkaSinkConfig) -> None:
        self.label = f"sink {config.label}"
        """The sink that it was made for, as in `sink results`."""
        self.scrub = scrubber(config)
        """Takes secrets out of texts."""
        self.producer: Producer
        self.writing: Writing
        self.reach: Reachability
        self.met = False
        """Whether the brokers have accepted its login."""
        self.fatal: ConnectorError | None = None
        """Why the client has failed for good."""
        self.changed = threading.Condition()
        """Notified ten times a second, and after callbacks."""
        self._config = config
        self._choice = choose()
        self._hot_path: HotPathReport | None = None
        self._foreseen: tuple[str, int, str] | None = None
        self._sinks: list[Calls] = []
        self._watcher: threading.Thread | None = None
        self._watching = False

    @property
    def hot_path(self) -> HotPathReport:
        """See `Sink.hot_path`. Raises `HotPathError` if `native` is required and cannot be used."""
        return self._hot_path or report(self._choice)

    @property
    def is_open(self) -> bool:
        """Whether a sink uses the client."""
        return bool(self._sinks)

    def attach(self, calls: Calls, topic: str | None) -> None:
        """A sink begins to use it: the first one opens it. Its metadata request is for `topic`, to see that brokers
        answer.

        Raises `ConnectorError` for an unknown property, and a login that is refused.
        """
        if not self._sinks:
            self._open(topic)
        self._sinks.append(calls)

    def detach(self, calls: Calls) -> None:
        """Called by a sink that stops using the client; the last one closes it. Unconfirmed messages are dropped."""
        if calls not in self._sinks:
            return
        self._sinks.remove(calls)
        if not self._sinks:
            self._close()

    def foresee(self, topic: str, partitions: int) -> None:
        """As `Writing.foresee`, for the topic of the sink that it was made for: the first, where sinks share it."""
        if self._foreseen is None and topic == self._config.topic:
            self._foreseen = (topic, partitions, self._config.partitioner)
            self.writing.foresee(*self._foreseen)

    def poll(self, seconds: float) -> None:
        """Serve the client's callbacks. The client raises a fatal error here, and does not call `error_cb` with it."""
        try:
            self.producer.poll(seconds)
        except KafkaException as exception:
            self.fail(error_of(exception))

    def flush(self, seconds: float) -> None:
        """Wait until all messages are confirmed or lost, at most `seconds`; otherwise as `poll`."""
        try:
            self.producer.flush(seconds)
        except KafkaException as exception:
            self.fail(error_of(exception))

    def fail(self, error: KafkaError) -> None:
        """The client has failed for good: every later call raises this error."""
        self.fatal = self.fatal or self.failure(error)

    def failure(self, error: KafkaError) -> ConnectorError:
        """A fatal error of the client, as the error that its sinks raise."""
        return explained(error, self.label, self.scrub)

    def raise_fatal(self) -> None:
        """Raise the error of a client that has failed for good."""
        if self.fatal is not None:
            raise self.fatal

    def _properties(self, callbacks: Mapping[str, Callable[..., None]]) -> dict[str, Any]:
        return sink_properties(self._config, callbacks)

    def _open(self, topic: str | None) -> None:
        self._make()
        self.reach = Reachability(lambda seconds: self.producer.list_topics(topic, timeout=seconds))
        self._watch()

    def _close(self) -> None:
        self._stop_watching()
        close(self.producer)

    def _make(self) -> None:
        try:
            self.producer, writer, self._hot_path = join(
                Producer,
                lambda extension: extension.KafkaWriter(),
                self._properties({"error_cb": self._on_error}),
                self._choice,
                self.label,
                self.scrub,
                producer=True,
            )
        except (KafkaException, ValueError, TypeError) as error:
            text = self.scrub(str(error_of(error).str() if isinstance(error, KafkaException) else error))
            raise ConnectorError(f"{self.label}: client: {with_hints(text)}") from None
        self.writing = PlainWriting(self.producer) if writer is None else CompiledWriting(self.producer, writer)
        if self._foreseen is not None:
            self.writing.foresee(*self._foreseen)

    def _watch(self) -> None:
        self._watching = True
        self._watcher = threading.Thread(target=self._serve, name=f"kafka {self.label}", daemon=True)
        self._watcher.start()

    def _stop_watching(self) -> None:
        self._watching = False
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None

    def _serve(self) -> None:
        while self._watching:
            self.poll(_SLICE)
            sinks = list(self._sinks)
            # Read first, so that blocks sent after `is_idle` do not count.
            made = [calls.made for calls in sinks]
            idle = self.writing.is_idle()
            with self.changed:
                if idle:
                    _report(sinks, made)
                self.changed.notify_all()
            self.reach.check()
            for calls in sinks:
                calls.presence.check()

    def _on_error(self, error: KafkaError) -> None:
        text = self.scrub(error.str())
        if error.fatal() or (error.code() in REFUSED_LOGIN and not self.met):
            self.fail(error)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.reach.suspect(f"{self._config.brokers}: {text}")
        else:
            # The client logs this error itself.
            self.reach.heard(text)


def close(producer: Producer) -> None:
    """Drop outstanding messages, and close the client."""
    producer.purge()
    # `close` raises a fatal error that was not reported yet, and warns of a transaction that it cannot abort; it closes
    # the client all the same.
    with suppress(KafkaException), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        producer.close()


def _report(sinks: Iterable[Calls], made: Iterable[int]) -> None:
    for calls, count in zip(sinks, made, strict=True):
        calls.reported = count
