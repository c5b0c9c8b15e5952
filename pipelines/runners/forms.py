"""What is known of the values of records before there is one: that a key holds images, arrays of which shape, lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pipelines.values import ValueType

Lengths: TypeAlias = tuple[int | None, ...]
"""The lengths of an array's axes; `None`: any."""


@dataclass(frozen=True, slots=True)
class ImageForm:
    """Each value is one image."""


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """Each value is an array."""

    dtype: np.dtype[Any]
    shape: Lengths | None = None
    """`None`: any, of any rank."""


@dataclass(frozen=True, slots=True)
class ValueForm:
    """Each value is of this type, such as a list."""

    type: ValueType


Form: TypeAlias = ImageForm | ArrayForm | ValueForm
Forms: TypeAlias = Mapping[str, Form]
"""The forms of values by key: a record that has the key has such a value there. Of other keys nothing is known."""
