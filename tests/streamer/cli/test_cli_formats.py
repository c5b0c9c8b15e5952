"""`streamer formats`."""

from __future__ import annotations

import json
from typing import Any


def test_the_forms_and_converters_are_listed(cli: Any) -> None:
    """K-13."""
    ended = cli("formats")
    assert ended.code == 0
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["array", "numpy", "yes"] in [line[:3] for line in lines]
    assert ["image", "pil", "yes"] in [line[:3] for line in lines]

    found = json.loads(cli("formats", "--json").out)
    assert {"kind": "array", "form": "serialized"}.items() <= next(
        one for one in found["formats"] if one["form"] == "serialized"
    ).items()
    quality = [one for one in found["converters"] if one["honours"] == ["quality"]]
    assert {one["target"] for one in quality} == {"jpeg"}
    assert found["problems"] == []
