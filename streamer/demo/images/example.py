"""The digits example: its service and its images, from the checkout or from the installed package."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamer.demo.examples import folder

if TYPE_CHECKING:
    from streamer.definition.service import Service

Bytes = npt.NDArray[np.uint8]


class Digits(NamedTuple):
    """Images that the model has not been trained on, with their labels."""

    images: Bytes
    """`uint8 (N, 8, 8)`, 0 (paper) to 16 (ink)."""
    labels: Bytes
    """`uint8 (N,)`, 0 to 9."""


def digits() -> Digits:
    """The images and labels of `digits.npz`."""
    with np.load(folder("digits") / "digits.npz") as arrays:
        return Digits(arrays["images"], arrays["labels"])


def service(bootstrap: str) -> Service:
    """The service that `digits.yaml` defines, on this broker."""
    import streamer.definition.loading

    text = (folder("digits") / "digits.yaml").read_text(encoding="utf-8")
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bootstrap}
    return streamer.definition.loading.loads(text, folder("digits"), environment=environment)


def topics_of(service: Service) -> tuple[str, str, str]:
    """Names of the topics of images, of predictions and of dead letters."""
    source: Any = service.sources[0]
    sink: Any = service.sinks[0]
    dead: Any = service.dead_letter
    return source.topics[0], sink.topic, dead.topic
