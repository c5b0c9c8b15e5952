"""The fields of Kafka connectors: refused values, and masked secrets."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from connectors.kafka.client.clientlog import client_logger
from connectors.kafka.client.properties import sink_properties, source_properties
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.registry import SINKS, SOURCES
from connectors.secrets import Scrubber, is_secret
from pipelines.errors import ConnectorError, DefinitionError

SECRET = "correct-horse-battery"
LOGIN: dict[str, Any] = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "digits",
    "sasl.password": SECRET,
    "ssl.key.pem": SECRET + "-pem",
    "sasl.oauthbearer.client.secret": SECRET,
}


def source(**fields: Any) -> KafkaSourceConfig:
    return KafkaSourceConfig.model_validate({"topics": "in", "group": "g", **fields})


def sink(**fields: Any) -> KafkaSinkConfig:
    return KafkaSinkConfig.model_validate({"topic": "out", "bootstrap": "b:9092", **fields})


def test_kafka_is_a_type_of_sources_and_sinks() -> None:
    assert SOURCES.get("kafka") is KafkaSourceConfig
    assert SINKS.get("kafka") is KafkaSinkConfig


@pytest.mark.parametrize(
    ("written", "meant"),
    [("in", ("in",)), (["a", "b", "a"], ("a", "b")), ("^in\\..*", ("^in\\..*",))],
)
def test_topics_are_a_list_or_one_text(written: object, meant: tuple[str, ...]) -> None:
    assert source(topics=written).topics == meant


def test_headers_cannot_become_values_where_they_are_not_read() -> None:
    assert source(into={"headers.trace": "trace"}).headers
    assert not source(into={"key": "id"}, headers=False).headers
    with pytest.raises(ValidationError, match=r"into asks for headers\.trace, and headers: false"):
        source(into={"key": "id", "headers.trace": "trace"}, headers=False)


@pytest.mark.parametrize("wrong", [[], "", ["a", ""], 5])
def test_topics_without_a_name_are_an_error(wrong: object) -> None:
    with pytest.raises(ValidationError):
        source(topics=wrong)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        (1_700_000_000_000, 1_700_000_000_000),
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        (datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), 1_700_000_000_000),
        (date(2023, 11, 14), 1_699_920_000_000),
    ],
)
def test_start_is_a_word_or_a_time(written: object, meant: object) -> None:
    assert source(start=written).start == meant


def test_a_start_that_is_no_time_says_what_is_possible() -> None:
    with pytest.raises(ValidationError, match='"yesterday" is not earliest, latest, an ISO time'):
        source(start="yesterday")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("enable.auto.commit", "once the results"),
        ("enable.auto.offset.store", "once the results"),
        ("group.protocol", "use the field assignor"),
        ("group.id", "use the field group"),
        ("auto.offset.reset", "use the fields start and out_of_range"),
        ("on_commit", "it is ours"),
    ],
)
def test_properties_that_are_ours_are_refused_with_the_reason(name: str, instead: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} cannot be set here: .*{instead}"):
        source(client={name: "x"})


@pytest.mark.parametrize("name", ["linger.ms", "message.timeout.ms", "transactional.id", "delivery.report.only.error"])
def test_a_sinks_own_properties_are_refused_too(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} cannot be set here"):
        sink(client={name: 1})


def test_client_properties_override_our_defaults_and_go_through_as_they_are() -> None:
    found = source_properties(
        source(client={"fetch.queue.backoff.ms": 7, "check.crcs": True, "isolation.level": "read_uncommitted"}), {}
    )
    assert found["fetch.queue.backoff.ms"] == 7
    assert found["check.crcs"] == "true"
    assert found["isolation.level"] == "read_uncommitted"
    assert found["enable.auto.commit"] is False


def test_secrets_reach_the_client_and_nothing_else() -> None:
    for config, properties in (
        (source(client=LOGIN), source_properties(source(client=LOGIN), {})),
        (sink(client=LOGIN), sink_properties(sink(client=LOGIN), {})),
    ):
        assert properties["sasl.password"] == SECRET
        assert properties["sasl.username"] == "digits"
        shown = f"{config!r} {config} {config.model_dump()} {config.model_dump_json()}"
        assert SECRET not in shown
        assert "digits" in shown


@pytest.mark.parametrize(
    "wrong",
    [
        {"topcis": ["a"]},
        {"start": "yesterday"},
        {"client": {**LOGIN, "enable.auto.commit": True}},
        {"client": {**LOGIN, "debug": ["a list"]}},
        {"topics": None},
    ],
)
def test_validation_errors_never_quote_secrets(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        KafkaSourceConfig.model_validate({"topics": "in", "client": LOGIN, **wrong})
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(raised.value)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("sasl.password", True),
        ("ssl.key.pem", True),
        ("sasl.oauthbearer.client.secret", True),
        ("SSL.Keystore.Location", True),
        ("sasl.username", False),
        ("session.timeout.ms", False),
    ],
)
def test_which_properties_are_secret(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


def test_texts_from_elsewhere_are_scrubbed() -> None:
    scrub = Scrubber({"sasl.password": SecretStr(SECRET), "ssl.key.password": SecretStr(SECRET + "-2"), "debug": "all"})
    assert scrub(f"login {SECRET} and {SECRET}-2 refused, all of it") == (
        "login ********** and ********** refused, all of it"
    )


def test_the_clients_log_lines_are_scrubbed_and_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    logger = client_logger("log-test", Scrubber({"sasl.password": SecretStr(SECRET)}))
    with caplog.at_level(logging.INFO):
        for took in range(5):
            logger.error("%s: refused %s (after %dms in state CONNECT)", "FAIL", SECRET, took)
        logger.error("%s: something else", "FAIL")
    assert [record.getMessage() for record in caplog.records] == [
        "FAIL: refused ********** (after 0ms in state CONNECT)",
        "FAIL: something else",
    ]


def test_an_oauth_callback_is_named_as_module_and_function() -> None:
    found = source_properties(source(client={"oauth_cb": "os.path:join"}), {})
    assert callable(found["oauth_cb"])


@pytest.mark.parametrize("wrong", ["no.such.module:f", "os:nothing", "os", ":f", "os:sep"])
def test_an_oauth_callback_that_is_not_there_is_an_error(wrong: str) -> None:
    with pytest.raises(ConnectorError, match="oauth_cb"):
        source_properties(source(client={"oauth_cb": wrong}), {})


def test_a_source_without_a_group_takes_its_services_name() -> None:
    config = KafkaSourceConfig(topics=("in",))
    with pytest.raises(DefinitionError, match="group is missing"):
        config.build()
    assert config.in_service("digits").group == "digits"
    assert source(group="mine").in_service("digits").group == "mine"


def test_a_sink_without_brokers_takes_those_of_the_services_source_and_its_login() -> None:
    config = KafkaSinkConfig(topic="out")
    other = source(bootstrap="k:9092", client={**LOGIN, "fetch.min.bytes": 5})
    found = config.in_service("digits", [other])
    assert found.brokers.address == "k:9092"
    assert found.client == {name: value for name, value in other.client.items() if name != "fetch.min.bytes"}
    assert sink(bootstrap="mine:9092").in_service("digits", [other]) == sink(bootstrap="mine:9092")


def test_starting_elsewhere_puts_the_group_back() -> None:
    assert source().starting("earliest").reset == "earliest"
    assert source().starting("2023-11-14T22:13:20Z").reset == 1_700_000_000_000
    with pytest.raises(DefinitionError, match="yesterday"):
        source().starting("yesterday")


def test_units_are_understood() -> None:
    found = sink_properties(sink(linger="20ms", timeout="1m", max_message="5MiB"), {})
    assert (found["linger.ms"], found["message.timeout.ms"], found["message.max.bytes"]) == (20, 60_000, 5 * 2**20)


def test_messages_wait_as_long_as_it_takes_unless_a_timeout_is_written_down() -> None:
    assert sink_properties(sink(), {})["message.timeout.ms"] == 0
    assert sink_properties(sink(timeout=120), {})["message.timeout.ms"] == 120_000
    assert sink(timeout=120).message_timeout == 120
    assert sink().for_dead_letters().message_timeout is None


def test_every_field_is_described_in_the_schema() -> None:
    for model in (KafkaSourceConfig, KafkaSinkConfig):
        undescribed = [
            name for name, field in model.model_json_schema()["properties"].items() if "description" not in field
        ]
        assert undescribed == []


def test_a_dead_letter_may_be_as_large_as_its_topic_allows_unless_the_file_says_otherwise() -> None:
    assert sink_properties(sink(), {})["message.max.bytes"] == 1 << 20
    assert sink_properties(sink().for_dead_letters(), {})["message.max.bytes"] == 16 << 20
    assert sink_properties(sink(max_message="2MiB").for_dead_letters(), {})["message.max.bytes"] == 2 << 20


def test_a_message_that_the_clients_queue_has_no_room_for_is_an_error_of_the_file() -> None:
    with pytest.raises(ValidationError, match=r"more than the client's queue holds \(67108864 bytes\)"):
        sink(max_message="65MiB")
    queue = {"queue.buffering.max.kbytes": 100_000}
    assert sink(max_message="65MiB", client=queue).max_message == 65 << 20
    with pytest.raises(ValidationError, match="under client, or lower max_message"):
        sink(max_message="200KiB", client={"queue.buffering.max.kbytes": "100"})
    # Without `max_message` in the file, the client's queue is the limit.
    assert sink_properties(sink(client={"queue.buffering.max.kbytes": "100"}), {})["message.max.bytes"] == 102_400
