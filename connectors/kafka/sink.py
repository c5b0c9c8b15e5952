"""`KafkaSink`: messages to Kafka topics, confirmed by the brokers."""

from __future__ import annotations

import math
import time
from collections import deque

from confluent_kafka import KafkaError, KafkaException

from connectors.kafka.client.errors import FORBIDDEN, GONE, error_of, explained, is_passing
from connectors.kafka.client.topics import check_topic
from connectors.kafka.config import KafkaSinkConfig
from connectors.kafka.producer.client import Calls, ProducerClient
from connectors.kafka.producer.presence import Presence, TopicState
from connectors.kafka.producer.writing import Refusals, Sent
from connectors.records import Ints, Messages
from connectors.sink import Lost, Refused, Sink
from pipelines.errors import ConnectorError
from pipelines.hotpath import HotPathReport

_SLICE = 0.1
_FULL_WAIT = 0.05
_PUSH = 0.001
_REASON = 5.0
# The client's error for messages whose partition was deleted before they were sent. While the sink is open it does not
# mean that the client itself is being closed.
_TAKEN_AWAY = KafkaError._DESTROY
# Errors of the client, not of the message: it lost the sequence of its messages. The client reports that as fatal, but
# maybe only after its messages have failed.
_OF_THE_SEQUENCE = frozenset({KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID})
# Brokers refuse whole batches for these: the other messages of a batch may be right.
_OF_THE_BATCH = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)


class KafkaSink(Sink):
    """Messages to Kafka topics, by an idempotent producer with `acks: all`.

    The client reports only messages that fail. The compiled bridge reports for each block when it is confirmed. In
    plain Python that would cost more than sending it: a thread of this sink watches for moments when nothing is
    outstanding; then all messages sent so far are confirmed, except those that failed. While messages are sent without
    pause there may be no such moment until a barrier waits for one.

    If the brokers refuse a whole batch because of one of its messages (too large for the topic, no key for a compacted
    topic), each message is sent again alone, so that only that one is lost.

    If the topic is deleted, the sink accepts no messages until it is created again, and messages in flight are lost, to
    be sent again. After `timeout` the sink is broken. With a topic that is made from values this is different: a
    message to a missing topic is refused alone.

    Unconfirmed messages take at most 64 MiB (`queue.buffering.max.kbytes`) of the client's memory, and as much again in
    the sink, which keeps them to report the rows of failed ones.
    """

    def __init__(self, config: KafkaSinkConfig, client: ProducerClient | None = None) -> None:
        """`client`: the producer, which other sinks may share; by default a new one."""
        self.name = config.label
        self._config = config
        self._topic = config.topic
        self._client = client or ProducerClient(config)
        self._scrub = self._client.scrub
        self._presence = Presence(self._look_for_topic)
        self._calls = Calls(self._presence)
        self._open = False
        self._fatal: ConnectorError | None = None
        self._pushed = float("-inf")
        self._collected = 0
        self._outstanding: deque[Sent] = deque()
        self._confirmed: list[Ints] = []
        self._lost: dict[int, ConnectorError] = {}
        self._to_send_alone: list[Messages] = []
        self._alone: Sent | None = None

    @property
    def hot_path(self) -> HotPathReport:
        """See `Sink.hot_path`. Raises `HotPathError` if `native` is required and cannot be used."""
        return self._client.hot_path

    def open(self) -> None:
        """Connect. Waits up to 5 s for brokers to report a wrong topic or login; absent brokers are no error.

        Raises `ConnectorError` for an unknown property or topic, and a login that is refused.
        """
        self._client.attach(self._calls, self._plain_topic)
        self._open = True
        try:
            self._check_topic()
        except KafkaException as error:
            self.close()
            raise explained(error_of(error), f"sink {self.name}", self._scrub) from error
        except ConnectorError:
            self.close()
            raise

    def send(self, messages: Messages, deadline: float) -> Refused:
        """See `Sink.send`. Messages that are too large, or whose own topic does not exist, are refused alone.

        Raises `ConnectorError` once the client has failed for good or may not write, or the sink's topic stays missing.
        """
        self._raise_fatal()
        if not len(messages):
            return {}
        while self._presence.gone_since is not None:
            self._raise_if_gone_for_good()
            if not self._wait_for_room(deadline):
                return dict.fromkeys(range(len(messages)), self._gone())
        # From now on other messages may be in its batch.
        self._alone = None
        sent = Sent(messages, self._topic)
        refusals = self._client.writing.send(sent, messages, self._topic, lambda: self._wait_for_room(deadline))
        refusals = self._turn_down(sent, refusals)
        self._outstanding.append(sent)
        self._calls.made += 1
        return {index: self._refused(error, sent.topic(index)) for index, error in refusals.items()}

    def barrier(self, deadline: float) -> Lost:
        """See `Sink.barrier`. Raises `ConnectorError` also once the client has failed for good or may not write."""
        self._wait_until_idle(deadline)
        self._collect()
        while self._to_send_alone:
            self._send_alone(self._to_send_alone.pop(0), deadline)
        # A fatal error makes messages fail, too, and may be reported after them.
        self._client.poll(0)
        self._raise_fatal()
        lost, self._lost = self._lost, {}
        return lost

    def confirmed(self) -> list[Ints]:
        self._collect()
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def push(self) -> None:
        now = time.monotonic()
        if now - self._pushed < self._config.linger or self._is_idle():
            return
        self._pushed = now
        # Messages do not linger during a flush. It need not complete, but has to last until the client's thread notices
        # it.
        self._client.flush(_PUSH)

    def behind(self) -> float:
        if not self._client.writing.confirms_blocks or self._lost or self._to_send_alone:
            return math.inf
        return time.monotonic() - self._outstanding[0].at if self._outstanding else 0.0

    def close(self) -> None:
        """See `Sink.close`. Unconfirmed messages are dropped."""
        self._open = False
        self._client.detach(self._calls)

    def down(self) -> str | None:
        if not self._open:
            return None
        return self._client.reach.reason or (
            None if self._presence.gone_since is None else f'the topic "{self._topic}" is gone'
        )

    def _send_alone(self, block: Messages, deadline: float) -> None:
        refused = self.send(block, deadline)
        for index, error in refused.items():
            self._lost |= dict.fromkeys(block.parents(index).tolist(), error)
        if not refused:
            # Noted even if its answer comes after the deadline: on a slow network it would be sent again and again.
            self._alone = self._outstanding[-1]
        self._wait_until_idle(deadline)
        self._collect()

    def _collect(self) -> None:
        """Remove the blocks whose messages are all confirmed or lost from those that are outstanding."""
        # Read before the failures, so that all failures of these blocks are known.
        reported = self._calls.made if self._is_idle() else self._calls.reported
        for sent in self._client.writing.finished(self._outstanding, max(0, reported - self._collected)):
            self._collected += 1
            losses = sent.losses()
            if len(rows := sent.rows(without=losses)):
                self._confirmed.append(rows)
            for index, error in losses.items():
                self._lose(sent, index, error)

    def _turn_down(self, sent: Sent, refusals: Refusals) -> Refusals:
        """Handle messages that the client refused; returns those that `send` refuses."""
        for index in refusals:
            sent.refuse(index)
        return refusals

    def _lose(self, sent: Sent, index: int, error: KafkaError) -> None:
        """Note that the message at this index is lost."""
        if sent is not self._alone and self._may_be_of_another(error, sent, index):
            self._to_send_alone.append(sent.only(index))
            return
        refusal = self._refusal(error, sent.topic(index))
        self._lost |= dict.fromkeys(sent.parents(index).tolist(), refusal)

    def _may_be_of_another(self, error: KafkaError, sent: Sent, index: int) -> bool:
        """Whether another message may have caused the error."""
        # The compiled bridge cannot tell which of several tombstones failed.
        unknown = self._client.writing.confirms_blocks and sent.is_tombstone(index) and not is_passing(error)
        return error.code() in _OF_THE_BATCH or unknown

    def _wait_until_idle(self, deadline: float) -> None:
        done = False
        while not done:
            self._raise_fatal()
            done = self._calls.reported >= self._calls.made or self._is_idle()
            left = deadline - time.monotonic()
            if done or left <= 0:
                break
            # A flush rather than a wait: it has the client send messages that linger.
            self._client.flush(min(left, _SLICE))
        if not done:
            reason = self.down()
            raise ConnectorError(
                f"sink {self.name}: {len(self._client.producer)} messages are not confirmed yet"
                + (f", as the brokers cannot be reached: {reason}" if reason else "; the brokers are slow or away"),
                retriable=True,
            )

    def _is_idle(self) -> bool:
        return self._client.writing.is_idle()

    def _wait_for_room(self, deadline: float) -> bool:
        if not self._open or time.monotonic() >= deadline:
            return False
        with self._client.changed:
            self._client.changed.wait(_FULL_WAIT)
        return True

    def _full(self) -> ConnectorError:
        return ConnectorError(
            f"sink {self.name}: the client's queue is full, as the brokers are slower than the service or away",
            retriable=True,
        )

    def _gone(self) -> ConnectorError:
        return ConnectorError(
            f'sink {self.name}: the topic "{self._topic}" is gone; create it again, within {self._config.timeout:g} s',
            retriable=True,
        )

    def _raise_if_gone_for_good(self) -> None:
        since = self._presence.gone_since
        if since is not None and time.monotonic() - since > self._config.timeout:
            raise ConnectorError(
                f'sink {self.name}: the topic "{self._topic}" is gone, and was not created again in '
                f"{self._config.timeout:g} s; create it, and start again"
            )

    def _look_for_topic(self, seconds: float) -> TopicState:
        metadata = self._client.producer.list_topics(self._topic, timeout=seconds).topics[self._topic]
        if metadata.error is not None and metadata.error.code() in GONE:
            return TopicState.GONE
        partitions = metadata.partitions.values()
        is_ready = (
            metadata.error is None and len(partitions) > 0 and all(partition.leader >= 0 for partition in partitions)
        )
        return TopicState.READY if is_ready else TopicState.WITHOUT_LEADER

    def _refused(self, error: KafkaError, topic: str) -> ConnectorError:
        return self._full() if error.code() == KafkaError._QUEUE_FULL else self._refusal(error, topic)

    def _refusal(self, error: KafkaError, topic: str) -> ConnectorError:
        taken_away = error.code() == _TAKEN_AWAY
        if (taken_away or error.code() in GONE) and topic == self._plain_topic:
            # The message is not the cause.
            self._presence.missed()
            return self._gone()
        if error.code() == KafkaError._MSG_TIMED_OUT and topic == self._plain_topic:
            # The client may take longer than `timeout` to notice that the topic was deleted.
            self._presence.suspect()
        if taken_away:
            return ConnectorError(
                f'sink {self.name}: the topic "{topic}" was deleted while messages were on their way to it',
                retriable=True,
            )
        of_the_client = error.code() == KafkaError._FATAL or error.code() in _OF_THE_SEQUENCE
        if of_the_client:
            # The reason is reported to the thread that polls next, which may be the watcher.
            deadline = time.monotonic() + _REASON
            while self._client.fatal is None and time.monotonic() < deadline:
                self._client.poll(_PUSH)
        refusal = explained(error, f'sink {self.name}, topic "{topic}"', self._scrub)
        if error.fatal() or of_the_client or error.code() in FORBIDDEN:
            self._fatal = refusal = self._client.fatal or self._fatal or refusal
        return refusal

    def _raise_fatal(self) -> None:
        self._client.raise_fatal()
        if self._fatal is not None:
            raise self._fatal

    @property
    def _plain_topic(self) -> str | None:
        return None if "{" in self._topic else self._topic

    def _check_topic(self) -> None:
        if self._plain_topic is None:
            return
        partitions = check_topic(self._client.producer, self._plain_topic, f"sink {self.name}", self._is_hopeless)
        if partitions is not None:
            self._client.met = True
            self._client.foresee(self._plain_topic, partitions)
            return
        self._raise_fatal()
        self._client.reach.suspect(f"{self._config.brokers} does not answer")

    def _is_hopeless(self) -> bool:
        return self._client.fatal is not None or self._client.reach.suspected
