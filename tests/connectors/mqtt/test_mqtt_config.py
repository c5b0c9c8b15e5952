"""The fields of MQTT sources: their effects and errors."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.mqtt.address import BrokerAddress
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.protocol.packets import V5, V311
from connectors.mqtt.sinkconfig import MqttSinkConfig
from connectors.mqtt.topicfilter import shard_of
from pipelines.errors import DefinitionError


def made(**fields: Any) -> MqttSourceConfig:
    return MqttSourceConfig.model_validate({"topics": "factory/{line}/{device}/+", **fields})


def test_a_qos_may_come_from_a_variable_of_the_environment() -> None:
    """`qos: ${QOS:-1}`: variables are texts."""
    assert [made(qos=qos).qos for qos in ("0", "1", "2", 2)] == [0, 1, 2, 2]
    assert MqttSinkConfig.model_validate({"topic": "a", "qos": "2", "will": {"topic": "b", "qos": "0"}}).qos == 2
    with pytest.raises(ValidationError, match="0, 1 or 2"):
        made(qos="3")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mqtt://broker", BrokerAddress("mqtt", "broker", 1883)),
        ("broker:1884", BrokerAddress("mqtt", "broker", 1884)),
        ("mqtts://broker", BrokerAddress("mqtts", "broker", 8883)),
        ("mqtt://[::1]:1883", BrokerAddress("mqtt", "::1", 1883)),
        ("wss://broker/mqtt", BrokerAddress("wss", "broker", 443, "/mqtt")),
    ],
)
def test_a_url_says_where_the_broker_is(url: str, expected: BrokerAddress) -> None:
    assert BrokerAddress.parse(url) == expected
    assert BrokerAddress.parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"url": "mqts://broker"}, 'did you mean "mqtts"'),
        ({"url": "ssl://broker:8883"}, "write mqtts:// in its place"),
        ({"url": "tcp://broker"}, "write mqtt:// in its place"),
        ({"url": "mqtt://"}, "names no host"),
        ({"url": "mqtt://broker:1/path"}, "behind the port"),
        ({"url": "mqtt://broker:99999"}, "not a URL of a broker"),
        ({"url": "ws://broker"}, "add client: paho"),
        ({"topics": "a/{x}/{x}"}, "comes twice"),
        ({"topics": "a/b{x}"}, "whole level"),
        ({"topics": "a/#/b"}, "last level"),
        ({"topics": "a\x01b"}, "control character (U+0001), for which brokers close the connection"),
        ({"topics": []}, "at least 1 item"),
        ({"topics": "$share/g/a"}, "as share"),
        ({"share": "a/b"}, "holds no"),
        ({"key": "devise"}, 'did you mean "device"'),
        ({"shard": {"index": 0, "count": 2, "level": "lin"}}, 'did you mean "line"'),
        ({"shard": {"index": 2, "count": 2, "level": "line"}}, "they count from 0"),
        ({"shard": {"index": "sensors", "count": 2, "level": "line"}}, "ends with one"),
        ({"shard": {"index": 0, "count": 2, "level": "line"}, "share": "g"}, "two ways to divide"),
        ({"tls": {"ca": "ca.pem"}}, "is not encrypted"),
        ({"url": "mqtts://b", "tls": {"key": "k.pem"}}, "cert names none"),
        ({"password": "x", "token": "a:b", "username": "u"}, "two ways to log in"),
        ({"password": "x"}, "add username"),
        ({"qos": 2, "client": "paho"}, "write qos: 1"),
        ({"keepalive": "0s"}, "greater than or equal to 1"),
        ({"window": 0}, "greater than or equal to 1"),
        ({"into": {"levels.lin": "x"}, "qos": 3}, "0, 1 or 2"),
    ],
)
def test_wrong_fields_are_told(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        made(**fields)


def test_a_login_in_the_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ValidationError) as raised:
        made(url="mqtt://ann:hunter2@broker")
    assert "username and password" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_passwords_are_masked() -> None:
    config = made(username="ann", password="hunter2", url="mqtts://b", tls={"cert": "c", "key_password": "hunter3"})
    assert "hunter" not in repr(config)
    assert "hunter" not in repr(config.connection()["login"])


def test_a_level_that_no_topic_names_cannot_be_asked_for() -> None:
    with pytest.raises(DefinitionError, match=r'did you mean "levels\.device"'):
        made(into={"levels.devise": "device"}).check_into()
    with pytest.raises(DefinitionError, match=r'no level of topics has the name "device".*in site/\{device\}/\+/temp'):
        made(topics=["all", "site/+/+/temp"], into={"levels.device": "device"}).check_into()
    made(into={"levels.device": "device", "qos": "qos", "correlation": "c"}).check_into()


def test_a_session_is_kept_an_hour_unless_nothing_is_acknowledged() -> None:
    assert made().session_expiry == 3600
    assert made(qos=0).session_expiry == 0
    assert made(qos=0, expiry="1m").session_expiry == 60


def test_the_mqtt_version_may_be_a_number() -> None:
    assert made().settings().version is None
    assert made(version=5).settings().version == V5
    assert made(version="3.1.1").settings().version == V311


def test_the_client_id_is_made_of_service_source_and_shard() -> None:
    assert made().in_service("plant").client_id == "plant-mqtt"
    assert made(name="north").in_service("plant").client_id == "plant-north"
    shard = {"index": "plant-7", "count": 8, "level": "line"}
    assert made(shard=shard).in_service("plant").client_id == "plant-mqtt-7"
    assert made(client_id="own").in_service("plant").client_id == "own"


def test_a_shard_is_the_same_everywhere() -> None:
    assert [shard_of(device, 4) for device in ("press-1", "press-2", "lathe", "")] == [0, 2, 3, 0]


def test_subscriptions_have_filters_share_and_retain_handling() -> None:
    (one,) = made(share="g", retained="skip", qos=2).settings().subscriptions
    assert (one.filter, one.qos, one.retain_handling) == ("$share/g/factory/+/+/+", 2, 2)


def test_topics_are_regular_expressions_for_those_who_ask_which_are_meant() -> None:
    config = made(topics=["a/b", "a/{x}/+", "a/#", "#"])
    assert config.topic_names == ("a/b", "^a/[^/]*/[^/]*$", "^a(/.*)?$", "^.*$")
    assert all(re.search(config.topic_names[2], topic) for topic in ("a", "a/b", "a/b/c"))
    assert not re.search(config.topic_names[2], "ab")


def test_a_token_function_is_code_and_its_module_goes_along() -> None:
    config = made(token="tokens:mine", username="me")
    assert config.code_keys == ("token",)
    assert config.functions == ("tokens:mine",)
