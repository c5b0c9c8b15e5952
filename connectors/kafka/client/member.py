"""`Member`: proof of a consumer's group membership, with which a transactional producer commits its positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connectors.kafka.consumer.lanes import CommitMetadata
from connectors.records import Lane
from connectors.source import CheckpointNote


@dataclass(frozen=True, slots=True)
class Member:
    """The `member` of a Kafka source's `TransactionToken`."""

    group: object
    """The consumer group's metadata, as confluent-kafka gives and takes it."""
    cluster: str | None
    """The id of the group's cluster; `None` until the brokers have answered."""
    places: Mapping[Lane, tuple[str, int, CommitMetadata]]
    """Topic, partition, and the metadata to commit with a position, of each of the token's lanes."""
    noted: CheckpointNote | None = None
    """The checkpoint that positions are of, which is committed with them; `None`: that of the metadata."""
