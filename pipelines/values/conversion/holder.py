"""`NDArray`: an array in the form in which it was made, converted when another form is asked for."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

import numpy as np

from pipelines.errors import DataError, WrongTypeError
from pipelines.values.conversion.arrayconverters import array_conversions
from pipelines.values.conversion.formats import ArrayFormat
from pipelines.values.ndarray import Array, NDArrayType, array_type
from pipelines.values.serialized import SerializedNDArray

T = TypeVar("T")
Held = TypeVar("Held", covariant=True)


class NDArray(Generic[Held]):
    """Holds an object that is an array, in whatever form it is.

    numpy's, nested lists, `array.array`, anything with a buffer, a PyTorch tensor, an Arrow array or tensor, anything
    with DLPack, `SerializedNDArray`, or a form that a plug-in brought.

    `NDArray.create(x)` keeps x, `get_as(...)` gives it in another form, and converts only if it differs. A `Data` keeps
    numpy arrays: a holder put into one becomes an array over the same memory where its form allows that.
    """

    __slots__ = ("_form", "_value")

    def __init__(self, value: Held) -> None:
        factory = array_conversions().factories.of(value)
        if factory is None:
            forms = ", ".join(factory.form for _, factory in array_conversions().factories)
            raise WrongTypeError(f"Unable to create NDArray from object of {type(value).__name__}; there are {forms}")
        self._value = value
        self._form = factory.form

    @overload
    @classmethod
    def create(cls, value: NDArray[T]) -> NDArray[T]: ...
    @overload
    @classmethod
    def create(cls, value: T) -> NDArray[T]: ...
    @classmethod
    def create(cls, value: Any) -> NDArray[Any]:
        """A holder of `value`. `WrongTypeError` if it has none of the known forms."""
        return value if isinstance(value, NDArray) else NDArray(value)

    @property
    def value(self) -> Held:
        """The object itself."""
        return self._value

    @property
    def form(self) -> str:
        """The name of its form: `"numpy"`, `"torch"`."""
        return self._form

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis; lists are converted to know it."""
        measure = array_conversions().factories.named(self._form).measure
        return self._array().shape if measure is None else measure(self._value)

    @property
    def element_type(self) -> NDArrayType:
        """The type of the elements. `WrongTypeError` if it is one that a `Data` cannot hold."""
        return array_type(self._array().dtype)

    @overload
    def get_as(self, target: type[T]) -> T: ...
    @overload
    def get_as(self, target: str | ArrayFormat) -> Any: ...
    def get_as(self, target: Any) -> Any:
        """The array as something else: the object itself if it is that already.

        `target` is a class (`numpy.ndarray`, `list`, `bytes`, `memoryview`, `array.array`, `torch.Tensor`,
        `pyarrow.Array`, `pyarrow.Tensor`, `SerializedNDArray`), the name of a form (`"torch"`), a text that describes
        a format (`"float32, C order, little-endian"`) or an `ArrayFormat`.

        Raises `DataError` if there is no way, `MissingPackageError` if a package is missing.
        """
        return array_conversions().convert(self._value, self._form, target)

    def can_get_as(self, target: Any) -> bool:
        """Whether there is a converter, or two, to `target`. That this array's values fit is not looked at."""
        conversions = array_conversions()
        try:
            conversions.route(self._form, conversions.wanted(target))
        except DataError:
            return False
        return True

    def as_data_value(self) -> Array:
        """The value that a `Data` keeps: the numpy array."""
        return self._array()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NDArray):
            return NotImplemented
        return SerializedNDArray.of(self._array()) == SerializedNDArray.of(other._array())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"NDArray({self._form}, {type(self._value).__name__})"

    def _array(self) -> Array:
        array: Array = self.get_as(np.ndarray)
        return array
