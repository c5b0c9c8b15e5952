"""Which records of a batch get spans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from connectors.headers import Header, Headers
from streamer.tracing.sampling import Draw, Sampled, sampled
from streamer.tracing.traceparent import TraceContext

Kind = Callable[[list[list[Header] | None]], Sequence[Sequence[Header] | None]]
CONTEXT = TraceContext(1, 2)
UNSAMPLED = TraceContext(1, 2, 0)


def of(context: TraceContext) -> list[Header]:
    return [("traceparent", context.header())]


@pytest.mark.parametrize("kind", [list, Headers.of])
def test_a_sampled_trace_goes_on_and_one_that_is_not_does_not_whatever_is_drawn(kind: Kind) -> None:
    rows: list[list[Header] | None] = [
        [("Id", b"7"), ("TraceParent", CONTEXT.header()), ("traceparenx", b"01")],
        of(UNSAMPLED),
        [("traceparent", b"broken"), ("tracestate", b"")],
        of(CONTEXT) * 2,
        None,
        [("traceparent", None)],
        [("traceparent", b"")],
        [("tracestate", None), ("tracepareNt", b"broken1")],
        [*of(UNSAMPLED), ("tracestate", b"a=1")],
        [("id", b"traceparent")],
        of(CONTEXT),
    ]
    headers, every = kind(rows), range(len(rows))
    traced = [Sampled(0, CONTEXT), Sampled(10, CONTEXT)]
    assert sampled(headers, every, Draw(0)) == traced
    assert sampled(headers, every, Draw(1)) == sorted([*traced, Sampled(4, None), Sampled(9, None)])
    assert sampled(headers, [1, 4, 8, 10], Draw(1)) == [Sampled(4, None), Sampled(10, CONTEXT)]
    assert sampled(headers, range(2, 4), Draw(1)) == []
    assert sampled(kind([None, []]), range(2), Draw(1)) == [Sampled(0, None), Sampled(1, None)]


def test_without_headers_all_none_or_a_share_of_the_records_are_drawn() -> None:
    assert sampled(None, range(3, 6), Draw(1)) == [Sampled(3, None), Sampled(4, None), Sampled(5, None)]
    assert sampled(None, range(100), Draw(0)) == []


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_the_share_is_kept_across_batches_of_any_size(share: float) -> None:
    draw = Draw(share, Random(1))
    sizes = [1, 7, 512] * 100
    count = sum(len(sampled(None, range(size), draw)) for size in sizes)
    expected = share * sum(sizes)
    assert abs(count - expected) < 4 * (expected * (1 - share)) ** 0.5
