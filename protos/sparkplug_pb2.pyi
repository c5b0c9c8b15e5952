from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[DataType]
    INT8: _ClassVar[DataType]
    INT16: _ClassVar[DataType]
    INT32: _ClassVar[DataType]
    INT64: _ClassVar[DataType]
    UINT8: _ClassVar[DataType]
    UINT16: _ClassVar[DataType]
    UINT32: _ClassVar[DataType]
    UINT64: _ClassVar[DataType]
    FLOAT: _ClassVar[DataType]
    DOUBLE: _ClassVar[DataType]
    BOOLEAN: _ClassVar[DataType]
    STRING: _ClassVar[DataType]
    DATETIME: _ClassVar[DataType]
    TEXT: _ClassVar[DataType]
    UUID: _ClassVar[DataType]
    DATASET: _ClassVar[DataType]
    BYTES: _ClassVar[DataType]
    FILE: _ClassVar[DataType]
    TEMPLATE: _ClassVar[DataType]
    PROPERTYSET: _ClassVar[DataType]
    PROPERTYSETLIST: _ClassVar[DataType]
    INT8_ARRAY: _ClassVar[DataType]
    INT16_ARRAY: _ClassVar[DataType]
    INT32_ARRAY: _ClassVar[DataType]
    INT64_ARRAY: _ClassVar[DataType]
    UINT8_ARRAY: _ClassVar[DataType]
    UINT16_ARRAY: _ClassVar[DataType]
    UINT32_ARRAY: _ClassVar[DataType]
    UINT64_ARRAY: _ClassVar[DataType]
    FLOAT_ARRAY: _ClassVar[DataType]
    DOUBLE_ARRAY: _ClassVar[DataType]
    BOOLEAN_ARRAY: _ClassVar[DataType]
    STRING_ARRAY: _ClassVar[DataType]
    DATETIME_ARRAY: _ClassVar[DataType]
UNKNOWN: DataType
INT8: DataType
INT16: DataType
INT32: DataType
INT64: DataType
UINT8: DataType
UINT16: DataType
UINT32: DataType
UINT64: DataType
FLOAT: DataType
DOUBLE: DataType
BOOLEAN: DataType
STRING: DataType
DATETIME: DataType
TEXT: DataType
UUID: DataType
DATASET: DataType
BYTES: DataType
FILE: DataType
TEMPLATE: DataType
PROPERTYSET: DataType
PROPERTYSETLIST: DataType
INT8_ARRAY: DataType
INT16_ARRAY: DataType
INT32_ARRAY: DataType
INT64_ARRAY: DataType
UINT8_ARRAY: DataType
UINT16_ARRAY: DataType
UINT32_ARRAY: DataType
UINT64_ARRAY: DataType
FLOAT_ARRAY: DataType
DOUBLE_ARRAY: DataType
BOOLEAN_ARRAY: DataType
STRING_ARRAY: DataType
DATETIME_ARRAY: DataType

class Payload(_message.Message):
    __slots__ = ("timestamp", "metrics", "seq", "uuid", "body")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    seq: int
    uuid: str
    body: bytes
    def __init__(self, timestamp: _Optional[int] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ..., seq: _Optional[int] = ..., uuid: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("name", "alias", "timestamp", "datatype", "is_historical", "is_transient", "is_null", "int_value", "long_value", "float_value", "double_value", "boolean_value", "string_value", "bytes_value", "dataset_value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DATATYPE_FIELD_NUMBER: _ClassVar[int]
    IS_HISTORICAL_FIELD_NUMBER: _ClassVar[int]
    IS_TRANSIENT_FIELD_NUMBER: _ClassVar[int]
    IS_NULL_FIELD_NUMBER: _ClassVar[int]
    INT_VALUE_FIELD_NUMBER: _ClassVar[int]
    LONG_VALUE_FIELD_NUMBER: _ClassVar[int]
    FLOAT_VALUE_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    BYTES_VALUE_FIELD_NUMBER: _ClassVar[int]
    DATASET_VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    alias: int
    timestamp: int
    datatype: int
    is_historical: bool
    is_transient: bool
    is_null: bool
    int_value: int
    long_value: int
    float_value: float
    double_value: float
    boolean_value: bool
    string_value: str
    bytes_value: bytes
    dataset_value: DataSet
    def __init__(self, name: _Optional[str] = ..., alias: _Optional[int] = ..., timestamp: _Optional[int] = ..., datatype: _Optional[int] = ..., is_historical: bool = ..., is_transient: bool = ..., is_null: bool = ..., int_value: _Optional[int] = ..., long_value: _Optional[int] = ..., float_value: _Optional[float] = ..., double_value: _Optional[float] = ..., boolean_value: bool = ..., string_value: _Optional[str] = ..., bytes_value: _Optional[bytes] = ..., dataset_value: _Optional[_Union[DataSet, _Mapping]] = ...) -> None: ...

class DataSet(_message.Message):
    __slots__ = ("num_of_columns", "columns", "types", "rows")
    class Value(_message.Message):
        __slots__ = ("int_value", "long_value", "float_value", "double_value", "boolean_value", "string_value")
        INT_VALUE_FIELD_NUMBER: _ClassVar[int]
        LONG_VALUE_FIELD_NUMBER: _ClassVar[int]
        FLOAT_VALUE_FIELD_NUMBER: _ClassVar[int]
        DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
        BOOLEAN_VALUE_FIELD_NUMBER: _ClassVar[int]
        STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
        int_value: int
        long_value: int
        float_value: float
        double_value: float
        boolean_value: bool
        string_value: str
        def __init__(self, int_value: _Optional[int] = ..., long_value: _Optional[int] = ..., float_value: _Optional[float] = ..., double_value: _Optional[float] = ..., boolean_value: bool = ..., string_value: _Optional[str] = ...) -> None: ...
    class Row(_message.Message):
        __slots__ = ("elements",)
        ELEMENTS_FIELD_NUMBER: _ClassVar[int]
        elements: _containers.RepeatedCompositeFieldContainer[DataSet.Value]
        def __init__(self, elements: _Optional[_Iterable[_Union[DataSet.Value, _Mapping]]] = ...) -> None: ...
    NUM_OF_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    num_of_columns: int
    columns: _containers.RepeatedScalarFieldContainer[str]
    types: _containers.RepeatedScalarFieldContainer[int]
    rows: _containers.RepeatedCompositeFieldContainer[DataSet.Row]
    def __init__(self, num_of_columns: _Optional[int] = ..., columns: _Optional[_Iterable[str]] = ..., types: _Optional[_Iterable[int]] = ..., rows: _Optional[_Iterable[_Union[DataSet.Row, _Mapping]]] = ...) -> None: ...
