"""Steps that take boxes for fractions of the picture where a definition says itself which picture boxes belong to."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.definitions.walk import Part
from pipelines.steps import Blur, ImageToNDArray, Typed, Zones


def left_in_arrays(step: Typed, parts: Iterable[Part]) -> str:
    """A note on a BLUR or ZONES whose boxes may be fractions of a padded or cropped array; empty if they are not.

    They are where a step of the definition has an `imageToNDArrayConfig`: then steps that make boxes do not put them
    into the picture.
    """
    if not isinstance(step, (Blur, Zones)):
        return ""
    steps = [part.what for part in parts]
    config = next((other for other in steps if getattr(other, "image_to_ndarray_config", None) is not None), None)
    if config is None or not any(isinstance(other, ImageToNDArray) and _cuts(other) for other in steps):
        return ""
    return (
        f"; note: {config.type_name} has an imageToNDArrayConfig, so boxes of a model stay fractions of its padded or "
        "cropped input, and this step takes them for fractions of the picture: leave the config out, and boxes are put "
        "into the picture where they are made"
    )


def _cuts(step: ImageToNDArray) -> bool:
    config = step.config
    sized = config is not None and (config.height is not None or config.width is not None)
    return config is not None and sized and config.aspect_ratio_handling != "STRETCH"
