"""Objects of other libraries as values of a `Data`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.values.conversion.arrayconverters import array_conversions
from pipelines.values.conversion.formats import ArrayFormat
from pipelines.values.conversion.imageconverters import image_conversions
from pipelines.values.image import Image


def adopt(value: object) -> Any:
    """The value that a `Data` keeps for an object of another library; `None` if there is no form for it.

    It is the result of the method `as_data_value()`, if the object has one. An object of a class that is a form of
    arrays becomes a numpy array, over the same memory where that is possible; one of a class that is a form of images
    an `Image` that holds it. Objects with DLPack are arrays too. Raises `DataError` for one that cannot be converted.
    """
    convert = getattr(type(value), "as_data_value", None)
    if convert is not None:
        return convert(value)
    conversions = array_conversions()
    factory = conversions.factories.of_class(type(value))
    if factory is not None or hasattr(type(value), "__dlpack__"):
        array: np.ndarray[Any, Any] = conversions.convert(value, factory.form if factory else "dlpack", ArrayFormat())
        return array
    return None if image_conversions().factories.of_class(type(value)) is None else Image(value)
