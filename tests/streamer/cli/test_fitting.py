"""The codec that is named to somebody who reads with a wrong one."""

import pytest

from pipelines import Data
from streamer.cli.fitting import fitting_codec
from streamer.testing import payload

RECORD = Data({"name": "a", "x": 1.5})


@pytest.mark.parametrize(("written", "chosen"), [("json", "protodata"), ("protodata", "json"), ("msgpack", "json")])
def test_a_payload_is_told_by_what_can_read_it(written: str, chosen: str) -> None:
    assert fitting_codec(payload(RECORD, written), chosen) == written
    assert fitting_codec(payload(RECORD, written), {"type": chosen}) == written


@pytest.mark.parametrize("content", [b"\xff" * 50, b"hello", b"{", b"\x00"])
def test_of_what_nothing_reads_nothing_is_said(content: bytes) -> None:
    assert fitting_codec(content, "tensor") is None
