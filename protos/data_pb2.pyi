from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DataMap(_message.Message):
    __slots__ = ("mapItems", "metaData")
    class MapItemsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: DataScheme
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[DataScheme, _Mapping]] = ...) -> None: ...
    class MetaDataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: DataScheme
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[DataScheme, _Mapping]] = ...) -> None: ...
    MAPITEMS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    mapItems: _containers.MessageMap[str, DataScheme]
    metaData: _containers.MessageMap[str, DataScheme]
    def __init__(self, mapItems: _Optional[_Mapping[str, DataScheme]] = ..., metaData: _Optional[_Mapping[str, DataScheme]] = ...) -> None: ...

class DataScheme(_message.Message):
    __slots__ = ("sValue", "bValue", "iValue", "boolValue", "doubleValue", "listValue", "ndValue", "imValue", "boxValue", "metaData", "pointValue", "listType", "type")
    class ValueType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NDARRAY: _ClassVar[DataScheme.ValueType]
        STRING: _ClassVar[DataScheme.ValueType]
        BYTES: _ClassVar[DataScheme.ValueType]
        IMAGE: _ClassVar[DataScheme.ValueType]
        DOUBLE: _ClassVar[DataScheme.ValueType]
        INT64: _ClassVar[DataScheme.ValueType]
        BOOLEAN: _ClassVar[DataScheme.ValueType]
        BOUNDING_BOX: _ClassVar[DataScheme.ValueType]
        DATA: _ClassVar[DataScheme.ValueType]
        LIST: _ClassVar[DataScheme.ValueType]
        POINT: _ClassVar[DataScheme.ValueType]
        BYTEBUFFER: _ClassVar[DataScheme.ValueType]
    NDARRAY: DataScheme.ValueType
    STRING: DataScheme.ValueType
    BYTES: DataScheme.ValueType
    IMAGE: DataScheme.ValueType
    DOUBLE: DataScheme.ValueType
    INT64: DataScheme.ValueType
    BOOLEAN: DataScheme.ValueType
    BOUNDING_BOX: DataScheme.ValueType
    DATA: DataScheme.ValueType
    LIST: DataScheme.ValueType
    POINT: DataScheme.ValueType
    BYTEBUFFER: DataScheme.ValueType
    SVALUE_FIELD_NUMBER: _ClassVar[int]
    BVALUE_FIELD_NUMBER: _ClassVar[int]
    IVALUE_FIELD_NUMBER: _ClassVar[int]
    BOOLVALUE_FIELD_NUMBER: _ClassVar[int]
    DOUBLEVALUE_FIELD_NUMBER: _ClassVar[int]
    LISTVALUE_FIELD_NUMBER: _ClassVar[int]
    NDVALUE_FIELD_NUMBER: _ClassVar[int]
    IMVALUE_FIELD_NUMBER: _ClassVar[int]
    BOXVALUE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    POINTVALUE_FIELD_NUMBER: _ClassVar[int]
    LISTTYPE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    sValue: str
    bValue: bytes
    iValue: int
    boolValue: bool
    doubleValue: float
    listValue: List
    ndValue: NDArray
    imValue: Image
    boxValue: BoundingBox
    metaData: DataMap
    pointValue: Point
    listType: DataScheme.ValueType
    type: DataScheme.ValueType
    def __init__(self, sValue: _Optional[str] = ..., bValue: _Optional[bytes] = ..., iValue: _Optional[int] = ..., boolValue: bool = ..., doubleValue: _Optional[float] = ..., listValue: _Optional[_Union[List, _Mapping]] = ..., ndValue: _Optional[_Union[NDArray, _Mapping]] = ..., imValue: _Optional[_Union[Image, _Mapping]] = ..., boxValue: _Optional[_Union[BoundingBox, _Mapping]] = ..., metaData: _Optional[_Union[DataMap, _Mapping]] = ..., pointValue: _Optional[_Union[Point, _Mapping]] = ..., listType: _Optional[_Union[DataScheme.ValueType, str]] = ..., type: _Optional[_Union[DataScheme.ValueType, str]] = ...) -> None: ...

class StringList(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, list: _Optional[_Iterable[str]] = ...) -> None: ...

class Int64List(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, list: _Optional[_Iterable[int]] = ...) -> None: ...

class BooleanList(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, list: _Optional[_Iterable[bool]] = ...) -> None: ...

class DoubleList(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, list: _Optional[_Iterable[float]] = ...) -> None: ...

class ImageList(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: _containers.RepeatedCompositeFieldContainer[Image]
    def __init__(self, list: _Optional[_Iterable[_Union[Image, _Mapping]]] = ...) -> None: ...

class NDArrayList(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: _containers.RepeatedCompositeFieldContainer[NDArray]
    def __init__(self, list: _Optional[_Iterable[_Union[NDArray, _Mapping]]] = ...) -> None: ...

class BoundingBoxesList(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: _containers.RepeatedCompositeFieldContainer[BoundingBox]
    def __init__(self, list: _Optional[_Iterable[_Union[BoundingBox, _Mapping]]] = ...) -> None: ...

class PointList(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: _containers.RepeatedCompositeFieldContainer[Point]
    def __init__(self, list: _Optional[_Iterable[_Union[Point, _Mapping]]] = ...) -> None: ...

class BytesList(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, list: _Optional[_Iterable[bytes]] = ...) -> None: ...

class DataList(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: _containers.RepeatedCompositeFieldContainer[DataMap]
    def __init__(self, list: _Optional[_Iterable[_Union[DataMap, _Mapping]]] = ...) -> None: ...

class ListList(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: _containers.RepeatedCompositeFieldContainer[DataScheme]
    def __init__(self, list: _Optional[_Iterable[_Union[DataScheme, _Mapping]]] = ...) -> None: ...

class List(_message.Message):
    __slots__ = ("sList", "iList", "bList", "dList", "imList", "ndList", "bboxList", "pList", "bytesList", "dataList", "listList")
    SLIST_FIELD_NUMBER: _ClassVar[int]
    ILIST_FIELD_NUMBER: _ClassVar[int]
    BLIST_FIELD_NUMBER: _ClassVar[int]
    DLIST_FIELD_NUMBER: _ClassVar[int]
    IMLIST_FIELD_NUMBER: _ClassVar[int]
    NDLIST_FIELD_NUMBER: _ClassVar[int]
    BBOXLIST_FIELD_NUMBER: _ClassVar[int]
    PLIST_FIELD_NUMBER: _ClassVar[int]
    BYTESLIST_FIELD_NUMBER: _ClassVar[int]
    DATALIST_FIELD_NUMBER: _ClassVar[int]
    LISTLIST_FIELD_NUMBER: _ClassVar[int]
    sList: StringList
    iList: Int64List
    bList: BooleanList
    dList: DoubleList
    imList: ImageList
    ndList: NDArrayList
    bboxList: BoundingBoxesList
    pList: PointList
    bytesList: BytesList
    dataList: DataList
    listList: ListList
    def __init__(self, sList: _Optional[_Union[StringList, _Mapping]] = ..., iList: _Optional[_Union[Int64List, _Mapping]] = ..., bList: _Optional[_Union[BooleanList, _Mapping]] = ..., dList: _Optional[_Union[DoubleList, _Mapping]] = ..., imList: _Optional[_Union[ImageList, _Mapping]] = ..., ndList: _Optional[_Union[NDArrayList, _Mapping]] = ..., bboxList: _Optional[_Union[BoundingBoxesList, _Mapping]] = ..., pList: _Optional[_Union[PointList, _Mapping]] = ..., bytesList: _Optional[_Union[BytesList, _Mapping]] = ..., dataList: _Optional[_Union[DataList, _Mapping]] = ..., listList: _Optional[_Union[ListList, _Mapping]] = ...) -> None: ...

class Image(_message.Message):
    __slots__ = ("type", "data")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    type: str
    data: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, type: _Optional[str] = ..., data: _Optional[_Iterable[bytes]] = ...) -> None: ...

class NDArray(_message.Message):
    __slots__ = ("shape", "type", "array")
    class ValueType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DOUBLE: _ClassVar[NDArray.ValueType]
        FLOAT: _ClassVar[NDArray.ValueType]
        FLOAT16: _ClassVar[NDArray.ValueType]
        BFLOAT16: _ClassVar[NDArray.ValueType]
        INT64: _ClassVar[NDArray.ValueType]
        INT32: _ClassVar[NDArray.ValueType]
        INT16: _ClassVar[NDArray.ValueType]
        INT8: _ClassVar[NDArray.ValueType]
        UINT64: _ClassVar[NDArray.ValueType]
        UINT32: _ClassVar[NDArray.ValueType]
        UINT16: _ClassVar[NDArray.ValueType]
        UINT8: _ClassVar[NDArray.ValueType]
        BOOL: _ClassVar[NDArray.ValueType]
        UTF8: _ClassVar[NDArray.ValueType]
    DOUBLE: NDArray.ValueType
    FLOAT: NDArray.ValueType
    FLOAT16: NDArray.ValueType
    BFLOAT16: NDArray.ValueType
    INT64: NDArray.ValueType
    INT32: NDArray.ValueType
    INT16: NDArray.ValueType
    INT8: NDArray.ValueType
    UINT64: NDArray.ValueType
    UINT32: NDArray.ValueType
    UINT16: NDArray.ValueType
    UINT8: NDArray.ValueType
    BOOL: NDArray.ValueType
    UTF8: NDArray.ValueType
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    type: NDArray.ValueType
    array: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., type: _Optional[_Union[NDArray.ValueType, str]] = ..., array: _Optional[_Iterable[bytes]] = ...) -> None: ...

class BoundingBox(_message.Message):
    __slots__ = ("x0", "x1", "y0", "y1", "cx", "cy", "h", "w", "label", "probability", "type")
    class BoxType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CHW: _ClassVar[BoundingBox.BoxType]
        XY: _ClassVar[BoundingBox.BoxType]
    CHW: BoundingBox.BoxType
    XY: BoundingBox.BoxType
    X0_FIELD_NUMBER: _ClassVar[int]
    X1_FIELD_NUMBER: _ClassVar[int]
    Y0_FIELD_NUMBER: _ClassVar[int]
    Y1_FIELD_NUMBER: _ClassVar[int]
    CX_FIELD_NUMBER: _ClassVar[int]
    CY_FIELD_NUMBER: _ClassVar[int]
    H_FIELD_NUMBER: _ClassVar[int]
    W_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    x0: float
    x1: float
    y0: float
    y1: float
    cx: float
    cy: float
    h: float
    w: float
    label: str
    probability: float
    type: BoundingBox.BoxType
    def __init__(self, x0: _Optional[float] = ..., x1: _Optional[float] = ..., y0: _Optional[float] = ..., y1: _Optional[float] = ..., cx: _Optional[float] = ..., cy: _Optional[float] = ..., h: _Optional[float] = ..., w: _Optional[float] = ..., label: _Optional[str] = ..., probability: _Optional[float] = ..., type: _Optional[_Union[BoundingBox.BoxType, str]] = ...) -> None: ...

class Point(_message.Message):
    __slots__ = ("label", "probability", "coords")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    COORDS_FIELD_NUMBER: _ClassVar[int]
    label: str
    probability: float
    coords: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, label: _Optional[str] = ..., probability: _Optional[float] = ..., coords: _Optional[_Iterable[float]] = ...) -> None: ...
