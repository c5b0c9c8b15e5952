"""Tensors: typed access to memory, element by element and part by part, without copies. No arithmetic: that is numpy's.

`view` and `writable` look into memory that is there, `dense` and `Slots` let an initialiser write where the tensor will
stay; `strings` and its kin hold text, `sparse` few elements of many, `ragged` rows of any length. docs/tensors.md shows
them all.
"""

from pipelines.tensors import index
from pipelines.tensors.access import Tensor
from pipelines.tensors.carry import from_value
from pipelines.tensors.create import Slots, dense, view, writable
from pipelines.tensors.errors import BoundsError, RankError, ReadOnlyError, ReleasedError
from pipelines.tensors.index import at, even, excl, incl, mod, odd
from pipelines.tensors.ragged import RaggedTensor, RaggedWriter, ragged, ragged_string
from pipelines.tensors.sparse import SparseTensor, SparseWriter, sparse, sparse_string
from pipelines.tensors.strings import (
    StringView,
    WritableStrings,
    dense_string,
    packed_strings,
    read_strings,
    string_view,
    strings,
)
from pipelines.tensors.view import TensorView, WritableView

__all__ = [
    "BoundsError",
    "RaggedTensor",
    "RaggedWriter",
    "RankError",
    "ReadOnlyError",
    "ReleasedError",
    "Slots",
    "SparseTensor",
    "SparseWriter",
    "StringView",
    "Tensor",
    "TensorView",
    "WritableStrings",
    "WritableView",
    "at",
    "dense",
    "dense_string",
    "even",
    "excl",
    "from_value",
    "incl",
    "index",
    "mod",
    "odd",
    "packed_strings",
    "ragged",
    "ragged_string",
    "read_strings",
    "sparse",
    "sparse_string",
    "string_view",
    "strings",
    "view",
    "writable",
]
