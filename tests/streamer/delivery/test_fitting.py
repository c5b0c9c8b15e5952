"""The codec that is named to somebody who reads with a wrong one."""

import pytest

import streamer
from pipelines import Data
from streamer.definition.service import Service
from streamer.delivery.fitting import LARGEST, fitting_codec
from streamer.testing import payload
from streamer.testing.running import ServiceFailed


@pytest.mark.parametrize("written", ["json", "protodata", "msgpack"])
def test_a_payload_is_told_by_what_can_read_it(written: str) -> None:
    assert fitting_codec(payload(Data({"name": "a", "x": 1.5}), written)) == written


@pytest.mark.parametrize("content", [b"\xff" * 50, b"hello", b"{", b"\x00"])
def test_of_what_nothing_reads_nothing_is_said(content: bytes) -> None:
    assert fitting_codec(content) is None


JSON = b'{"a": 1}'
TEXT = "source: {type: memory, topic: t}\npipeline: [{'@type': LOGGING}]\nsink: {type: memory, topic: o, codec: json}\n"


def service(more: str = "", codec: str = "protodata") -> Service:
    return streamer.loads(TEXT.replace("topic: t}", f"topic: t, codec: {codec}}}") + more)


def hints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "another codec reads this record" in line]


def test_a_service_with_a_wrong_codec_says_once_which_one_reads_its_records(caplog: pytest.LogCaptureFixture) -> None:
    report = streamer.testing.run(service("dead_letter: {type: memory, topic: d}"), [JSON, JSON])
    assert len(report.dead) == 2
    (told,) = hints(caplog)
    assert "codec='json'" in told
    assert "memory[0]@0" in told


@pytest.mark.parametrize("more", ["", "dead_letter: {type: memory, topic: d}\nerrors: {over: 3}"])
def test_the_error_that_stops_a_service_names_the_codec_that_reads_its_records(more: str) -> None:
    with pytest.raises(ServiceFailed, match='such payloads are read with "codec: json" in the source memory'):
        streamer.testing.run(service(more), [JSON] * 5)


@pytest.mark.parametrize("records", [[b"hello"], [b""], [b"hello", JSON]])
def test_nothing_is_said_of_records_that_are_only_broken(
    records: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    streamer.testing.run(service("on_error: drop", codec="json"), records)
    assert not hints(caplog)


def test_a_codec_that_breaks_costs_only_the_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr("connectors.codecs.konduitjson.KonduitJson.decode", broken)
    monkeypatch.setattr("connectors.codecs.json.Json.decode", broken)
    assert fitting_codec(JSON) is None
    assert fitting_codec(payload(Data({"a": 1}), "msgpack")) == "msgpack"


def test_what_is_large_is_not_tried_while_records_wait(caplog: pytest.LogCaptureFixture) -> None:
    large = b'{"a": "' + b"x" * LARGEST + b'"}'
    streamer.testing.run(service("on_error: drop"), [large])
    assert not hints(caplog)
