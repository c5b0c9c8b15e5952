"""Checks that a broker grants the features that a client needs."""

from __future__ import annotations

from connectors.mqtt.protocol.packets import V5, Suback, Subscription
from connectors.mqtt.protocol.reasons import Outcome, ProtocolError, ReasonCode, of_subscribe
from connectors.mqtt.protocol.topics import shared
from connectors.mqtt.session.settings import SUBSCRIBE_ID, Granted, Grants, Settings
from pipelines.errors import ConnectorError


class Downgraded(ConnectorError):
    """The broker granted less than was requested, so that messages would be lost."""


def refuse_what_is_missing(granted: Granted, settings: Settings) -> None:
    """Raise `ConnectorError` if the broker lacks a feature that the subscriptions need."""
    where = f"{settings.name}: {settings.address}"
    filters = [subscription.filter for subscription in settings.subscriptions]
    if not granted.shared and any(shared(topic_filter)[0] is not None for topic_filter in filters):
        raise ConnectorError(f"{where} has no shared subscriptions; leave out share, and use shard to divide the work")
    if not granted.wildcards:
        wild = next((topic_filter for topic_filter in filters if "+" in topic_filter or "#" in topic_filter), None)
        if wild is not None:
            raise ConnectorError(f'{where} allows no wildcards in topic filters, and "{wild}" has one')
    lossless = any(subscription.qos for subscription in settings.subscriptions)
    if granted.version == V5 and settings.expiry and not granted.expiry and lossless:
        raise Downgraded(
            f"{where} keeps no session (session expiry 0 instead of {settings.expiry} s), so that each cut of the "
            "connection would lose messages; allow sessions on the broker, or write expiry: 0 and qos: 0 if that may be"
        )


def granted_qos(suback: Suback, subscriptions: tuple[Subscription, ...], settings: Settings) -> Grants:
    """The QoS that was granted to the filter of each of these subscriptions, which are all of one SUBSCRIBE.

    Raises `ConnectorError` for a filter that was refused, and `Downgraded` for QoS 0 where QoS 1 or 2 was asked for.
    """
    if suback.packet_id != SUBSCRIBE_ID or len(suback.reasons) != len(subscriptions):
        raise ProtocolError(ReasonCode.PROTOCOL_ERROR, "SUBACK: it answers no SUBSCRIBE of this client")
    where = f"{settings.name}: {settings.address}"
    grants: dict[str, int] = {}
    for asked, reason in zip(subscriptions, suback.reasons, strict=True):
        if reason.failed:
            said = suback.properties.reason_string
            raise ConnectorError(
                f'{where} refuses the topic filter "{asked.filter}": {reason.text}{f": {said}" if said else ""}; '
                f'allow client id "{settings.client_id}" to read it, or correct topics',
                retriable=of_subscribe(reason) is Outcome.RETRIABLE,
            )
        if asked.qos and not int(reason):
            raise Downgraded(
                f'{where} grants QoS 0 instead of {asked.qos} to the topic filter "{asked.filter}", so that messages '
                "could be lost; allow QoS 1 on the broker, or write qos: 0 if that may be"
            )
        grants[asked.filter] = int(reason)
    return grants
