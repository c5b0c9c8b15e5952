"""Runs IMAGE_TO_NDARRAY."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn, Rows
from pipelines.data.data import Data
from pipelines.data.result import Result
from pipelines.data.views import View
from pipelines.errors import DataError, RowsFailed, StreamerError
from pipelines.runners.forms import Form, Forms, ImageForm
from pipelines.runners.images.fitting import crop_region
from pipelines.runners.images.imagearrays import (
    Picture,
    form_of,
    lost_detail,
    output_size,
    prepared,
    shape_of,
    size_of,
    stacked,
    viewed,
)
from pipelines.runners.images.imagecolumns import image_keys, image_values, of_key, over_parts
from pipelines.runners.images.outputmemory import OutputMemory
from pipelines.runners.images.scaling import cast
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.images.imagetondarray import ImageToNDArray, ImageToNDArrayConfig
from pipelines.values import Image
from pipelines.values.ndarray import Array


class ImageToNDArrayRunner(Runner):
    """Replaces images by arrays, all images of a batch that end in one size at once.

    A column of single images that end in one size becomes a dense column `(N, ...)`. Fails a row that has no image,
    whose value is not an image, or whose list of images the configuration does not say how to handle.
    """

    keeps_rows: ClassVar[bool] = True
    needs_all: ClassVar[bool] = True

    def __init__(self, step: ImageToNDArray, context: OpenContext) -> None:
        self._step = step
        self.keeps_keys = step.keep_other_values  # type: ignore[misc]
        self._config = step.config or ImageToNDArrayConfig()
        self._memory = OutputMemory()
        self._keys = step.image_names or None
        self._names = step.output_names or None
        if self._keys is not None and self._names is not None and len(self._keys) != len(self._names):
            raise StreamerError(
                f'IMAGE_TO_NDARRAY: "keys" has {len(self._keys)} names and "outputNames" {len(self._names)}; '
                "there must be as many, or no outputNames to keep the images' own"
            )

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._keys is None else frozenset(self._keys)

    @property
    def gives(self) -> frozenset[str] | None:
        # Images are gone where arrays have other names.
        if self._names is not None and (self._keys is None or self.keeps_keys):
            return None
        if self._keys is None:
            # Arrays have the keys of the images, whichever those are.
            return frozenset() if self.keeps_keys else None
        return frozenset(self._names or self._keys)

    @property
    def notes(self) -> Sequence[str]:
        lost = lost_detail(self._config)
        return () if lost is None else (lost,)

    def forms(self, given: Forms) -> Forms:
        images = [key for key, form in given.items() if isinstance(form, ImageForm)]
        made: dict[str, Form] = {}
        for key, name in self._renamed(images):
            if (form := form_of(self._config, lists=key not in images)) is not None:
                made[name] = form
        if not self.keeps_keys:
            return made
        others = {key: form for key, form in given.items() if key not in images and key not in (self._keys or ())}
        return {**others, **made}

    def _renamed(self, images: list[str]) -> Iterable[tuple[str | None, str]]:
        """The keys of images, and those of their arrays, where `images` are known to be some; `None`: any image."""
        if self._keys is not None:
            return zip(self._keys, self._names or self._keys, strict=True)
        if self._names is None:
            return zip(images, images, strict=True)
        # A record with more images than names fails.
        return [(images[0] if images else None, self._names[0])] if len(self._names) == 1 else []

    def run_batch(self, batch: Batch) -> Result:
        return Result(over_parts(batch, self._parts(batch), self._converted))

    def _parts(self, batch: Batch) -> Iterable[tuple[Rows, Batch, list[str]]]:
        if self._keys is not None:
            return [(np.arange(batch.size, dtype=np.int64), batch, list(self._keys))]
        return image_keys(batch, lists=self._config.list_handling != "NONE")

    def _converted(self, batch: Batch, keys: list[str]) -> Batch:
        names = self._output_names(batch, keys)
        images = {key: image_values(batch, key) for key in keys}
        made = {name: self._column(images[key], key) for key, name in zip(keys, names, strict=True)}
        others: dict[str, Column] = {}
        if self._step.keep_other_values:
            gone = {*keys, *made}
            others = {key: column for key, column in batch.columns.items() if key not in gone}
        result = batch.select({**made, **others}).with_views(self._views(batch, images))
        if not self._step.metadata:
            return result
        metadata = self._metadata(batch, list(zip(keys, names, strict=True)), images)
        return Batch(
            result.columns,
            result.size,
            rows=result.rows,
            splits=result.splits,
            metadata=metadata,
            origin=result.origin,
            views=result.views,
        )

    def _views(self, batch: Batch, images: dict[str, list[Any]]) -> list[View | None]:
        """What the arrays of each row show; `None` where images of a row differ in that, or are lists."""
        by_size: dict[tuple[int, int], View] = {}

        def view(image: Any) -> View | None:
            if not isinstance(image, Image):
                return None
            size = image.width, image.height
            if size not in by_size:
                by_size[size] = viewed(image, self._config)
            return by_size[size]

        columns = [[view(image) for image in column] for column in images.values()]
        if len(columns) == 1:
            return columns[0]
        return [views[0] if len(set(views)) == 1 else None for views in zip(*columns, strict=True)]

    def _output_names(self, batch: Batch, keys: list[str]) -> Sequence[str]:
        if not keys:
            raise _everyone(batch, "the record has no image to convert (with listHandling also lists of images count)")
        if self._names is None:
            return keys
        if len(self._names) != len(keys):
            raise _everyone(
                batch,
                f'"outputNames" has {len(self._names)} names, but the record has {len(keys)} images: '
                f'{", ".join(keys)}; say which to convert with "keys"',
            )
        return self._names

    def _column(self, values: list[Any], key: str) -> Column:
        self._check_lists(values, key)
        pictures, failures = self._pictures(values, key)
        if failures:
            raise RowsFailed(failures)
        arrays = _by_shape(pictures, self._config, self._memory)
        if isinstance(arrays, np.ndarray) and len(arrays) == len(values) and all(isinstance(v, Image) for v in values):
            return DenseColumn(arrays[:, np.newaxis] if self._config.include_minibatch_dim else arrays)
        following = iter(arrays)
        made: list[Any] = []
        for row, value in enumerate(values):
            if isinstance(value, Image):
                made.append(self._single(next(following)))
                continue
            try:
                made.append(self._listed([next(following) for _ in self._wanted(value)]))
            except DataError as error:
                failures[row] = of_key(error, key)
        if failures:
            raise RowsFailed(failures)
        return Column.of(made)

    def _check_lists(self, values: list[Any], key: str) -> None:
        if self._config.list_handling != "NONE":
            return
        error = DataError(f'"{key}" is a list of images; set "listHandling" to BATCH, LIST_OUT or FIRST')
        if failures := {row: error for row, value in enumerate(values) if not isinstance(value, Image)}:
            raise RowsFailed(dict(failures))

    def _wanted(self, value: Any) -> list[Image]:
        if isinstance(value, Image):
            return [value]
        images: list[Image] = value
        return images[:1] if self._config.list_handling == "FIRST" else images

    def _pictures(self, values: list[Any], key: str) -> tuple[list[Picture], dict[int, Exception]]:
        pictures: list[Picture] = []
        failures: dict[int, Exception] = {}
        for row, value in enumerate(values):
            try:
                pictures.extend([prepared(image, self._config) for image in self._wanted(value)])
            except StreamerError as error:
                failures[row] = of_key(error, key)
        return pictures, failures

    def _single(self, array: Array) -> Array:
        return array[np.newaxis] if self._config.include_minibatch_dim else array

    def _listed(self, arrays: list[Array]) -> Any:
        handling = self._config.list_handling
        if handling == "LIST_OUT":
            return [self._single(array) for array in arrays]
        if not arrays:
            return self._empty()
        if handling == "FIRST" or len(arrays) == 1:
            return self._single(arrays[0])
        shapes = dict.fromkeys(array.shape for array in arrays)
        if len(shapes) > 1:
            raise DataError(
                f"the images of a list give arrays of the shapes {', '.join(str(list(shape)) for shape in shapes)}, "
                'which make no batch; give "height" and "width"'
            )
        return np.stack(arrays)

    def _empty(self) -> Array:
        config = self._config
        if config.height is None or config.width is None:
            raise DataError('an empty list of images has no size; give "height" and "width"')
        if config.list_handling == "FIRST" and not config.include_minibatch_dim:
            raise DataError("an empty list has no first image")
        return cast(np.zeros((0, *shape_of(config.height, config.width, config)), np.uint8), config.data_type)

    def _metadata(
        self, batch: Batch, names: list[tuple[str, str]], images: dict[str, list[Any]]
    ) -> list[Data | None] | None:
        metadata: list[Data | None] = [None] * batch.size if batch.metadata is None else list(batch.metadata)
        for row in range(batch.size):
            single = [(key, name, images[key][row]) for key, name in names if isinstance(images[key][row], Image)]
            if single:
                metadata[row] = Data({self._step.metadata_key: _described(single, self._config)})
        return metadata


def _by_shape(pictures: list[Picture], config: ImageToNDArrayConfig, memory: OutputMemory) -> Array | list[Array]:
    """The array of each picture: one array of all if they have one size."""
    sizes: dict[tuple[int, int], list[int]] = {}
    for place, picture in enumerate(pictures):
        sizes.setdefault(size_of(picture), []).append(place)
    if len(sizes) == 1:
        return stacked(pictures, config, memory.empty)
    arrays: list[Any] = [None] * len(pictures)
    for places in sizes.values():
        for place, array in zip(places, stacked([pictures[index] for index in places], config), strict=True):
            arrays[place] = array
    return arrays


def _described(single: list[tuple[str, str, Image]], config: ImageToNDArrayConfig) -> Data:
    regions = []
    for _, _, image in single:
        height, width = output_size(image, config)
        regions.append(crop_region(image.width, image.height, width, height, config.aspect_ratio_handling))
    columns: dict[str, list[Any]] = {
        "in_name": [key for key, _, _ in single],
        "out_name": [name for _, name, _ in single],
        "image_height": [image.height for _, _, image in single],
        "image_width": [image.width for _, _, image in single],
        "crop_region": regions,
    }
    return Data({key: values[0] if len(single) == 1 else values for key, values in columns.items()})


def _everyone(batch: Batch, text: str) -> RowsFailed:
    return RowsFailed(dict.fromkeys(range(batch.size), DataError(text)))
