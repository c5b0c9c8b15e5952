"""Splits the binary part of a body into the data of its tensors."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.codecs.inference.tensors import Tensor
from pipelines.errors import WireError


def sections(tensors: Sequence[Tensor], rest: memoryview, what: str) -> list[memoryview | None]:
    """The data of each tensor in `rest`, the bytes behind the JSON of a body; `None` for one that has them in the JSON.

    Raises `WireError` if the sizes do not add up to these bytes.
    """
    if len(tensors) == 1 and tensors[0].size == len(rest):
        return [rest]
    total = sum(tensor.size or 0 for tensor in tensors)
    if total != len(rest):
        raise WireError(
            f"the binary data of the {what} would be {total} bytes by binary_data_size, "
            f"and {len(rest)} bytes follow its JSON"
        )
    parts: list[memoryview | None] = []
    at = 0
    for tensor in tensors:
        if tensor.size is None:
            parts.append(None)
        else:
            parts.append(rest[at : at + tensor.size])
            at += tensor.size
    return parts
