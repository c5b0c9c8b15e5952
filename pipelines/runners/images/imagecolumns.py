"""Finds the images of a batch that a step works on: by key, or as the only image of each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, ObjectColumn, Rows
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.errors import DataError, RowsFailed, StreamerError, WrongTypeError
from pipelines.runners.images.onlykey import only_key
from pipelines.runners.models.arrays import array_column
from pipelines.values import Image, ValueType, type_of
from pipelines.values.lists import element_type

Keys = TypeVar("Keys")


def is_images(value: Any, lists: bool = True) -> bool:
    """Whether a value is an image or, if `lists`, a list of images or an empty list of that element type."""
    if isinstance(value, Image):
        return True
    return lists and isinstance(value, list) and element_type(value) is ValueType.IMAGE


def image_keys(batch: Batch, *, lists: bool) -> Iterator[tuple[Rows, Batch, list[str]]]:
    """The parts of a batch whose records have images under the same keys: positions, rows, keys.

    Usually one part, all rows. The keys of a part may be empty. `lists`: lists of images count too.
    """
    everyone = np.arange(batch.size, dtype=np.int64)
    columns = {key: _decoded(column) for key, column in batch.columns.items()}
    if not batch.size or all(is_plain(column) for column in columns.values()):
        yield everyone, batch, [key for key, column in columns.items() if column.type is ValueType.IMAGE]
        return
    keys_of: list[list[str]] = [[] for _ in range(batch.size)]
    failed: dict[int, Exception] = {}
    for key, column in columns.items():
        for row, value in column.cells(failed):
            if is_images(value, lists):
                keys_of[row].append(key)
    if failed:
        raise RowsFailed(failed)
    rows_by_keys: dict[tuple[str, ...], list[int]] = {}
    for row, keys in enumerate(keys_of):
        rows_by_keys.setdefault(tuple(keys), []).append(row)
    parts = [np.array(positions, np.int64) for positions in rows_by_keys.values()]
    for part, rows, keys in zip(parts, batch.divided(parts), map(list, rows_by_keys), strict=True):
        yield part, rows, keys


def only_image_keys(batch: Batch, key: str | None) -> Iterator[tuple[Rows, Batch, str]]:
    """The parts of a batch with the key of their images: `key`, or that of the only image or list of images.

    Raises `RowsFailed` for records that have none or several.
    """
    if key is not None:
        yield np.arange(batch.size, dtype=np.int64), batch, key
        return
    parts: list[tuple[Rows, Batch, str]] = []
    failures: dict[int, Exception] = {}
    for positions, part, keys in image_keys(batch, lists=True):
        try:
            parts.append((positions, part, only_key(keys, "Image", setting="imageName")))
        except DataError as error:
            failures.update(dict.fromkeys(positions.tolist(), error))
    if failures:
        raise RowsFailed(failures)
    yield from parts


def image_values(batch: Batch, key: str) -> list[Any]:
    """The values of `key`, each an image or a list of images. Raises `RowsFailed` for rows that have something else."""
    column = array_column(batch, key)
    values = column.values()
    if column.type is ValueType.IMAGE:
        return values
    # An empty list without an element type is taken as one of images.
    failures: dict[int, Exception] = {
        row: WrongTypeError(
            f'Value has wrong type for key "{key}": requested type IMAGE or a list of them, actual type {_named(value)}'
        )
        for row, value in enumerate(values)
        if not is_images(value) and not (isinstance(value, list) and not value)
    }
    if failures:
        raise RowsFailed(failures)
    return values


def each(values: Sequence[Any], key: str, convert: Callable[[int, Image], Any]) -> list[Any]:
    """`convert(row, image)` of every image, those in lists one by one.

    Raises `RowsFailed` for rows where it raises, with errors that name `key`.
    """
    converted: list[Any] = []
    failures: dict[int, Exception] = {}
    for row, value in enumerate(values):
        try:
            if isinstance(value, Image):
                converted.append(convert(row, value))
            else:
                converted.append([convert(row, image) for image in value])
        except StreamerError as error:
            failures[row] = of_key(error, key)
    if failures:
        raise RowsFailed(failures)
    return converted


def of_key(error: StreamerError, key: str) -> StreamerError:
    """The error of a value with its key."""
    return type(error)(f'key "{key}": {error}') if isinstance(error, DataError) else error


def images_column(images: list[Any]) -> Column:
    """A column of images, or of images and lists of them."""
    alone = all(isinstance(image, Image) for image in images)
    return ObjectColumn(images, ValueType.IMAGE) if alone else Column.of(images)


def over_parts(batch: Batch, parts: Iterable[tuple[Rows, Batch, Keys]], run: Callable[[Batch, Keys], Batch]) -> Batch:
    """`run(part, keys)` of every part, as one batch in the order of `batch`. Raises `RowsFailed` by its rows."""
    done: list[tuple[Rows, Batch]] = []
    failures: dict[int, Exception] = {}
    for positions, part, keys in parts:
        try:
            done.append((positions, run(part, keys)))
        except RowsFailed as error:
            failures.update({int(positions[row]): reason for row, reason in error.failures.items()})
    if failures:
        raise RowsFailed(failures)
    return _joined(done, batch)


def _joined(parts: Sequence[tuple[Rows, Batch]], source: Batch) -> Batch:
    if not parts:
        return source
    if len(parts) == 1:
        return parts[0][1]
    together = Batch.concat([part for _, part in parts])
    order = np.argsort(np.concatenate([positions for positions, _ in parts]), kind="stable")
    return together.take(order)


def _decoded(column: Column) -> Column:
    # A rare key stays rare: its values are looked at one by one.
    return column if isinstance(column, SparseColumn) else column.decoded()


def is_plain(column: Column) -> bool:
    """Whether all rows have a value of the column's type, and no list: no row needs to be looked at."""
    if isinstance(column, SparseColumn):
        return False
    return column.mask is None and column.type not in (None, ValueType.LIST)


def _named(value: Any) -> str:
    if value is MISSING:
        return "none"
    if isinstance(value, list):
        return f"list of {element_type(value).name}" if value else "LIST"
    return type_of(value).name
