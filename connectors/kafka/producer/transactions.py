"""`Transactions`: a transactional producer, which all sinks of a service share."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from connectors.kafka.client.errors import FORBIDDEN, error_of, explained, is_passing
from connectors.kafka.client.member import Member
from connectors.kafka.client.properties import admin_properties, transactional_properties
from connectors.kafka.client.queries import Queries
from connectors.kafka.client.resumablecalls import ResumableCalls
from connectors.kafka.config import KafkaSinkConfig
from connectors.kafka.consumer.lanes import CommitMetadata
from connectors.kafka.producer.client import Calls, ProducerClient, close
from connectors.kafka.producer.topiclimits import TopicLimits, limits_of
from connectors.records import Lane
from connectors.sink import Voided
from connectors.source import TransactionToken
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)

_OPEN_WAIT = 5.0
_CLOSE_WAIT = 5.0
HUNG = 10.0
"""Seconds after which a client is given up whose call does not succeed, although the brokers answer others."""
_ANSWER_WAIT = 2.0
"""Seconds to wait for that answer."""
_MARGIN = 0.25
"""Seconds by which the client may be later than the timeout that it was given."""
_LEAST = 0.05
_IDLE_SLICE = 0.005
_MOST_FENCED = 3
_FENCED_SECONDS = 600.0
_STOPPING = FORBIDDEN | {KafkaError.INVALID_TRANSACTION_TIMEOUT, KafkaError.UNSUPPORTED_VERSION}
"""Errors that neither a new client nor a new attempt with the same records would mend."""
_FENCING = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
"""Errors if another client has taken the identity, or the brokers gave up waiting for this one."""


class _Fenced(Voided):
    """The client failed for good: for the brokers, another client has its identity now."""


class KafkaTransactionSink(Protocol):
    """What `Transactions` asks of each sink that sends by it."""

    @property
    def topic(self) -> str | None:
        """The topic that it writes to; `None` if messages have topics of their own."""

    @property
    def longest(self) -> int:
        """Bytes of the longest message that it accepts."""

    def look(self) -> None:
        """Update which messages are confirmed or lost."""

    def forget(self) -> None:
        """Drop the state of all sent messages."""


class Transactions(ProducerClient):
    """A producer with a `transactional.id`, and the transaction that is open.

    `begin`, `commit` and `abort` run the client's calls, which may block for much longer than their timeout, in a
    thread of their own: a call that is late goes on, and the next call waits for it. A client whose call does not
    succeed for `HUNG` seconds is given up if the brokers answer others meanwhile: librdkafka can lose the coordinator
    of a transaction, or that of the group, for good (its issues 5456 and 5511). It is replaced by the next `begin` or
    `abort`.

    A client that was fenced, or that the brokers gave up waiting for, is replaced by one with the same id, which has
    the brokers abort the open transaction of the first one. A client is replaced, too, if brokers refused messages of
    it: the sequence numbers of its messages then have a gap, for which they would refuse the next message.
    """

    def __init__(
        self, config: KafkaSinkConfig, identity: str, timeout: float, setting: str | None = "transaction.timeout"
    ) -> None:
        """`identity` is the `transactional.id`, `timeout` the seconds after which brokers abort a transaction;
        `setting` is that of the service which says the `timeout`; `None`: none does."""
        super().__init__(config)
        self.lock = threading.RLock()
        """Held while the state of sent messages is read or dropped."""
        self.sinks: list[KafkaTransactionSink] = []
        """All sinks that send by it."""
        self.is_active = False
        """Whether a transaction is open."""
        self.cluster: str | None = None
        """The id of the brokers' cluster; `None` until they have answered."""
        self.failed = False
        """Whether a message of the open transaction is lost, so that it cannot be committed."""
        self.has_gap = False
        """Whether brokers refused messages since the client was made."""
        self._identity = identity
        self._timeout = timeout
        self._setting = setting
        self._config = config
        self._limits: dict[str, TopicLimits] | None = None
        self._batch_size = 0
        self._admitted = False
        self._has_offsets = False
        self._queries = Queries(admin_properties(config))
        self._running = ResumableCalls()
        self._since: dict[str, float] = {}
        """Since when calls that have not succeeded yet have been tried with brokers that answer, on `time.monotonic`,
        by name."""
        self._given_up = False
        """Whether the client was given up, and is to be replaced."""
        self._hanging: threading.Thread | None = None
        """The thread of the call in which that client hangs: until it ends the client cannot be closed."""
        self._fenced: deque[float] = deque(maxlen=_MOST_FENCED)

    def limits(self, topic: str) -> TopicLimits | None:
        """The brokers' limits for this topic; `None` if they are not known."""
        return (self._limits or {}).get(topic)

    def attach(self, calls: Calls, topic: str | None) -> None:
        """See `ProducerClient`. The first sink waits up to 5 s for the brokers to admit the client.

        Raises `ConnectorError` also if the client may not use its `transactional.id` or `timeout`.
        """
        first = not self.is_open
        super().attach(calls, topic)
        if not first:
            return
        try:
            self._within("open", time.monotonic() + _OPEN_WAIT, self._admit)
        except ConnectorError as error:
            if error.retriable:
                return
            super().detach(calls)
            raise

    def detach(self, calls: Calls) -> None:
        """See `ProducerClient`. The last sink aborts an open transaction, if it can."""
        if self.is_open and len(self._sinks) == 1 and self.is_active and not self._running.running:
            self._quietly("abort", time.monotonic() + _CLOSE_WAIT, self._abort)
        super().detach(calls)

    def begin(self, deadline: float) -> None:
        """See `TransactionalSink.begin`."""
        if self.is_active and not self._running.running:
            raise ConnectorError(f"{self.label}: a transaction has begun already; commit or abort it first")
        self._within("begin", deadline, self._begin)

    def add_positions(self, positions: Mapping[Lane, int], token: TransactionToken, deadline: float) -> None:
        """See `TransactionalSink.add_positions`: the brokers take positions while messages are on their way to them."""
        offsets, member = self._offsets(positions, token)
        self._within("add positions", deadline, lambda until: self._add_offsets(offsets, member.group, until))

    def commit(self, positions: Mapping[Lane, int], token: TransactionToken, deadline: float) -> None:
        """See `TransactionalSink.commit`."""
        offsets, member = self._offsets(positions, token)
        self._within("commit", deadline, lambda until: self._commit(offsets, member.group, until))

    def abort(self, deadline: float) -> None:
        """See `TransactionalSink.abort`."""
        self._within("abort", deadline, self._abort)

    def look_for_failure(self) -> None:
        """Check whether the open transaction has failed though no message is lost yet: messages for partitions that
        could not be added to it wait in the client until they time out.

        Raises `ConnectorError` if a new transaction would fail, too: the lost messages would not show that reason.
        """
        if not self.is_active:
            return
        try:
            # The error of this call tells the state of the transaction: if it is intact, that another cannot begin now.
            self.producer.begin_transaction()
        except KafkaException as exception:
            error = error_of(exception)
            if error.fatal():
                self.fail(error)
            if error.code() in _STOPPING:
                raise self._stop(error) from exception
            self.failed = self.failed or error.txn_requires_abort() or error.fatal()

    def check_cluster(self, theirs: str | None) -> None:
        """Raise `ConnectorError` if the source's cluster is known to be another one."""
        if theirs is not None and self.cluster is not None and theirs != self.cluster:
            raise ConnectorError(
                f"{self.label}: it writes to the cluster {self.cluster}, and the source reads from {theirs}: a "
                f"transaction is of one cluster; use delivery: at_least_once"
            )

    def failure(self, error: KafkaError) -> ConnectorError:
        """`Voided` for errors that a new client would mend, else an error that stops the service."""
        if error.code() in _STOPPING:
            return self._stop(error)
        kind = _Fenced if error.code() in _FENCING else Voided
        return kind(self.scrub(f"{self.label}: {error.str()} ({error.name()})"))

    def _properties(self, callbacks: Mapping[str, Callable[..., None]]) -> dict[str, Any]:
        known = [limits.batch for limits in (self._limits or {}).values()]
        longest = max(sink.longest for sink in self.sinks)
        properties = transactional_properties(
            self._config, callbacks, self._identity, self._timeout, longest, min(known, default=None)
        )
        self._batch_size = int(properties["batch.size"])
        return properties

    def _close(self) -> None:
        self._stop_watching()
        producer = self.producer
        # Waits for a call that is late, too: a client must not be closed during a call.
        self._quietly("close", time.monotonic() + _CLOSE_WAIT, lambda until: close(producer))
        self._admitted = self.is_active = False

    def _offsets(self, positions: Mapping[Lane, int], token: TransactionToken) -> tuple[list[TopicPartition], Member]:
        """The positions as the client takes them, and the consumer they belong to.

        Raises `Voided` if the transaction cannot be committed any more, or not with these positions.
        """
        member = token.member
        if not isinstance(member, Member):
            raise ConnectorError(f"{self.label}: the positions are not those of a Kafka source")
        if strangers := [lane for lane in positions if lane not in token.lanes]:
            raise Voided(f"{self.label}: the source does not have these lanes any more: {strangers}")
        self.check_cluster(member.cluster)
        if self.failed:
            raise Voided(f"{self.label}: messages of the transaction are lost")
        offsets = []
        for lane, position in positions.items():
            topic, partition, metadata = member.places[lane]
            offsets.append(TopicPartition(topic, partition, position, metadata.of_checkpoint(member.noted).text()))
        return offsets, member

    def _within(self, name: str, deadline: float, call: Callable[[float], object]) -> None:
        """Run one of the client's calls. Raises its error, or a retriable one if the call has not ended at
        `deadline`; `Voided` if the client was given up during a commit."""
        self._since.setdefault(name, time.monotonic())
        until = max(deadline, time.monotonic() + _LEAST)
        try:
            self._running.run(name, lambda: call(until), until - time.monotonic() + _MARGIN)
        except TimeoutError:
            away = self.reach.reason
            error = ConnectorError(
                f"{self.label}: {name}: the brokers do not answer" + (f": {away}" if away else ""), retriable=True
            )
        except KafkaException as exception:
            error = self._outcome(error_of(exception), name)
            error.__cause__ = exception
        except Voided:
            self._since.clear()
            raise
        else:
            del self._since[name]
            return
        if isinstance(error, Voided) or not error.retriable:
            self._since.clear()
        elif self._gives_up(name):
            text = f"{self.label}: {name}: the client hangs, while the brokers answer others"
            _log.warning("%s; it is replaced (%s)", text, error)
            if name in ("add positions", "commit"):
                raise Voided(text)
            raise ConnectorError(text, retriable=True)
        raise error

    def _gives_up(self, name: str) -> bool:
        """Whether this call has not succeeded for too long. The client is abandoned then: a new one fences it, and
        learns from the brokers what became of its transaction."""
        if time.monotonic() - self._since[name] < HUNG:
            return False
        try:
            AdminClient(admin_properties(self._config)).list_topics(timeout=_ANSWER_WAIT)
        except KafkaException:
            # Brokers that were away get as long again, once they are back.
            self._since[name] = time.monotonic()
            return False
        with self.lock:
            self._given_up, self._hanging = True, self._running.give_up()
        self._since.clear()
        return True

    def _call(self, method: Callable[..., object], *arguments: object) -> None:
        """One call of the client that may block. Raises its error, and `Abandoned` if it was given up meanwhile."""
        try:
            method(*arguments)
        finally:
            self._running.check()

    def _quietly(self, name: str, deadline: float, call: Callable[[float], None]) -> None:
        try:
            self._within(name, deadline, call)
        except ConnectorError as error:
            _log.warning("%s; the brokers abort the transaction after %g s", error, self._timeout)

    def _outcome(self, error: KafkaError, name: str) -> ConnectorError:
        doing = f"{self.label}: {name}"
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.fail(error)
            assert self.fatal is not None
            return self.fatal
        if error.code() in _STOPPING:
            return self._stop(error)
        # Of errors that do not require an abort only those of a commit void the transaction: after `begin` and `abort`
        # nothing is left to undo.
        if error.txn_requires_abort() or (name in ("add positions", "commit") and not is_passing(error)):
            return Voided(self.scrub(f"{doing}: {error.str()} ({error.name()})"))
        return explained(error, doing, self.scrub)

    def _stop(self, error: KafkaError) -> ConnectorError:
        longest = int(self._timeout * 1000)
        advice = {
            KafkaError.INVALID_TRANSACTION_TIMEOUT: f"raise the brokers' transaction.max.timeout.ms to {longest} ms"
            + (f", or lower {self._setting} ({self._timeout:g} s)" if self._setting else ""),
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "ask for access rules (ACLs) that let this user write "
            f"and describe the transactional id {self._identity}, or those that begin as it does",
            KafkaError.GROUP_AUTHORIZATION_FAILED: "ask for an access rule (ACL) that lets this user read the group "
            "of the source: transactions commit its positions",
        }.get(error.code())
        if advice is None:
            return explained(error, self.label, self.scrub)
        return ConnectorError(self.scrub(f"{self.label}: {error.str()} ({error.name()}); {advice}"))

    def _begin(self, until: float) -> None:
        self.raise_fatal()
        if self._given_up:
            self._replace()
        self._admit(until)
        self._call(self.producer.begin_transaction)
        self.is_active = True

    def _commit(self, offsets: list[TopicPartition], group: object, until: float) -> None:
        self._add_offsets(offsets, group, until)
        self._call(self.producer.commit_transaction, _left(until))
        self.is_active = self._has_offsets = False

    def _add_offsets(self, offsets: list[TopicPartition], group: object, until: float) -> None:
        """Add positions to the transaction, unless it has them."""
        self.raise_fatal()
        if not offsets or self._has_offsets:
            return
        self._check_topics(offsets)
        self._call(self.producer.send_offsets_to_transaction, offsets, group, _left(until))
        with self.lock:
            self._running.check()
            self._has_offsets = True

    def _check_topics(self, offsets: list[TopicPartition]) -> None:
        """Raise `Voided` if a topic was deleted and created again since its partition was assigned: the records may be
        of the new one, whose first records the group would never see. A topic without an id now, or then, is not known
        to be another."""
        then = {offset.topic: CommitMetadata.of(offset.metadata).topic_id for offset in offsets}
        now = self._queries.ids_now(topic for topic, known in then.items() if known)
        self._running.check()
        for topic, current in now.items():
            if current != then[topic]:
                raise Voided(f'{self.label}: the topic "{topic}" was deleted and created again')

    def _abort(self, until: float) -> None:
        active, self.is_active = self.is_active, False
        for sink in self.sinks:
            sink.look()
        try:
            if self.fatal is None and not self.has_gap and not self._given_up and active:
                self._call(self.producer.abort_transaction, _left(until))
        except KafkaException as exception:
            error = error_of(exception)
            if not error.fatal():
                self.is_active = active
                raise
            self.fail(error)
        if self.fatal is not None:
            self._note_replaced(self.fatal)
        if self.has_gap:
            # The limits may have been lowered.
            self._limits = None
            self._learn_limits(until)
        if self.fatal is not None or self.has_gap or self._given_up:
            self._replace()
        # A new client has the brokers abort the transaction of the old one. Only then are the committed positions
        # known.
        self._admit(until)
        self._wait_until_idle(until)
        for sink in self.sinks:
            sink.forget()
        self.failed = self._has_offsets = False

    def _note_replaced(self, failure: ConnectorError) -> None:
        """Raise `ConnectorError` if a new client would not help, or has been fenced too often.

        Other failures are not counted: a client may fail for good with each broker that goes away, as librdkafka then
        does not know whether its transaction has ended.
        """
        if not isinstance(failure, Voided):
            raise failure
        now = time.monotonic()
        if isinstance(failure, _Fenced):
            if len(self._fenced) == _MOST_FENCED and now - self._fenced[0] < _FENCED_SECONDS:
                raise ConnectorError(
                    f"{failure}; that is the fourth time in ten minutes: either another process has the same instance "
                    f"(give each its own), or {self._slowness}"
                )
            self._fenced.append(now)
        _log.warning("%s; the client is replaced", failure)

    @property
    def _slowness(self) -> str:
        """Why the brokers gave up waiting, in words."""
        if self._setting is not None:
            return f"transactions take longer than {self._setting} ({self._timeout:g} s)"
        return (
            f"transactions take longer than the {self._timeout:g} s that brokers wait for one; has this process, or "
            "have the brokers, too little of the processor, or do they stand still again and again?"
        )

    def _replace(self) -> None:
        self._running.check()
        self._stop_watching()
        with self.lock:
            self._running.check()
            old, given_up, hanging = self.producer, self._given_up, self._hanging
            self._make()
            self._admitted = self.has_gap = self._has_offsets = self._given_up = False
            # A call that was given up may still use the former ones.
            self._queries = Queries(admin_properties(self._config))
            self.fatal = self._hanging = None
        self._watch()
        if given_up:
            threading.Thread(target=_close_at_last, args=(old, hanging), daemon=True).start()
        else:
            close(old)

    def _admit(self, until: float) -> None:
        """Have the brokers admit the client under its id, and abort the transaction that an earlier client left
        open."""
        if self._admitted:
            return
        self._learn_limits(until)
        if any(limits.batch < self._batch_size for limits in (self._limits or {}).values()):
            # The brokers would refuse batches of the size that the old client was made for.
            self._replace()
        self._call(self.producer.init_transactions, _left(until))
        self.met = self._admitted = True

    def _learn_limits(self, until: float) -> None:
        if self._limits is not None:
            return
        admin = AdminClient(admin_properties(self._config))
        self.cluster = admin.list_topics(timeout=_left(until)).cluster_id
        topics = [sink.topic for sink in self.sinks if sink.topic is not None]
        self._limits = limits_of(admin, topics, _left(until))

    def _wait_until_idle(self, until: float) -> None:
        """Wait until the client has reported all messages that it dropped."""
        while not self.writing.is_idle():
            if time.monotonic() >= until:
                raise ConnectorError(f"{self.label}: abort: messages are still on their way", retriable=True)
            time.sleep(_IDLE_SLICE)


def _close_at_last(producer: Producer, hanging: threading.Thread | None) -> None:
    """Close a client that was given up: not during a call of it, and without anybody waiting."""
    if hanging is not None:
        hanging.join()
    close(producer)


def _left(until: float) -> float:
    return max(_LEAST, until - time.monotonic())
