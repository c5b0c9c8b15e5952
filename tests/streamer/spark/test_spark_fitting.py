"""What a service file may say on Spark: the rest is refused, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

import streamer
from pipelines.errors import DefinitionError
from streamer.definition.connectors.written import Written
from streamer.spark.fitting import check_service
from streamer.spark.options import read_options, write_options

SOURCE = "source: {type: kafka, topics: [a]}"
PIPELINE = 'pipeline: {steps: [{"@type": MAP, select: {y: "x"}}]}'
SINK = "sink: {type: kafka, topic: b}"


def checked(folder: Path, *lines: str) -> None:
    """Check a service of these lines, which begin at line 2; it has the usual parts that they lack."""
    parts = {"source": SOURCE, "pipeline": PIPELINE, "sink": SINK}
    given = {line.partition(":")[0] for line in lines}
    text = "\n".join(["# a service", *lines, *(part for name, part in parts.items() if name not in given)])
    (folder / "service.yaml").write_text(text)
    service = streamer.load(folder / "service.yaml")
    check_service(service, Written.of(folder / "service.yaml"))


def test_a_service_from_kafka_to_kafka_fits(tmp_path: Path) -> None:
    checked(
        tmp_path,
        "source: {type: kafka, topics: [a], group: g, start: latest, max_fetch: 1MiB, out_of_range: earliest}",
        "keep: [id]",
        "batch: {max_records: 16, max_wait: 1s}",
        "errors: {stop_ratio: 0.1}",
        "sink: {type: kafka, topic: b, compression: zstd, linger: 10ms, max_message: 2MiB, timestamp: now}",
        "dead_letter: {type: kafka, topic: dead, linger: 10ms}",
    )


def test_a_function_that_remembers_nothing_fits(tmp_path: Path) -> None:
    checked(tmp_path, 'pipeline: {steps: [{"@type": FUNCTION, function: "rules:trend"}]}')
    with pytest.raises(DefinitionError, match="step 0:FUNCTION remembers earlier records"):
        checked(tmp_path, 'pipeline: {steps: [{"@type": FUNCTION, function: "rules:trend", remember: device}]}')


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("delivery: exactly_once", "delivery: exactly_once is not possible on Spark"),
        ("delivery: at_most_once", "delivery: at_most_once is not possible on Spark"),
        ("state: memory", "state: not possible on Spark"),
        ("state: {path: state.db}", "state: not possible on Spark"),
        ("batch: {type: hard, max_records: 8}", "batch.type: hard is not possible"),
        ("batch: {target_latency: 1s}", "batch.target_latency: not possible on Spark"),
        ("limits: {parallel: 2}", "limits.parallel: on Spark its tasks"),
        ("models: {follow: 5s}", "models.follow: not possible"),
        ("variants: {shadow: {}}", "variants: not possible"),
        ('control: {listen: "127.0.0.1:0"}', "control: not possible on Spark"),
        ("profile: {file: a.json}", "profile: not possible on Spark"),
        ("debug: true", "debug: not possible on Spark"),
        ("source: {type: mqtt, url: mqtt://a, topics: [a], client_id: a}", "source.type: a service on Spark reads"),
        ("source: {type: camera, cameras: {a: rtsp://a}}", "source.type: a service on Spark reads from Kafka"),
        ("source: [{type: kafka, topics: [a]}, {type: kafka, topics: [b]}]", "there are 2 sources"),
        ("source: {type: kafka, topics: [a], instance: one}", "source.instance: not possible on Spark"),
        ("source: {type: kafka, topics: [a], assignor: consumer}", "source.assignor: not possible on Spark"),
        ("source: {type: kafka, topics: [a], out_of_range: latest}", "source.out_of_range: latest is not possible"),
        ("sink: {type: file, path: a.jsonl, codec: json}", "sink.type: on Spark results go to Kafka"),
        ("sink: {type: kafka, topic: b, timestamp: source}", "sink.timestamp: not possible on Spark"),
        ("sink: {type: kafka, topic: b, partitioner: consistent}", "sink.partitioner: consistent is one of librdkafka"),
        ("sink: {type: kafka, topic: b, outbox: {path: a.db}}", "sink.outbox: not possible on Spark"),
        (
            'sink: [{type: kafka, topic: b, name: x}, {type: kafka, topic: c, name: y, bootstrap: "other:1"}]',
            "sink[1].bootstrap: other:1 is another bus",
        ),
        (
            "sink: [{type: kafka, topic: b, name: x, linger: 1ms}, {type: kafka, topic: c, name: y, linger: 2ms}]",
            "sink[1].linger: differs from that of the sink x",
        ),
        (
            "sink: [{type: kafka, topic: b, name: x}, "
            "{type: kafka, topic: c, name: y, client: {security.protocol: SSL}}]",
            "sink[1].client: differs from that of the sink x",
        ),
        (
            'pipeline: {steps: [{"@type": DEDUP, by: a, for: 1s}]}',
            "step 0:DEDUP remembers earlier records",
        ),
    ],
)
def test_what_spark_cannot_do_is_refused_with_file_and_line(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        checked(tmp_path, line)
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / 'service.yaml'}:2: ")
    assert says in text


def options(folder: Path, source: str, sink: str = SINK, more: str = "") -> tuple[dict[str, str], dict[str, str]]:
    (folder / "service.yaml").write_text("\n".join(["name: s", source, PIPELINE, sink, more]))
    service = streamer.load(folder / "service.yaml")
    written = Written.of(folder / "service.yaml")
    return read_options(service, written), write_options(service, written)


def test_fields_of_kafka_become_options_of_spark(tmp_path: Path) -> None:
    read, write = options(
        tmp_path,
        'source: {type: kafka, bootstrap: "k:1", topics: [a, b], group: g, start: 2026-01-31T12:00Z, headers: false}',
        "sink: {type: kafka, topic: b, compression: zstd, linger: 20ms, max_message: 20MiB, timeout: 10s}",
        "batch: {max_records: 10}",
    )
    assert read == {
        "kafka.bootstrap.servers": "k:1",
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.bytes": str(4 << 20),
        "subscribe": "a,b",
        "startingTimestamp": "1769860800000",
        "startingOffsetsByTimestampStrategy": "latest",
        "includeHeaders": "false",
        "groupIdPrefix": "g",
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": "2000",
    }
    room = (20 << 20) + 65536
    assert write == {
        "kafka.bootstrap.servers": "k:1",
        "kafka.acks": "all",
        "kafka.compression.type": "zstd",
        "kafka.linger.ms": "20",
        "kafka.max.request.size": str(room),
        "kafka.buffer.memory": str(2 * room),
        "kafka.delivery.timeout.ms": "10000",
        "kafka.request.timeout.ms": "9980",
    }


def test_a_pattern_of_topics_is_one_that_java_compares_with_whole_names(tmp_path: Path) -> None:
    import re

    read, _ = options(tmp_path, 'source: {type: kafka, topics: ["^images[.]", one.two, "^_"]}')
    pattern = re.compile(read["subscribePattern"])
    assert [
        name
        for name in ("images.a", "one.two", "_x", "__consumer_offsets", "onextwo", "my.images.a", "imagesx")
        if pattern.fullmatch(name)
    ] == ["images.a", "one.two", "_x"]


CERTIFICATE = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n"


def test_a_login_is_told_in_the_words_of_javas_clients(tmp_path: Path) -> None:
    for name, text in {"ca.pem": CERTIFICATE, "me.pem": CERTIFICATE, "me.key": KEY}.items():
        (tmp_path / name).write_text(text)
    client = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'a"b\\\\c',
        "ssl.ca.location": tmp_path / "ca.pem",
        "ssl.certificate.location": tmp_path / "me.pem",
        "ssl.key.location": tmp_path / "me.key",
        "ssl.key.password": "pw",
        "ssl.endpoint.identification.algorithm": "none",
    }
    lines = "".join(f"    {name}: '{value}'\n" for name, value in client.items())
    read, write = options(tmp_path, f"source:\n  type: kafka\n  topics: [a]\n  client:\n{lines}")
    said = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="a\\"b\\\\\\\\c";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": CERTIFICATE,
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": CERTIFICATE,
        "kafka.ssl.keystore.key": KEY,
        "kafka.ssl.key.password": "pw",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    assert said.items() <= read.items()
    # The sink names no brokers, so it has the source's with their login.
    assert said.items() <= write.items()


@pytest.mark.parametrize(
    ("client", "says"),
    [
        ("{fetch.min.bytes: 1}", "source.client.fetch.min.bytes: is a property of librdkafka"),
        ("{security.protocol: SOMETHING}", "client.security.protocol: is SOMETHING; it is one of PLAINTEXT"),
        ("{security.protocol: SASL_SSL}", "client: sasl.mechanisms is GSSAPI"),
        ("{security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: me}", "client: sasl.password is missing"),
        ("{security.protocol: SSL, enable.ssl.certificate.verification: false}", "verification: is false"),
        ("{security.protocol: SSL, ssl.ca.location: nowhere.pem}", "ssl.ca.location: cannot be read"),
        ("{security.protocol: SSL, ssl.ca.location: service.yaml}", "does not hold certificates in PEM"),
        (
            "{security.protocol: SSL, ssl.certificate.location: ca.pem}",
            "client: ssl.key.location is missing",
        ),
        (
            "{security.protocol: SSL, ssl.certificate.location: ca.pem, ssl.key.location: old.key}",
            "openssl pkcs8 -topk8 turns an older key into one",
        ),
    ],
)
def test_a_login_that_java_does_not_have_is_refused_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    (tmp_path / "old.key").write_text(KEY.replace("PRIVATE", "RSA PRIVATE"))
    with pytest.raises(DefinitionError) as caught:
        options(tmp_path, f"source: {{type: kafka, topics: [a], client: {client}}}")
    assert str(caught.value).startswith(f"{tmp_path / 'service.yaml'}:2: ")
    assert says in str(caught.value)
