"""Which records of a batch get spans."""

from __future__ import annotations

from random import Random

import pytest

from connectors.records import Header
from streamer.tracing.sampling import Draw, Sampled, sampled
from streamer.tracing.traceparent import TraceContext

CONTEXT = TraceContext(1, 2)
UNSAMPLED = TraceContext(1, 2, 0)


def of(context: TraceContext) -> list[Header]:
    return [("traceparent", context.header())]


def test_a_sampled_trace_goes_on_and_one_that_is_not_does_not_whatever_is_drawn() -> None:
    headers: list[list[Header] | None] = [
        of(CONTEXT),
        of(UNSAMPLED),
        [("traceparent", b"broken")],
        of(CONTEXT) * 2,
        None,
        [],
    ]
    assert sampled(headers, range(6), Draw(0)) == [Sampled(0, CONTEXT)]
    assert sampled(headers, range(6), Draw(1)) == [Sampled(0, CONTEXT), Sampled(4, None), Sampled(5, None)]
    assert sampled(headers, [1, 4], Draw(1)) == [Sampled(4, None)]


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
