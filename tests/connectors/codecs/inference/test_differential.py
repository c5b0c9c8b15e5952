"""Compiled and plain Python read the same of any request, and refuse the same with the same text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.codec import Codec, RecordsOrigin
from connectors.codecs.inference.config import InferenceConfig
from connectors.records import Records
from pipelines import hotpath
from pipelines.hotpath import HotPath, choosing

CORPUS = sorted((Path(__file__).parents[4] / "native" / "fuzz" / "corpus" / "inference").iterdir())


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.name)
def test_whatever_byte_of_a_request_is_another(
    file: Path, block: Callable[..., Records], monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := hotpath.why_not():
        pytest.skip(f"the compiled hot path: {reason}")
    monkeypatch.delenv(hotpath.VARIABLE, raising=False)
    text = file.read_bytes()
    others = [text, text.replace(b",", b" , "), text.replace(b":", b":\n")]
    for place in range(len(text)):
        others.append(text[:place] + b'",:]}0-.\xff'[place % 9 :][:1] + text[place + 1 :])
        others.append(text[:place] + text[place + 1 :])
    python, native = (outcomes(path, block(others)) for path in ("python", "native"))
    assert python == native
    assert sum(isinstance(outcome, str) for outcome in python) > len(others) // 4
    assert sum(not isinstance(outcome, str) for outcome in python) > len(others) // 10


def outcomes(path: Any, records: Records) -> list[Any]:
    """For each record the text of its error, or its values and what it asks."""
    decoded = codec(path).decode(records, None)
    origin = decoded.batch.origin
    assert isinstance(origin, RecordsOrigin)
    assert origin.asks is not None
    found: list[Any] = [None] * len(records)
    for row, error in decoded.failed.items():
        found[row] = str(error)
    for row, data in zip(decoded.batch.rows.tolist(), decoded.batch.to_list(), strict=True):
        values = [(key, plain(value)) for key, value in data.items()]
        found[row] = (values, data.metadata, origin.asks[row])
    return found


def codec(path: HotPath) -> Codec:
    with choosing(path):
        return InferenceConfig().build()


def plain(value: Any) -> Any:
    return (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
