"""`Layout`: a way in which models write boxes, with the decoder that reads it. Plug-ins add layouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pipelines.plugins.catalog import Catalog, class_of
from pipelines.runners.boxes.detectors.detector import Candidates, Detector
from pipelines.runners.boxes.detectors.given import Given, Size


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why the outputs of a model are not in a layout, though they are like it."""

    lacks: str


class Layout(ABC):
    """One layout. It has no state: an instance is made where it is used."""

    name: ClassVar[str] = ""
    """Its name in the field `layout`; empty for a base of several."""
    evidence: ClassVar[str] = "shape"
    """What of the outputs it is recognised by, for people: shape, names."""

    @abstractmethod
    def fit(self, given: Given) -> Detector | Misfit | None:
        """How outputs in this layout are read; why they are not in it, or `None` if they are not even like it.

        What is the same in all layouts, size and labels among it, is filled in by `recognise`.
        """

    @abstractmethod
    def decode(self, detector: Detector, outputs: Sequence[Any], size: Size, threshold: float) -> Candidates:
        """The boxes of a batch whose probability is at least `threshold`.

        Args:
            detector: What `fit` gave.
            outputs: The arrays that `detector.outputs` names, in that order.
            size: Height and width of the model's input in pixels.
            threshold: 0 to 1.

        Raises:
            RowsFailed: Pictures, by their position, whose numbers cannot be right.
            DataError: Outputs that cannot be right for the whole batch.
        """


LAYOUTS: Final[Catalog[type[Layout]]] = Catalog(
    "layout of detectors",
    "streamer.detectors",
    class_of(Layout),
    lambda layout: (layout.name,) if layout.name else (),
    "pipelines.runners.boxes.detectors.layouts",
)
"""All layouts by name."""
