"""Objects of other libraries as values of a `Data`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.values.conversion.arrayconverters import array_conversions
from pipelines.values.conversion.formats import ArrayFormat
from pipelines.values.conversion.imageconverters import image_conversions
from pipelines.values.image import Image


def adopt(value: object) -> Any:
    """What a `Data` keeps of an object that is none of its own values; `None` if it is nothing to it.

    An object with a method `as_data_value()` says so itself. One of a class that is a form of arrays becomes a numpy
    array, over the same memory where that is possible; one of a class that is a form of images an `Image` that holds
    it. Objects with DLPack are arrays too. Raises `DataError` for one that cannot be converted.
    """
    own = getattr(type(value), "as_data_value", None)
    if own is not None:
        return own(value)
    conversions = array_conversions()
    factory = conversions.factories.of_class(type(value))
    if factory is not None or hasattr(type(value), "__dlpack__"):
        array: np.ndarray[Any, Any] = conversions.convert(value, factory.form if factory else "dlpack", ArrayFormat())
        return array
    return None if image_conversions().factories.of_class(type(value)) is None else Image(value)
