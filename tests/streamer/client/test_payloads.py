"""Payloads of requests and answers over topics: whatever the codec, each answer is read or is an error of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from connectors.message import Message
from pipelines import Data
from pipelines.errors import WireError
from streamer.client.payloads import Payloads


@pytest.mark.parametrize("codec", ["protodata", {"type": "protodata"}, "json", "inference"])
@pytest.mark.parametrize("count", [1, 20])
def test_answers_are_read_whether_one_comes_or_many(codec: Any, count: int) -> None:
    payloads = Payloads.of(codec)
    sent = Data({"x": np.arange(3.0)})
    payload, headers = payloads.written(sent)
    if codec == "inference":
        payload = payload.replace(b'"inputs"', b'"outputs"')
        headers = [(name, b"%d" % (int(value or b"0") + 1)) for name, value in headers]
    good = Message(payload, None, tuple(headers))
    results = payloads.read([*[good] * (count - 1), good, Message(b"\xff{"), Message(None)])
    read = [result["x"] for result in results[:count] if isinstance(result, Data)]
    assert [np.asarray(x).tolist() for x in read] == [[0, 1, 2]] * count
    assert [isinstance(result, WireError) for result in results[count:]] == [True, True]
