"""The codec that is named to somebody who reads with a wrong one."""

import pytest

from pipelines import Data
from streamer.cli.fitting import fitting_codec
from streamer.testing import payload


@pytest.mark.parametrize("written", ["json", "protodata", "msgpack"])
def test_a_payload_is_told_by_what_can_read_it(written: str) -> None:
    assert fitting_codec(payload(Data({"name": "a", "x": 1.5}), written)) == written


@pytest.mark.parametrize("content", [b"\xff" * 50, b"hello", b"{", b"\x00"])
def test_of_what_nothing_reads_nothing_is_said(content: bytes) -> None:
    assert fitting_codec(content) is None
