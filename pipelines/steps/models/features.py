"""FEATURES: values of a record stacked into the array that a model takes, without code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Config, Form, Key


class Feature(Config):
    """One value of the record, and how it is encoded: `{field: hour, default: 0}`."""

    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    field: Key
    """Key of the value: a number, a bool (1 or 0), an array or a list of numbers; with `oneHot` also text."""
    default: Annotated[float, Field(allow_inf_nan=True)] | None = None
    """Number for a record that lacks the key: one number, also if other records have an array there; with `columns` it
    is repeated k times, with `oneHot` for each category. It may be NaN (`.nan` in YAML), which many models of decision
    trees take for a missing value. Without a default such a record fails."""
    size: PositiveInt | None = None
    """How many numbers the value is, if it is an array or a list: a record with another number of them fails, a default
    is repeated so often, and `streamer check` counts so many."""
    one_hot: Annotated[tuple[str | bool | int, ...], Field(min_length=1)] | None = None
    """The known categories, in order: the value becomes as many numbers, 1 at its category and 0 elsewhere."""
    unknown: Literal["fail", "zeros"] = "fail"
    """An unknown category fails its record (`fail`), or is encoded as 0 in all places (`zeros`)."""
    offset: float = 0.0
    """This is subtracted from the value: the mean, for instance."""
    scale: float = 1.0
    """By this (value - offset) is multiplied: 1 / standard deviation, for instance. The same as ONNX's operator
    Scaler."""

    @model_validator(mode="after")
    def _check_categories(self) -> Feature:
        if self.one_hot is None:
            return self
        if self.offset or self.scale != 1.0:
            raise ValueError(f'"{self.field}" has "oneHot", which gives 1 and 0: "offset" and "scale" do not apply')
        if self.size is not None:
            raise ValueError(
                f'"{self.field}" has "oneHot", and as many numbers as that has categories: leave "size" out'
            )
        given = [str(category) for category in self.one_hot]
        twice = next((category for at, category in enumerate(given) if category in given[:at]), None)
        if twice is not None:
            raise ValueError(f'"oneHot" of "{self.field}" has {twice!r} twice')
        return self


def _feature(given: Any) -> Any:
    return {"field": given} if isinstance(given, str) else given


FeatureList = Annotated[
    tuple[Annotated[Feature, BeforeValidator(_feature, json_schema_input_type=str | Feature)], ...], Field(min_length=1)
]
"""Features in order; a text is the key of one without options."""

FeatureType = Literal["FLOAT", "DOUBLE", "INT64", "INT32"]
"""Element types of an array of features."""


def written(features: Sequence[Feature], form: Form) -> list[Any]:
    """Features as a definition spells them, the short way where there are no options."""
    listed: list[Any] = []
    for feature in features:
        options = {key: value for key, value in feature.to_dict(form).items() if value != _DEFAULTS.get(key)}
        if form == "json" and feature.default is not None and not math.isfinite(feature.default):
            # JSON has no NaN or infinity; strings of them are read.
            options["default"] = str(feature.default)
        listed.append(feature.field if options.keys() == {"field"} else options)
    return listed


_DEFAULTS = Feature(field="field").to_dict() | {"field": None}


class Features(Step):
    """Makes one array of values of a record: `Features(["temp", "vib", {"field": "hour", "default": 0}], output="X")`.

    Numbers follow each other in the order of `fields`; of arrays and lists all numbers are taken, in C order. So a
    record gets an array `[F]`, one sample of a model that takes `[N, F]`.
    """

    type_name: ClassVar[str] = "FEATURES"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.models.features:FeaturesRunner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    fields: FeatureList
    """The values, each a key or a mapping with options."""
    output: Key = "features"
    """Key of the array."""
    dtype: FeatureType = "FLOAT"
    """Element type of the array. With an integer type, a value that has a fraction or is out of range fails its
    record."""
    columns: bool = False
    """Whether each field holds a series of k values, which becomes a column of an array `[k, F]`."""
    keep_other_values: bool = True
    """Whether to keep the other keys of the record."""

    def __init__(self, fields: Any = None, /, **others: Any) -> None:
        super().__init__(**(others if fields is None else {"fields": fields, **others}))

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """Plain data with `@type` first, as `form` spells it."""
        return {**super().to_dict(form), "fields": written(self.fields, form)}
