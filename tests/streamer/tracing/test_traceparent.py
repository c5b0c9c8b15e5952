"""Reading and writing the header `traceparent`."""

from __future__ import annotations

import pytest

from streamer.tracing.traceparent import TraceContext, read, replaced

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_header_says_trace_span_and_flags() -> None:
    context = read(f"00-{TRACE}-{SPAN}-01".encode())
    assert context == TraceContext(int(TRACE, 16), int(SPAN, 16), 1)
    assert context is not None
    assert context.is_sampled
    assert context.header() == f"00-{TRACE}-{SPAN}-01".encode()
    assert not TraceContext(1, 1, 0xFE).is_sampled


def test_what_later_versions_add_is_left_out() -> None:
    context = read(f"cc-{TRACE}-{SPAN}-09-what-else".encode())
    assert context is not None
    assert context.header() == f"00-{TRACE}-{SPAN}-01".encode()


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        f"ff-{TRACE}-{SPAN}-01".encode(),
        f"00-{TRACE}-{SPAN}-01-more".encode(),
        f"cc-{TRACE}-{SPAN}-01.more".encode(),
        f"00-{TRACE.upper()}-{SPAN}-01".encode(),
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE}-{SPAN}-0".encode(),
        f"00-{TRACE}-{SPAN}-01\n".encode(),
        b"\xff" * 55,
    ],
)
def test_a_header_that_is_not_valid_is_none(value: bytes | None) -> None:
    assert read(value) is None


def test_a_new_context_takes_the_place_of_the_old_one_and_leaves_other_headers() -> None:
    headers = [("Traceparent", b"x"), ("tracestate", b"a=1"), ("id", None)]
    made = TraceContext(1, 2)
    assert replaced(headers, made) == [("tracestate", b"a=1"), ("id", None), ("traceparent", made.header())]
