"""The values that a `Data` holds, besides Python's own."""

from pipelines.values.buffer import ByteBuffer
from pipelines.values.conversion.arrayconverters import array_conversions
from pipelines.values.conversion.convert import Converter, Factory
from pipelines.values.conversion.formats import ArrayFormat, ImageFormat
from pipelines.values.conversion.holder import NDArray
from pipelines.values.conversion.imageconverters import image_conversions
from pipelines.values.geometry import BoundingBox, Point
from pipelines.values.image import Image
from pipelines.values.lists import TypedList, element_type, list_to_array
from pipelines.values.native import native
from pipelines.values.ndarray import ByteOrder, NDArrayType
from pipelines.values.serialized import SerializedNDArray
from pipelines.values.valuetype import ValueType, type_of

__all__ = [
    "ArrayFormat",
    "BoundingBox",
    "ByteBuffer",
    "ByteOrder",
    "Converter",
    "Factory",
    "Image",
    "ImageFormat",
    "NDArray",
    "NDArrayType",
    "Point",
    "SerializedNDArray",
    "TypedList",
    "ValueType",
    "array_conversions",
    "element_type",
    "image_conversions",
    "list_to_array",
    "native",
    "type_of",
]
