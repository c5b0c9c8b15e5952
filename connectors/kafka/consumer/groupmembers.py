"""Which members a consumer group has."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from connectors.kafka.client.errors import error_of, explained
from connectors.kafka.client.properties import admin_properties, scrubber
from connectors.kafka.client.queries import patiently
from connectors.kafka.config import KafkaSourceConfig

_EMPTY = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)


def members_of(source: KafkaSourceConfig, label: str) -> list[str]:
    """Name and host of each member of the source's group; of the brokers' own protocol one text for all.

    Waits up to half a minute for the brokers, then raises `ConnectorError`; `label` begins its text.
    """
    group = source.group or ""
    admin = AdminClient(admin_properties(source))
    try:
        # Of groups in the brokers' own protocol, a description says that they are dead; the list knows both kinds.
        listed = patiently(lambda limit: admin.list_consumer_groups(request_timeout=limit).result())
        states = {each.group_id: each.state for each in listed.valid}
        if group not in states and listed.errors:
            raise KafkaException(listed.errors[0].args[0])
        state = states.get(group)
        if state in _EMPTY:
            return []
        described = patiently(
            lambda limit: admin.describe_consumer_groups([group], request_timeout=limit)[group].result()
        )
    except KafkaException as error:
        raise explained(error_of(error), f"{label}: members of the group {group}", scrubber(source)) from error
    # Brokers leave groups out of the list that the user may not describe; asked for such a one they refuse, above.
    if state is None and described.state in _EMPTY:
        return []
    return [
        f"{member.group_instance_id or member.client_id} on {member.host.strip('/')}" for member in described.members
    ] or ["its members are not told"]
