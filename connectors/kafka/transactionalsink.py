"""`KafkaTransactionalSink`: messages to Kafka topics, and positions of a Kafka source, visible as one or not at all."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Self

import numpy as np
from confluent_kafka import KafkaError

from connectors.config import SinkConfig
from connectors.kafka.client.errors import FORBIDDEN, explained
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.kafka.producer.topiclimits import NO_LIMITS
from connectors.kafka.producer.transactions import Transactions
from connectors.kafka.producer.writing import Refusals, Sent
from connectors.kafka.sink import KafkaSink
from connectors.kafka.source import KafkaSource
from connectors.records import Ints, Lane, Messages
from connectors.sink import Lost, Refused, TransactionalSink
from connectors.source import Source, TransactionToken
from pipelines.errors import ConnectorError, DefinitionError

_SLICE = 0.1
# The transaction accepts no more messages, or has dropped those that it had: no message is the cause.
_OF_THE_TRANSACTION = frozenset(
    {
        KafkaError._STATE,
        KafkaError._FATAL,
        KafkaError._FENCED,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)


class KafkaTransactionalSink(KafkaSink, TransactionalSink):
    """A `KafkaSink` that sends in transactions. Its siblings share its producer.

    A message that is larger than its topic allows before compression, or has no key where the topic is compacted, is
    refused alone. Any other refusal by brokers voids the transaction: `barrier` names all messages of the request as
    lost for good, as any of them may be the cause, and all others of the transaction as lost for now.

    If the topic is deleted, the transaction is void, and the sink accepts no messages until the topic is there again;
    after `timeout` the sink is broken.
    """

    def __init__(self, config: KafkaSinkConfig, transactions: Transactions) -> None:
        super().__init__(config, transactions)
        self._transactions = transactions
        self._transactions.sinks.append(self)

    @classmethod
    def first(
        cls,
        config: KafkaSinkConfig,
        source: KafkaSourceConfig,
        timeout: float,
        setting: str | None = "transaction.timeout",
    ) -> Self:
        """The first sink of a service, in transactions of the source's group and `instance`; `sibling` makes others.

        Brokers abort a transaction that is open for longer than `timeout` seconds. `setting` is that of the service
        which says the `timeout`; `None`: none does.
        """
        # With a stable name a restarted member aborts at once the transaction that it left open. Without one the
        # brokers abort it after `timeout`. Former members are fenced by the generations of the group in any case.
        identity = f"streamer-{source.group}-{source.instance or uuid.uuid4().hex}"
        return cls(config, Transactions(config, identity, timeout, setting))

    @property
    def topic(self) -> str | None:
        """Its topic; `None` if messages have topics of their own."""
        return self._plain_topic

    @property
    def longest(self) -> int:
        """Bytes of the longest message that it accepts."""
        return self._config.max_message

    def accepts(self, source: Source) -> str | None:
        """See `TransactionalSink.accepts`: Kafka sources of the same cluster, as far as both have seen it."""
        if not isinstance(source, KafkaSource):
            return f"{source.name} is not a Kafka source"
        try:
            self._transactions.check_cluster(source.cluster)
        except ConnectorError as error:
            return str(error)
        return None

    def sibling(self, config: SinkConfig) -> KafkaTransactionalSink:
        """See `TransactionalSink.sibling`. Both have to have the same settings but for topics and keys."""
        if not isinstance(config, KafkaSinkConfig):
            raise DefinitionError(f'sink "{config.label}": it cannot send in transactions of Kafka')
        if (difference := config.differs_from(self._config)) is not None:
            raise DefinitionError(f'sink "{config.label}": {difference}')
        return KafkaTransactionalSink(config, self._transactions)

    def beside(self, config: KafkaSinkConfig) -> KafkaTransactionalSink:
        """A sibling, not open, that has name, topic and `max_message` of `config`, and the producer of this one."""
        its = {name: getattr(config, name) for name in ("name", "topic", "max_message")}
        return self.sibling(self._config.model_copy(update=its))

    def begin(self, deadline: float) -> None:
        """See `TransactionalSink.begin`."""
        self._transactions.begin(deadline)

    def add_positions(self, positions: Mapping[Lane, int], token: TransactionToken, deadline: float) -> None:
        """See `TransactionalSink.add_positions`."""
        self._transactions.add_positions(positions, token, deadline)

    def commit(self, positions: Mapping[Lane, int], token: TransactionToken, deadline: float) -> None:
        """See `TransactionalSink.commit`."""
        self._transactions.commit(positions, token, deadline)

    def abort(self, deadline: float) -> None:
        """See `TransactionalSink.abort`."""
        self._transactions.abort(deadline)

    def send(self, messages: Messages, deadline: float) -> Refused:
        """See `Sink.send`. Messages that their topic does not accept, or whose own topic does not exist, are refused
        alone.

        Raises `Voided` if the client was fenced, `ConnectorError` if no transaction has begun, the client may not
        write, or the sink's topic stays missing.
        """
        if not self._transactions.is_active:
            raise ConnectorError(f"sink {self.name}: begin a transaction before sending")
        limits = NO_LIMITS if self.topic is None else self._transactions.limits(self.topic) or NO_LIMITS
        errors = limits.refusals(messages, self.longest) if len(messages) else {}
        if not errors:
            return super().send(messages, deadline)
        rest = np.array([index for index in range(len(messages)) if index not in errors], np.int64)
        refused = super().send(messages.take(rest), deadline) if len(rest) else {}
        where = f"sink {self.name}, topic"
        return {int(rest[index]): error for index, error in refused.items()} | {
            index: explained(error, f'{where} "{self._topic_of(messages, index)}"', self._scrub)
            for index, error in errors.items()
        }

    def barrier(self, deadline: float) -> Lost:
        """See `KafkaSink.barrier`. Raises `Voided` if the client was fenced.

        Once the transaction has failed, it does not wait any longer: unconfirmed messages are lost.
        """
        lost = dict(super().barrier(deadline))
        if self._transactions.failed:
            self._transactions.look_for_failure()
            error = ConnectorError(f"sink {self.name}: the transaction has failed", retriable=True)
            for sent in self._outstanding:
                for row in sent.rows().tolist():
                    lost.setdefault(row, error)
        return lost

    def confirmed(self) -> list[Ints]:
        with self._transactions.lock:
            return super().confirmed()

    def push(self) -> None:
        if self._transactions.is_active:
            super().push()

    def behind(self) -> float:
        return super().behind() if self._transactions.is_active else 0.0

    def look(self) -> None:
        """Update which messages are confirmed or lost."""
        with self._transactions.lock:
            self._collect()

    def forget(self) -> None:
        """Drop the state of all sent messages, also which were confirmed or lost. Called while nothing is
        outstanding."""
        with self._transactions.lock:
            self._collect()
            self._collected = self._calls.made
            self._outstanding.clear()
            self._confirmed.clear()
            self._lost.clear()

    def _collect(self) -> None:
        with self._transactions.lock:
            super()._collect()

    def _wait_until_idle(self, deadline: float) -> None:
        while True:
            try:
                super()._wait_until_idle(min(deadline, time.monotonic() + _SLICE))
                return
            except ConnectorError as error:
                self._collect()
                self._transactions.look_for_failure()
                if self._transactions.failed:
                    return
                if not error.retriable or time.monotonic() >= deadline:
                    raise

    def _turn_down(self, sent: Sent, refusals: Refusals) -> Refusals:
        # A transaction that has failed takes no messages: these are lost, as are those it took before.
        void = {index for index, error in refusals.items() if error.code() in _OF_THE_TRANSACTION}
        for index in void:
            sent.lose(index, refusals[index])
        return super()._turn_down(sent, {index: error for index, error in refusals.items() if index not in void})

    def _lose(self, sent: Sent, index: int, error: KafkaError) -> None:
        where = f'sink {self.name}, topic "{sent.topic(index)}"'
        self._transactions.failed = True
        if error.fatal():
            self._transactions.fail(error)
        if error.fatal() or error.code() in _OF_THE_TRANSACTION:
            lost = ConnectorError(f"{where}: the transaction failed: {error.str()}", retriable=True)
        elif error.code() in FORBIDDEN:
            lost = self._fatal = explained(error, where, self._scrub)
        else:
            lost = self._refusal(error, sent.topic(index))
            # Codes of brokers are positive, those of the client are not.
            self._transactions.has_gap |= error.code() > 0
        self._lost |= dict.fromkeys(sent.parents(index).tolist(), lost)

    def _topic_of(self, messages: Messages, index: int) -> str:
        return (messages.topics[index] if messages.topics is not None else "") or self._topic
