"""The core: records as typed values, batches in columns, pipelines of steps. No bus, no HTTP, light to import."""

from pipelines import tensors
from pipelines.batch import Batch
from pipelines.columns import MISSING, Column, DenseColumn, ObjectColumn, RaggedColumn
from pipelines.data import Data
from pipelines.definition import load, loads
from pipelines.errors import (
    DataError,
    DefinitionError,
    MissingPackageError,
    ReservedKeyError,
    RowsFailed,
    StepError,
    StreamerError,
    ValueNotFoundError,
    WireError,
    WrongTypeError,
)
from pipelines.functions import batched
from pipelines.record import RecordContext
from pipelines.registry import Registry, RegistryError, RunnerFactory, default_registry
from pipelines.result import Result
from pipelines.runner import OpenContext, RowRunner, Runner, StatefulRunner
from pipelines.sequence import Sequence
from pipelines.steps import ClassifierOutput, Function, Logging, Onnx, RegressionOutput, SessionOptions, Step
from pipelines.validation import UnknownKeyWarning
from pipelines.values import (
    ArrayFormat,
    BoundingBox,
    ByteBuffer,
    Image,
    ImageFormat,
    NDArray,
    NDArrayType,
    Point,
    SerializedNDArray,
    ValueType,
)

__all__ = [
    "MISSING",
    "ArrayFormat",
    "Batch",
    "BoundingBox",
    "ByteBuffer",
    "ClassifierOutput",
    "Column",
    "Data",
    "DataError",
    "DefinitionError",
    "DenseColumn",
    "Function",
    "Image",
    "ImageFormat",
    "Logging",
    "MissingPackageError",
    "NDArray",
    "NDArrayType",
    "ObjectColumn",
    "Onnx",
    "OpenContext",
    "Point",
    "RaggedColumn",
    "RecordContext",
    "Registry",
    "RegistryError",
    "RegressionOutput",
    "ReservedKeyError",
    "Result",
    "RowRunner",
    "RowsFailed",
    "Runner",
    "RunnerFactory",
    "Sequence",
    "SerializedNDArray",
    "SessionOptions",
    "StatefulRunner",
    "Step",
    "StepError",
    "StreamerError",
    "UnknownKeyWarning",
    "ValueNotFoundError",
    "ValueType",
    "WireError",
    "WrongTypeError",
    "batched",
    "default_registry",
    "load",
    "loads",
    "tensors",
]
