"""librdkafka's error codes in groups, by whether to wait, try again, or give up."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from connectors.secrets import Scrubber
from pipelines.errors import ConnectorError

PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._QUEUE_FULL,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._WAIT_COORD,
        KafkaError._WAIT_CACHE,
        KafkaError._IN_PROGRESS,
        KafkaError._PREV_IN_PROGRESS,
        KafkaError._RETRY,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Codes of transient errors, besides those that librdkafka calls retriable."""

REFUSED_LOGIN = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)
"""The brokers refuse the login."""

FORBIDDEN = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""The login is right, but the user lacks the permission."""

GONE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""The topic, or this partition of it, does not exist."""

NO_SUCH_TOPIC = GONE | {KafkaError.TOPIC_EXCEPTION}
"""The topic does not exist, or its name is not allowed."""

NO_LEADER = frozenset({KafkaError.LEADER_NOT_AVAILABLE, KafkaError._NOENT})
"""The partition has no leader: a broker answered, but no broker can serve the partition."""

_INSTANCE = "another process has the same instance; give each its own"
_ADVICE = {
    **dict.fromkeys(REFUSED_LOGIN, "check security.protocol and the sasl. and ssl. properties under client"),
    **dict.fromkeys(FORBIDDEN, "ask for an access rule (ACL) for this user"),
    **dict.fromkeys(NO_SUCH_TOPIC, "create the topic, or check its name"),
    **dict.fromkeys(NO_LEADER, "see that all brokers of the cluster run, and try again"),
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max_message of the sink and max.message.bytes of the topic",
    KafkaError.FENCED_INSTANCE_ID: _INSTANCE,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "all members of a group need the same assignor",
    KafkaError.OFFSET_METADATA_TOO_LARGE: "let offset.metadata.max.bytes of the brokers be 100 or more",
    KafkaError.UNSUPPORTED_VERSION: "the brokers are too old for this; check the assignor",
}


def is_passing(error: KafkaError) -> bool:
    """Whether the error is transient: a later attempt can succeed."""
    return not error.fatal() and (error.retriable() or error.code() in PASSING)


def explained(error: KafkaError, doing: str, scrub: Scrubber) -> ConnectorError:
    """The error as a `ConnectorError`: what failed, why, what to do next. `doing` is such as `topic "a"`."""
    advice = _ADVICE.get(error.code())
    # All fatal errors have one code; only the text tells the cause.
    if error.code() == KafkaError._FATAL and "group.instance.id" in error.str():
        advice = _INSTANCE
    text = f"{doing}: {error.str()} ({error.name()})" + (f"; {advice}" if advice else "")
    return ConnectorError(scrub(text), retriable=is_passing(error))


def error_of(exception: KafkaException) -> KafkaError:
    """The error in a `KafkaException`."""
    error: KafkaError = exception.args[0]
    return error
