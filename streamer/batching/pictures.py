"""Batches cut into parts, so that the images which are run together do not take too many bytes once they are decoded.

A file of 12 kB can hold an image of 12 MB, or of 300. Sizes are read from the headers of image files: none is decoded.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.data.data import Data
from pipelines.data.spans import Spans
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DataError, StepError, StreamerError
from pipelines.values import Image
from streamer.agent.decodedbatch import DecodedBatch
from streamer.batching.cutting import cut, ranges_of

Sizes = npt.NDArray[np.int64]

SMALLEST_ENTRY: Final = 45
"""Bytes of an undecoded entry below which it cannot hold the header of a picture."""


def in_parts(decoded: DecodedBatch, most: int, *, undecoded: bool) -> list[DecodedBatch]:
    """The same batch in parts whose images take at most `most` bytes each, once they are decoded.

    Images in lists and in nested `Data` count; those among values that are not decoded yet count if `undecoded`. A
    record whose image takes more is a part of its own; a record with several images that take more fails.
    """
    sizes = picture_bytes(decoded.batch, undecoded=undecoded)
    if sizes is None:
        return [decoded]
    decoded.picture_bytes = int(sizes.sum())
    if decoded.picture_bytes <= most:
        return [decoded]
    large = np.flatnonzero(sizes > max(most, Image.max_pixels * 3))
    if len(large):
        failed = {int(decoded.batch.rows[row]): _too_large(int(sizes[row]), most) for row in large.tolist()}
        batch = decoded.batch.take(np.delete(np.arange(len(sizes)), large))
        decoded = DecodedBatch(
            decoded.source,
            decoded.records,
            decoded.first,
            batch,
            {**decoded.failed, **failed},
            decoded.tombstones,
            decoded.passed,
            decoded.stamps,
            arrivals=decoded.arrivals,
            picture_bytes=decoded.picture_bytes,
        )
        sizes = np.delete(sizes, large)
    return list(cut(decoded, ranges_of(sizes, most)))


def picture_bytes(batch: Batch, *, undecoded: bool) -> Sizes | None:
    """The decoded size of the images of each row in bytes, `int64 (N,)`; `None` if there are none.

    Images that cannot be decoded, or have more than `Image.max_pixels`, count 0: the step that opens them fails.
    """
    sizes: Sizes | None = None
    for column in batch.columns.values():
        if not _may_have_pictures(column, undecoded=undecoded):
            continue
        for row, value in column.cells({}):
            size = _size(value)
            if size:
                sizes = np.zeros(batch.size, np.int64) if sizes is None else sizes
                sizes[row] += size
    return sizes


def _too_large(size: int, most: int) -> StepError:
    error = DataError(
        f"the pictures of the record take {size} bytes once they are decoded, limits.pixels is {most}; raise that, or "
        "send fewer pictures in one record"
    )
    return StepError.of("decode", error)


def _may_have_pictures(column: Column, *, undecoded: bool) -> bool:
    inner = column.column if isinstance(column, SparseColumn) else column
    if not inner.may_hold_images or not isinstance(inner, WireColumn):
        return inner.may_hold_images
    return undecoded and _longest(inner) >= SMALLEST_ENTRY


def _longest(column: WireColumn) -> int:
    entries = column.entries
    if isinstance(entries, Spans):
        return int(entries.lengths.max(initial=0))
    return max((len(entry) for entry in entries if entry is not None), default=0)


def _size(value: Any) -> int:
    if isinstance(value, Image):
        return _pixels(value)
    if isinstance(value, list):
        return sum(map(_size, value)) if value and isinstance(value[0], (Image, Data, list)) else 0
    return sum(map(_size, value.values())) if isinstance(value, Data) else 0


def _pixels(image: Image) -> int:
    try:
        pixels = image.width * image.height
        return 0 if pixels > image.max_pixels else pixels * image.channels
    except StreamerError:
        return 0
