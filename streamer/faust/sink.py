"""`FaustSink`: messages to Kafka topics through the producer of a Faust app."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidTimestampError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from faust.exceptions import ProducerSendError
from faust.types import AppT

from connectors.records import Header, Messages
from pipelines.errors import ConnectorError
from streamer.faust.loopsink import MOST_IN_FLIGHT, LoopSink, Sent

_OVERHEAD = 100
"""Bytes that a record takes beside its payload, key and headers, at most."""
# Brokers refuse whole batches for these: the other messages of a batch may be right.
_OF_THE_BATCH = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidTimestampError)
# Errors raised before a message is sent: its key, value, headers or topic is wrong.
_OF_THE_MESSAGE = (*_OF_THE_BATCH, InvalidTopicError, TypeError, ValueError)
_FORBIDDEN = (TopicAuthorizationFailedError, ClusterAuthorizationFailedError)


class FaustSink(LoopSink):
    """Messages to Kafka topics, confirmed when Faust's producer says that the brokers have them.

    A message that is larger than the app's `producer_max_request_size` is refused. If the brokers refuse a batch
    because of one of its messages (too large for the topic), each is sent again alone, so that only that one is lost.
    Messages to a partition are sent in order, and the producer has one request for it on its way at a time.

    Unconfirmed messages take at most `most_in_flight` bytes. The producer gives a message up after the app's
    `producer_request_timeout` (20 min); until then its record and later ones are not acknowledged.
    """

    def __init__(self, app: AppT, topic: str, *, name: str = "kafka", most_in_flight: int = MOST_IN_FLIGHT) -> None:
        """Made in the loop's thread. The app's producer has to be started before the sink is opened."""
        super().__init__(name, most_in_flight=most_in_flight)
        self._app = app
        self._topic = topic
        self._most = int(app.conf.producer_max_request_size)
        self._sending: asyncio.Lock = asyncio.Lock()
        """Held while a block is sent, and while messages are sent alone."""

    async def _deliver(self, blocks: asyncio.Queue[Sent]) -> None:
        sent: asyncio.Queue[tuple[Sent, list[Any]]] = asyncio.Queue()
        confirming = asyncio.ensure_future(self._confirm(sent))
        confirming.add_done_callback(self._ended)
        try:
            while True:
                block = await blocks.get()
                async with self._sending:
                    sent.put_nowait((block, await self._send(block.messages)))
        finally:
            confirming.cancel()

    async def _send(self, messages: Messages) -> list[Any]:
        """The producer's answer for each message: a future, or the error with which it refused."""
        send, topic, topics = self._app.producer.send, self._topic, messages.topics
        keys, headers, stamps = messages.keys, messages.headers, messages.timestamps
        answers: list[Any] = []
        message_headers: Any
        for index, value in enumerate(messages.values):
            stamp = -1 if stamps is None else int(stamps[index])
            message_headers = None if headers is None else headers[index]
            try:
                answers.append(
                    await send(
                        topics[index] or topic if topics is not None else topic,
                        None if keys is None else keys[index],
                        value,
                        None,
                        # In seconds, which Faust turns into milliseconds by cutting off.
                        None if stamp < 0 else (stamp + 0.5) / 1000,
                        None if message_headers is None else list(message_headers),
                    )
                )
            except Exception as error:  # noqa: BLE001 - every exception here is about this message
                answers.append(error)
        return answers

    async def _confirm(self, blocks: asyncio.Queue[tuple[Sent, list[Any]]]) -> None:
        while True:
            block, answers = await blocks.get()
            errors = await self._errors(answers)
            alone = [at for at, error in errors.items() if isinstance(error, _OF_THE_BATCH)]
            if alone:
                await self._send_alone(block.messages, alone, errors)
            topics = block.messages.topics
            self.finish(block, {at: self._loss(error, bool(topics and topics[at])) for at, error in errors.items()})

    async def _send_alone(self, messages: Messages, alone: list[int], errors: dict[int, Exception]) -> None:
        """Send these messages one by one, with no other in their batches; `errors` then has those that fail again."""
        async with self._sending:
            await self._app.producer.flush()
            for index in alone:
                del errors[index]
                part = messages.take(np.array([index], np.int64))
                if again := await self._errors(await self._send(part)):
                    errors[index] = again[0]

    async def _errors(self, answers: list[Any]) -> dict[int, Exception]:
        """Why messages were not confirmed, by their places."""
        errors: dict[int, Exception] = {}
        for index, answer in enumerate(answers):
            if isinstance(answer, ProducerSendError) and isinstance(answer.__cause__, Exception):
                errors[index] = answer.__cause__
            elif isinstance(answer, Exception):
                errors[index] = answer
            else:
                try:
                    # One after the other: the rest are mostly done when the first is, and then wait for no turn.
                    await answer
                except asyncio.CancelledError:
                    if not self._open:
                        raise
                    errors[index] = ConnectorError("the producer was stopped", retriable=True)
                except Exception as error:  # noqa: BLE001 - after any exception the message is not confirmed
                    errors[index] = error
        return errors

    def _refused(self, messages: Messages, sizes: Sequence[int]) -> dict[int, ConnectorError]:
        headers = messages.headers
        if headers is not None:
            sizes = [size + _headers_size(pairs) for size, pairs in zip(sizes, headers, strict=True)]
        most = self._most - _OVERHEAD
        if max(sizes) <= most:
            return {}
        return {
            at: ConnectorError(
                f"sink {self.name}: the message has {size} bytes, and the app's producer_max_request_size is "
                f"{self._most}; raise it, or make the results smaller"
            )
            for at, size in enumerate(sizes)
            if size > most
        }

    def _loss(self, error: Exception, own_topic: bool) -> ConnectorError:
        """The error of a lost message: for good if the message itself is wrong, else retriable."""
        loss = ConnectorError(f"sink {self.name}: {type(error).__name__}: {error}", retriable=True)
        if isinstance(error, _FORBIDDEN):
            self.fail(ConnectorError(f"sink {self.name}: it may not write to {self._topic}: {error}"))
        elif isinstance(error, _OF_THE_MESSAGE) or (own_topic and isinstance(error, UnknownTopicOrPartitionError)):
            loss.retriable = False
        return loss


def _headers_size(pairs: Sequence[Header] | None) -> int:
    """Bytes that headers take at most: with their lengths, and names in UTF-8."""
    return sum(4 * len(name) + len(value or b"") + 10 for name, value in pairs or ())
