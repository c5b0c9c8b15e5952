"""Hypothesis strategies for packets of MQTT: every kind, with every property where it may stand."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from connectors.mqtt.protocol.packets import (
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from connectors.mqtt.protocol.properties import NONE, PROPERTIES, Kind, Place, Properties
from connectors.mqtt.protocol.reading import Role
from connectors.mqtt.protocol.reasons import RETURN_CODES, ReasonCode

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
NAMES = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=20)
FILTERS = st.lists(st.sampled_from(["a", "b", "+", "", "$x", "ü"]), min_size=1, max_size=4).map("/".join).map(
    lambda levels: levels or "a"
) | st.sampled_from(["#", "a/#", "$share/g/a/+"])
IDS = st.integers(1, 0xFFFF)
QOS = st.integers(0, 2)
PAYLOADS = st.binary(max_size=300)

_VALUES: dict[Kind, Any] = {
    Kind.FLAG: st.booleans(),
    Kind.QOS: st.integers(0, 1),
    Kind.SHORT: st.integers(1, 0xFFFF),
    Kind.LONG: st.integers(1, 0xFFFF_FFFF),
    Kind.VARINT: st.integers(1, 268_435_455),
    Kind.TEXT: TEXTS,
    Kind.BINARY: st.binary(max_size=20),
    Kind.PAIR: st.tuples(TEXTS, TEXTS),
}


@st.composite
def properties(draw: st.DrawFn, place: Place, without: tuple[str, ...] = ()) -> Properties:
    """Properties that may stand there."""
    if draw(st.booleans()):
        return NONE
    chosen: dict[str, Any] = {}
    known = [one for one in PROPERTIES if place in one.places and one.name not in without]
    for one in draw(st.lists(st.sampled_from(known), unique=True, max_size=4)):
        value = NAMES if one.name == "response_topic" else _VALUES[one.kind]
        if one.repeats:
            most = 1 if place is Place.SUBSCRIBE and one.kind is Kind.VARINT else 3
            value = st.lists(value, min_size=1, max_size=most).map(tuple)
        chosen[one.name] = draw(value)
    if "authentication_data" in chosen:
        chosen.setdefault("authentication_method", "m")
    return Properties(**chosen)


def _of(version: Version, place: Place, *without: str) -> st.SearchStrategy[Properties]:
    return properties(place, without) if version == V5 else st.just(NONE)


_FAILURES = st.sampled_from([reason for reason in ReasonCode if reason.failed])


def reasons(version: Version, *successes: ReasonCode) -> st.SearchStrategy[ReasonCode]:
    """One of these, or in MQTT 5 any failure."""
    return st.sampled_from(successes) | _FAILURES if version == V5 else st.just(ReasonCode.SUCCESS)


@st.composite
def publishes(draw: st.DrawFn, version: Version, role: Role = Role.CLIENT) -> Publish:
    """A message that this role may get, without a topic alias."""
    qos = draw(QOS)
    return Publish(
        draw(NAMES),
        draw(PAYLOADS),
        qos,
        draw(st.booleans()),
        draw(st.booleans()) if qos else False,
        draw(IDS) if qos else 0,
        draw(
            _of(version, Place.PUBLISH, "topic_alias", *([] if role is Role.CLIENT else ["subscription_identifiers"]))
        ),
    )


@st.composite
def connects(draw: st.DrawFn, version: Version) -> Connect:
    """A CONNECT of this version."""
    username = draw(st.none() | TEXTS)
    password = draw(st.none() | PAYLOADS) if version == V5 or username is not None else None
    client_id = draw(TEXTS)
    will = st.builds(Will, NAMES, PAYLOADS, QOS, st.booleans(), _of(version, Place.WILL))
    clean = draw(st.booleans()) or not client_id
    opening = draw(_of(version, Place.CONNECT))
    return Connect(
        client_id, clean, draw(st.integers(0, 0xFFFF)), username, password, draw(st.none() | will), opening, version
    )


def packets(version: Version, role: Role) -> st.SearchStrategy[Packet]:
    """Any packet that this role may get."""
    success, none = ReasonCode.SUCCESS, ReasonCode.NO_MATCHING_SUBSCRIBERS
    taken = reasons(version, success, none)
    both: list[st.SearchStrategy[Any]] = [
        publishes(version, role),
        st.builds(Puback, IDS, taken, _of(version, Place.PUBACK)),
        st.builds(Pubrec, IDS, taken, _of(version, Place.PUBREC)),
        st.builds(Pubrel, IDS, reasons(version, success), _of(version, Place.PUBREL)),
        st.builds(Pubcomp, IDS, reasons(version, success), _of(version, Place.PUBCOMP)),
    ]
    if version == V5:
        method = _of(version, Place.AUTH).map(_with_method)
        own = ReasonCode.RE_AUTHENTICATE if role is Role.SERVER else success
        both += [
            st.just(Auth()),
            st.builds(Auth, st.sampled_from([own, ReasonCode.CONTINUE_AUTHENTICATION]), method),
        ]
    return st.one_of(both + (_to_client(version) if role is Role.CLIENT else _to_server(version)))


def _with_method(found: Properties) -> Properties:
    return Properties(
        authentication_method=found.authentication_method or "m",
        authentication_data=found.authentication_data,
        reason_string=found.reason_string,
        user_properties=found.user_properties,
    )


def _to_client(version: Version) -> list[st.SearchStrategy[Any]]:
    success = ReasonCode.SUCCESS
    refused = _FAILURES if version == V5 else st.sampled_from(RETURN_CODES[1:])
    granted = st.sampled_from([success, ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_2])
    granted |= _FAILURES if version == V5 else st.just(ReasonCode.UNSPECIFIED_ERROR)
    removed = reasons(version, success, ReasonCode.NO_SUBSCRIPTION_EXISTED)
    found: list[st.SearchStrategy[Any]] = [
        st.builds(Connack, st.booleans(), st.just(success), _of(version, Place.CONNACK)),
        st.builds(Connack, st.just(False), refused, _of(version, Place.CONNACK)),
        st.builds(Suback, IDS, st.lists(granted, min_size=1, max_size=4).map(tuple), _of(version, Place.SUBACK)),
        st.just(Pingresp()),
    ]
    if version == V311:
        return [*found, st.builds(Unsuback, IDS)]
    return [
        *found,
        st.builds(Unsuback, IDS, st.lists(removed, min_size=1, max_size=4).map(tuple), _of(version, Place.UNSUBACK)),
        st.builds(Disconnect, reasons(version, success), _of(version, Place.DISCONNECT, "session_expiry_interval")),
    ]


def _to_server(version: Version) -> list[st.SearchStrategy[Any]]:
    some = st.lists(_subscriptions(version), min_size=1, max_size=3).map(tuple)
    filters = st.lists(FILTERS, min_size=1, max_size=3).map(tuple)
    leaving = reasons(version, ReasonCode.SUCCESS, ReasonCode.DISCONNECT_WITH_WILL_MESSAGE)
    return [
        st.builds(Subscribe, IDS, some, _of(version, Place.SUBSCRIBE)),
        st.builds(Unsubscribe, IDS, filters, _of(version, Place.UNSUBSCRIBE)),
        st.just(Pingreq()),
        st.builds(Disconnect, leaving, _of(version, Place.DISCONNECT, "server_reference")),
    ]


@st.composite
def _subscriptions(draw: st.DrawFn, version: Version) -> Subscription:
    wanted = draw(FILTERS)
    if version == V311:
        return Subscription(wanted, draw(QOS))
    local = draw(st.booleans()) and not wanted.startswith("$share")
    return Subscription(wanted, draw(QOS), local, draw(st.booleans()), draw(QOS))
