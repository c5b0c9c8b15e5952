"""`TopicStore`: state in a compacted topic, for groups whose partitions move: a partition takes its state along.

Changes and positions are one transaction, so that the position of the group is always that of the state.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple

from connectors.records import Lane
from connectors.sink import TransactionalSink
from connectors.source import TransactionToken
from connectors.statetopic import StateRecord, StateTopic
from pipelines.errors import ConnectorError, DefinitionError, StreamerError
from pipelines.runners.state.item import Change, Item
from streamer.delivery.confirming import Upstream
from streamer.delivery.failures import ServiceStopped
from streamer.state.store import NOTHING, Loaded, SavedStep, Scope
from streamer.state.topicrecords import POSITION, record_key, record_text

_READ: Final = json.JSONDecoder().raw_decode
_SHOWN: Final = 60
"""Characters of a key in an error."""


class TopicSaving(NamedTuple):
    """What is saved in one transaction."""

    records: Sequence[StateRecord]
    positions: Mapping[Scope, int]
    """Of all scopes that it has something of; those that have not moved, too."""
    scopes: Set[Scope]
    """All scopes that it has something of, also those without a position yet."""


class TopicStore:
    """The state of one service in a topic. Implements `StateStore`."""

    begins_anew = False
    commits_positions = True
    bytes = None
    """It is not known how large the topic is."""

    def __init__(self, topic: StateTopic, service: str) -> None:
        self.host = socket.gethostname()
        self.checkpoint = 0
        self._topic = topic
        self._service = service
        self._upstream: Upstream | None = None
        self._token: TransactionToken | None = None
        self._check: Callable[[Mapping[str, SavedStep]], None] = lambda saved: None
        self._defined: Mapping[str, SavedStep] = {}
        self._positions: dict[Scope, int] = {}
        """The position that each scope's state has in the topic."""
        self._undefined: set[Scope] = set()
        """Scopes in whose partitions the steps of the service are not described yet."""

    @property
    def id(self) -> str:
        """See `StateStore.id`."""
        return self._topic.id

    @property
    def place(self) -> str:
        """See `StateStore.place`."""
        return f"topic {self._topic.name}"

    def share(self, first: TransactionalSink) -> None:
        """Called before `open`: changes are saved in the transactions of this sink, by `saving` in place of `save`."""
        self._topic.share(first)

    def open(self) -> None:
        """See `StateStore.open`."""
        self._topic.open()

    def close(self) -> None:
        """See `StateStore.close`."""
        self._topic.close()

    def attach(self, upstream: Upstream, check: Callable[[Mapping[str, SavedStep]], None]) -> None:
        """See `StateStore.attach`."""
        self._upstream, self._check = upstream, check

    def steps(self) -> Mapping[str, SavedStep]:
        """None: each partition has those of its state, which `load` compares."""
        return {}

    def define(self, steps: Mapping[str, SavedStep]) -> None:
        """See `StateStore.define`."""
        self._defined = dict(steps)

    def ready(self) -> Mapping[Lane, int] | None:
        """See `StateStore.ready`."""
        # In this order: then all lanes that ended before the token was taken are known when it is used.
        self._token = self._open_upstream.token()
        self._open_upstream.serve()
        return None if self._token is None else self._token.passed

    def load(self, scope: Scope) -> Loaded:
        """See `StateStore.load`.

        Raises `DefinitionError` if the topic has the state of another service, of other topics, or of steps with other
        fields.
        """
        saved = self._topic.read(self._topic.number(scope.partition), self._check_time)
        position: int | None = None
        steps: dict[str, SavedStep] = {}
        items: dict[str, list[Item]] = {}
        try:
            for key, value in saved.items():
                text = key.decode()
                # A quarter of the time of `json.loads`.
                (kind, *rest), end = _READ(text)
                if end != len(text):
                    raise ValueError(f"its key is {text[:60]}")
                if kind == "item":
                    step, name, part = rest
                    items.setdefault(step, []).append(Item(name, part, value))
                elif kind == "step":
                    said = json.loads(value)
                    steps[rest[0]] = SavedStep(said["type"], said["fields"])
                elif kind == "position":
                    said = json.loads(value)
                    self._check_whose(said["service"], said["partition"], scope)
                    position = int(said["position"])
        except (ValueError, TypeError, KeyError, IndexError) as error:
            if isinstance(error, DefinitionError):
                raise
            raise StreamerError(
                f"state: {self.place}, {scope.partition}: a record was not written by this program ({error}); "
                "name another topic"
            ) from error
        self._check(steps)
        for pieces in items.values():
            pieces.sort()
        self._positions.pop(scope, None)
        if position is not None:
            self._positions[scope] = position
        if all(steps.get(identity) == step for identity, step in self._defined.items()):
            self._undefined.discard(scope)
        else:
            self._undefined.add(scope)
        return Loaded(position, items)

    def save(
        self,
        changes: Iterable[tuple[Scope, str, Change]],
        positions: Mapping[Scope, int],
        acknowledged: Mapping[Scope, int] = NOTHING,
    ) -> int:
        """See `StateStore.save`. `ready` has been called before, and no lane that has ended is among the scopes."""
        saving = self.saving(changes, positions)
        if not saving.scopes:
            return self.checkpoint
        token = self._token
        lanes = {} if token is None else {Scope(lane.source, lane.partition): lane for lane in token.lanes}
        if token is None or not lanes.keys() >= saving.scopes:
            raise ConnectorError("partitions have just been given to this process, or taken away", retriable=True)
        reached = {lanes[scope]: position for scope, position in saving.positions.items()}
        self._topic.write(saving.records, reached, token, self._wait)
        self._note(saving)
        return self.checkpoint

    def saving(self, changes: Iterable[tuple[Scope, str, Change]], positions: Mapping[Scope, int]) -> TopicSaving:
        """The records of these changes, as for `save`, to be sent in a transaction with the positions.

        Raises `ConnectorError` for a piece that is larger than the topic takes.
        """
        last: dict[tuple[Scope, str, str, int], bytes | None] = {
            (scope, step, change.key, change.part): change.value for scope, step, change in changes
        }
        scopes = dict.fromkeys([*(scope for scope, *_ in last), *positions])
        # Also those that have not moved: the brokers refuse the transaction of a process that has lost a partition.
        reached = {
            scope: at for scope in scopes if (at := positions.get(scope, self._positions.get(scope))) is not None
        }
        numbers = {scope: self._topic.number(scope.partition) for scope in scopes}
        records = [
            StateRecord(numbers[scope], record_key("item", step, key, part), value)
            for (scope, step, key, part), value in last.items()
        ]
        for (_, step, key, _), record in zip(last, records, strict=True):
            self._check_size(step, key, len(record.key) + len(record.value or b""))
        for scope in self._undefined.intersection(scopes):
            records += [
                StateRecord(
                    numbers[scope],
                    record_key("step", identity),
                    record_text({"type": step.type, "fields": step.fields}),
                )
                for identity, step in self._defined.items()
            ]
        records += [
            StateRecord(
                numbers[scope],
                POSITION,
                record_text({"service": self._service, "partition": scope.partition, "position": position}),
            )
            for scope, position in reached.items()
        ]
        return TopicSaving(records, reached, scopes.keys())

    def sending(self, saving: TopicSaving) -> Callable[[float], None]:
        """As `StateTopic.sending`."""
        return self._topic.sending(saving.records)

    def committed(self, saving: TopicSaving) -> None:
        """The transaction in which these records were sent is committed."""
        self._note(saving)
        self._topic.forget()

    def _note(self, saving: TopicSaving) -> None:
        self._positions |= saving.positions
        self._undefined.difference_update(saving.scopes)
        self.checkpoint += 1

    def _check_size(self, step: str, key: str, size: int) -> None:
        if size > self._topic.longest:
            shown = key if len(key) <= _SHOWN else f"{key[:_SHOWN]}..."
            raise ConnectorError(
                f"state: what step {step} remembers for the key {shown} has {size:,} bytes in one piece, and "
                f"{self.place} takes at most {self._topic.longest:,}: raise its max.message.bytes, or have the step "
                "remember less for a key"
            )

    def _check_whose(self, service: str, partition: str, scope: Scope) -> None:
        if service != self._service:
            raise DefinitionError(
                f'state: {self.place} has the state of service "{service}", and this is "{self._service}"; give each '
                "service a topic of its own"
            )
        if partition != scope.partition:
            raise DefinitionError(
                f"state: {self.place} has the state of {partition} where that of {scope.partition} belongs: the source "
                "reads other topics than before. Name another topic, which is created, and start the service once with "
                "--from (earliest, latest or a time), from where its state begins anew"
            )

    def _wait(self) -> None:
        self._open_upstream.serve()
        self._check_time()

    def _check_time(self) -> None:
        if self._open_upstream.patience() <= 0:
            raise ServiceStopped("the state waits for the brokers, and there is no time left")

    @property
    def _open_upstream(self) -> Upstream:
        if self._upstream is None:
            raise StreamerError("the store has no sources yet")
        return self._upstream
