"""A codec whose registry does not answer: records and results wait for it, and none is lost or fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.guarded import Guarded
from connectors.codecs.rows import decode_rows, encode_rows
from connectors.records import Records
from pipelines import Batch, Data
from pipelines.errors import ConnectorError
from streamer import testing
from streamer.agent import assembly
from streamer.definition.service import Service
from streamer.testing import running


class NeedsAnother(Codec):
    """A codec that asks a registry before each block; `away` gives the error of one that does not answer."""

    def __init__(self, away: Callable[[], ConnectorError | None]) -> None:
        self.away = away
        self.calls = 0

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        self._ask()
        return decode_rows(records, first, lambda payload: Data({"x": int(payload)}))

    def encode(self, batch: Batch) -> Encoded:
        self._ask()
        return encode_rows(batch, lambda data: b"%d" % data["x"])

    def _ask(self) -> None:
        self.calls += 1
        error = self.away()
        if error is not None:
            raise error


PAYLOADS = [b"%d" % number for number in range(20)]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Codec], None]:
    """Have services use this codec for all that they read and write."""

    def using(codec: Codec) -> None:
        for module in (assembly, running):
            monkeypatch.setattr(module, "codec_of", lambda *_, **__: Guarded(codec, "other"))

    return using


def test_records_and_results_wait_while_the_registry_does_not_answer(use: Any, define: Any) -> None:
    codec = NeedsAnother(_answers(*[_gone(True)] * 3))
    use(codec)
    report = testing.run(_service(define), PAYLOADS)
    assert [message.value for message in report.sinks["memory"]] == PAYLOADS
    assert (report.acknowledged, report.dead, report.summary.reason) == (20, [], "ended")
    use(NeedsAnother(_answers(None, _gone(True), _gone(True))))
    report = testing.run(_service(define), PAYLOADS)
    assert [message.value for message in report.sinks["memory"]] == PAYLOADS
    assert report.acknowledged == 20


def test_a_permanent_registry_error_stops_the_service_and_nothing_is_acknowledged(use: Any, define: Any) -> None:
    for answers in ([_gone(False)], [None, _gone(False)]):
        use(NeedsAnother(_answers(*answers)))
        report = testing.run(_service(define), PAYLOADS, check=False)
        assert (report.summary.reason, report.acknowledged, report.dead) == ("failed", 0, [])
        assert "the registry does not answer" in str(report.summary.error)


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_a_service_that_waits_for_the_registry_can_be_stopped_and_acknowledges_nothing(
    use: Any, define: Any, serve: Any, eventually: Any, delivery: str
) -> None:
    codec = NeedsAnother(lambda: _gone(True))
    use(codec)
    serving = serve(define(_same, delivery=delivery))
    serving.feed(1, 2, 3)
    eventually(lambda: codec.calls > 1)
    summary = serving.stop()
    assert (summary.ok, summary.dead, serving.source.acknowledged) == (0, 0, [0])


def test_a_service_that_waits_to_write_its_results_says_so_in_ready_and_not_in_live(
    use: Any, define: Any, serve: Any, eventually: Any
) -> None:
    away = [True]

    class CannotWrite(NeedsAnother):
        def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
            return decode_rows(records, first, Data.from_bytes)

    use(CannotWrite(lambda: _gone(True) if away else None))
    serving = serve(define(_same, errors={"first": 0}))
    serving.feed(1, 2, 3)
    eventually(lambda: serving.agent.ready() == "sink memory: the registry does not answer")
    assert serving.agent.live() is None
    away.clear()
    eventually(lambda: serving.agent.ready() is None)
    eventually(lambda: serving.source.acknowledged == [3])


def test_a_registry_error_while_rows_are_tried_alone_is_raised_and_fails_no_record() -> None:
    class Odd(NeedsAnother):
        def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
            if len(records) > 1:
                raise ValueError("odd")
            return super().decode(records, wanted, first)

        def encode(self, batch: Batch) -> Encoded:
            if batch.size > 1:
                raise ValueError("odd")
            return super().encode(batch)

    from codecsupport import block

    guarded = Guarded(Odd(lambda: _gone(True)), "odd")
    with pytest.raises(ConnectorError, match="does not answer"):
        guarded.decode(block(PAYLOADS), None)
    with pytest.raises(ConnectorError, match="does not answer"):
        guarded.encode(Batch.of([Data({"x": 1})] * 4))


def _gone(retriable: bool) -> ConnectorError:
    return ConnectorError("the registry does not answer", retriable=retriable)


def _answers(*given: ConnectorError | None) -> Callable[[], ConnectorError | None]:
    left = iter(given)
    return lambda: next(left, None)


def _same(data: Data) -> Data:
    return data


def _service(define: Callable[..., Service]) -> Service:
    return define(_same)


def test_a_tombstone_beside_an_array_of_many_records_is_forwarded(define: Any) -> None:
    service = define(
        lambda data: Data({"x": data["x"]}),
        source={"type": "memory", "topic": "in", "codec": {"type": "json", "each": True}},
    )
    report = testing.run(service, [None, b'[{"x": 1}, {"x": 2}, {"x": 3}]'])
    assert [message.value for message in report.sinks["memory"]].count(None) == 1
    assert not report.dead
