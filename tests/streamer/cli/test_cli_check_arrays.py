"""`streamer check` on steps that need boxes of the picture where a definition keeps those of an array."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SERVICE = """
source: {{type: memory, topic: in}}
sink: {{type: memory, topic: out}}
on_error: drop
pipeline:
  steps:
  - {{"@type": IMAGE_TO_NDARRAY, config: {{height: 32, width: 32, aspectRatioHandling: {fit}}}}}
  - {{"@type": DRAW_BOUNDING_BOX{config}}}
  - {{"@type": BLUR}}
  - {{"@type": ZONES, zones: {{gate: {{points: [[0, 0], [1, 0], [1, 1]]}}}}}}
"""


@pytest.mark.parametrize(
    ("fit", "config", "noted"),
    [
        ("PAD", ", image_to_ndarray_config: {height: 32, width: 32}", True),
        ("CENTER_CROP", ", image_to_ndarray_config: {height: 32, width: 32}", True),
        ("STRETCH", ", image_to_ndarray_config: {height: 32, width: 32}", False),
        ("PAD", "", False),
    ],
)
def test_a_blur_and_zones_are_noted_where_boxes_stay_those_of_the_array(
    cli: Any, tmp_path: Path, fit: str, config: str, noted: bool
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE.format(fit=fit, config=config))
    ended = cli("check", file, "--json")
    (service,) = json.loads(ended.out)["services"]
    texts = {finding["part"].rpartition(":")[2]: finding["text"] for finding in service["findings"]}
    note = "note: DRAW_BOUNDING_BOX has an imageToNDArrayConfig, so boxes of a model stay fractions"
    assert [note in texts[step] for step in ("BLUR", "ZONES", "IMAGE_TO_NDARRAY")] == [noted, noted, False]
