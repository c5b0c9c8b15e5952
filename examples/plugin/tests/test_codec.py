"""The codec keeps what every codec promises: the tests are those of streamer's own."""

from __future__ import annotations

import numpy as np
import pytest
from connectors.codec import Codec
from connectors.contract import CodecContract
from pipelines import Data

from example_plugin.codec import NpyConfig


class TestNpy(CodecContract):
    bad = (
        b"",
        b"no npy file",
        7,
    )
    unwritable = (Data({"x": "text"}),)
    cycles = "numpy reads the header of a file as a syntax tree, whose nodes refer to each other"

    @pytest.fixture
    def codec(self) -> Codec:
        return NpyConfig().build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"x": np.float32([1, 2, 3])})
