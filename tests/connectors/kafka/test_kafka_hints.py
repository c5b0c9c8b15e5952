"""Addresses of brokers that are none."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.errors import DefinitionError


@pytest.mark.parametrize(
    "bootstrap",
    [
        *("localhost:9092", "a:1,b:65535", "a:9092, b", "broker", "a:9092,", "[::1]:9092", "[::1]", "::1"),
        *("PLAINTEXT://a:9092", "SASL_SSL://a:9093,b:9093"),
    ],
)
def test_brokers_are_hosts_with_ports_as_librdkafka_takes_them(bootstrap: str) -> None:
    assert KafkaSourceConfig(topics=("a",), bootstrap=bootstrap).bootstrap == bootstrap


@pytest.mark.parametrize(
    ("bootstrap", "told"),
    [
        ("kafka://127.0.0.1:9092", "brokers are host:port, without kafka://: write 127.0.0.1:9092"),
        ("a:9092,http://user:pw@b/path", "brokers are host:port, without http://: write b:9092"),
        ("127.0.0.1:99999", '"99999" is not a port'),
        ("127.0.0.1:0", '"0" is not a port'),
        ("[::1]:70000", '"70000" is not a port'),
        ("localhost:", '"" is not a port'),
    ],
)
def test_an_address_that_is_none_is_told_what_to_write(bootstrap: str, told: str) -> None:
    for make in (
        lambda: KafkaSourceConfig(topics=("a",), bootstrap=bootstrap),
        lambda: KafkaSinkConfig(topic="a", bootstrap=bootstrap),
    ):
        with pytest.raises(ValidationError) as caught:
            make()
        assert told in str(caught.value)
        assert "pw" not in str(caught.value)
    with pytest.raises(DefinitionError) as refused:
        KafkaSourceConfig.browser_at(bootstrap, {})
    assert told in str(refused.value)
