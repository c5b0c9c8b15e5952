"""Fields and helpers of all steps that run a model."""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from pipelines.data.data import check_key
from pipelines.steps.config import EXTENSION, Int


def _path_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


ModelUri = Annotated[str | None, BeforeValidator(_path_text)]
"""Where a model is: a path, relative to the definition's folder, a `file:` URI, or a URL that a fetcher can get
(`pipelines.plugins.modelfiles`)."""

Place = str | os.PathLike[str] | None
"""`ModelUri` as an argument."""

Names = tuple[str, ...] | dict[str, str] | None
"""Names of inputs, or a mapping, ours: `{model's name: key of the data}`."""


def _checked(names: tuple[str, ...] | dict[str, str] | None) -> tuple[str, ...] | dict[str, str] | None:
    for key in (names.values() if isinstance(names, dict) else names) or ():
        check_key(key)
    return names


OutputNames = Annotated[Names, AfterValidator(_checked)]
"""Names of outputs, which are their keys, or such a mapping."""

WarmUp = Annotated[bool | Annotated[Int, Field(ge=0)], EXTENSION]
"""Whether, or on how many rows of zeros, a model runs while it opens."""

MaxBatch = Annotated[Annotated[Int, Field(ge=1)] | None, EXTENSION]
"""The most samples of one call."""


def placed(model_uri: Place, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a step whose model may be its one positional argument, `Onnx("model.onnx")`.

    It is passed only if given: `None` would hide a `modelUri` among the keywords.
    """
    return fields if model_uri is None else {**fields, "model_uri": model_uri}
