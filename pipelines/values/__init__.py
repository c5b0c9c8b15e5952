"""The values that a `Data` holds, besides Python's own."""

from pipelines.values.buffer import ByteBuffer
from pipelines.values.geometry import BoundingBox, Point
from pipelines.values.image import Image
from pipelines.values.lists import TypedList, element_type, list_to_array
from pipelines.values.native import native
from pipelines.values.ndarray import ByteOrder, NDArrayType
from pipelines.values.valuetype import ValueType, type_of

__all__ = [
    "BoundingBox",
    "ByteBuffer",
    "ByteOrder",
    "Image",
    "NDArrayType",
    "Point",
    "TypedList",
    "ValueType",
    "element_type",
    "list_to_array",
    "native",
    "type_of",
]
