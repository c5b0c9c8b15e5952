"""`tensor`: the payload is the elements of one array, whose dtype and shape both sides know."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Final, Literal, TypeGuard

import numpy as np
import numpy.typing as npt
from pydantic import Field

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import CodecConfig
from connectors.codecs.rows import decoded_column, encode_values, only_column, payload_bytes
from connectors.records import Records
from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn
from pipelines.errors import WireError
from pipelines.steps.config import Key
from pipelines.values import ValueType, type_of
from pipelines.values.ndarray import MAX_RANK, array_type, from_buffer, to_buffer

DType = Literal[
    "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"
]
"""Element types that every side knows by one name: numpy's."""


class TensorConfig(CodecConfig):
    """Payloads that are bare arrays of one dtype and shape, in C order: no keys, no lengths, nothing to parse."""

    built_by: ClassVar[str] = "connectors.codecs.tensor:Tensor"

    type: Literal["tensor"] = "tensor"
    """The type of codec."""
    dtype: DType
    """Type of the elements."""
    shape: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=MAX_RANK - 1)]
    """Lengths of the axes: `[28, 28]`; `[]` for a single number."""
    key: Key = "x"
    """The key of the array. If a result has only one value, that is written whatever its key."""
    byte_order: Literal["little", "big"] = "little"
    """Order of the bytes of an element."""


class Tensor(Codec):
    """One dense column; a payload of another length fails."""

    opens_images: ClassVar[bool] = False

    def __init__(self, config: TensorConfig) -> None:
        self._config = config
        self._dtype: Final[np.dtype[Any]] = np.dtype(config.dtype)
        self._size = math.prod(config.shape) * self._dtype.itemsize

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """All arrays as one `(N, *shape)`."""
        payloads, rows = [], []
        failed: dict[int, Exception] = {}
        for row, payload in enumerate(records.values):
            if payload is None:
                continue
            try:
                payloads.append(self._checked(payload))
            except WireError as error:
                failed[row] = error
            else:
                rows.append(row)
        shape = (len(payloads), *self._config.shape)
        array = from_buffer(b"".join(payloads), shape, array_type(self._dtype), self._config.byte_order)
        return decoded_column(records, first, self._config.key, DenseColumn(array), rows, failed)

    def encode(self, batch: Batch) -> Encoded:
        """The elements of each row's array, which must be of this dtype and shape."""
        whole = self._whole(batch)
        if whole is None:
            return encode_values(batch, self._config.key, "tensor", self._written)
        buffer, size = to_buffer(whole, self._config.byte_order), self._size
        return Encoded([buffer[row * size : (row + 1) * size] for row in range(batch.size)], {})

    def _checked(self, payload: object) -> bytes:
        raw = payload_bytes(payload, "tensor")
        if len(raw) != self._size:
            raise WireError(
                f"an array of {self._config.dtype} {list(self._config.shape)} has {self._size} bytes, "
                f"the payload has {len(raw)}"
            )
        return raw

    def _whole(self, batch: Batch) -> npt.NDArray[Any] | None:
        """The array of all rows at once, if there is one that fits."""
        column = only_column(batch, self._config.key)
        return column.array if self._fits(column) else None

    def _fits(self, column: Column | None) -> TypeGuard[DenseColumn]:
        return (
            isinstance(column, DenseColumn)
            and column.type is ValueType.NDARRAY
            and column.mask is None
            and column.array.dtype == self._dtype
            and column.array.shape[1:] == self._config.shape
        )

    def _written(self, value: Any, key: str) -> bytes:
        kind = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type_of(value).name
        if isinstance(value, np.ndarray) and value.dtype == self._dtype and value.shape == self._config.shape:
            return to_buffer(value, self._config.byte_order)
        raise WireError(
            f'the tensor codec writes {self._config.dtype}{list(self._config.shape)}, but "{key}" is {kind}; '
            "change dtype and shape of the codec, or use protodata"
        )
