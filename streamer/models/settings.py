"""`Variant`: the field `variants` of a service, and what its variants weigh."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Final

from pydantic import Field, PlainValidator, SerializeAsAny, ValidationInfo, field_validator

from connectors.config import SinkConfig
from connectors.registry import SINKS
from connectors.units import Duration, Share
from pipelines.described import FrozenSettings
from streamer.definition.connectors.reading import configured

SHADOW: Final = "shadow"
"""The variant that gets a copy of the records, and whose results are compared, and are no results of the service."""
CURRENT: Final = "current"
"""The variant that every service has: the newest version that is no other variant's."""
WHOLE: Final = 100.0
"""What weights are shares of, where `current` has none of its own."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class CanarySettings(FrozenSettings):
    """How a variant gets more and more of the records, as long as it does no worse than `current`."""

    weights: Annotated[tuple[Annotated[float, Field(gt=0, le=WHOLE)], ...], Field(min_length=1)] = (1, 10, 50, 100)
    """Its weights of 100, one after the other; `current` gets what it and the others leave."""
    each: Annotated[Duration, Field(gt=0)] = 600.0
    """How long it has each weight at least."""
    records: Annotated[int, Field(ge=1)] = 100
    """How many records it has to have run with a weight before it is judged, or gets the next."""
    max_errors: Share = 0.01
    """By how much its share of failed records may be larger than that of `current`."""
    max_latency: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 1.5
    """How many times as long as in `current` its calls may take, for as many records; null: any time."""
    max_labels: Share | None = None
    """By how much the share of any label, a text of the output `label`, may differ from that in `current`; by default labels are not looked at."""  # noqa: E501

    @field_validator("weights")
    @classmethod
    def _rising(cls, weights: tuple[float, ...]) -> tuple[float, ...]:
        if any(after <= before for before, after in pairwise(weights)):
            raise ValueError(f"each weight has to be larger than the one before, not {list(weights)}")
        return weights


def _sink(value: object, info: ValidationInfo) -> object:
    return None if value is None else configured(SINKS, value, info)


class Variant(FrozenSettings):
    """A version of the pipeline that gets a share of the records."""

    version: Annotated[int, Field(ge=1)] | None = None
    """The number of its version folder, in each model that has one of that number; by default the newest that no other variant names."""  # noqa: E501
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Its share of the records, beside the weights of the others. By default `current` has what the others leave of 100, and the others have none: only requests that name them reach them."""  # noqa: E501
    canary: CanarySettings | None = None
    """Changes its weight by and by, in place of `weight`: `{weights: [1, 10, 50, 100], each: 10m}`."""
    sink: Annotated[SerializeAsAny[SinkConfig] | None, PlainValidator(_sink)] = None
    """For the variant `shadow`: where its results are sent, besides being compared, `{type: kafka, topic: digits.shadow}`; by default nowhere."""  # noqa: E501
    set: dict[str, Any] = Field(default_factory=dict)
    """Overrides fields of the pipeline's steps for this variant alone, as `set` of the service does for all."""


def weights(variants: Mapping[str, Variant]) -> dict[str, float]:
    """What each variant weighs, `current` first, whether it is named or not. A shadow weighs nothing."""
    others = {name: _first(variant) for name, variant in variants.items() if name not in (CURRENT, SHADOW)}
    given = variants[CURRENT].weight if CURRENT in variants else None
    return {CURRENT: max(0.0, WHOLE - sum(others.values())) if given is None else given, **others}


def _first(variant: Variant) -> float:
    """What it weighs when the service starts."""
    return (variant.weight or 0.0) if variant.canary is None else variant.canary.weights[0]


def check_variants(variants: Mapping[str, Variant]) -> None:
    """Raise `ValueError` for names that cannot be told from version numbers, and weights of which none is above 0."""
    for name in variants:
        if not _NAME.fullmatch(name):
            raise ValueError(f'"{name}": a name begins with a letter, and has letters, digits, - and _ (64 at most)')
    if CURRENT in variants and variants[CURRENT].version is not None:
        raise ValueError(f"{CURRENT}.version: {CURRENT} is the newest version that is no other variant's; remove it")
    canaries = [name for name, variant in variants.items() if variant.canary is not None]
    if any(name in (CURRENT, SHADOW) for name in canaries):
        raise ValueError(f"{canaries[0]}.canary: it is for a variant that is compared with {CURRENT}; remove it")
    if len(canaries) > 1:
        raise ValueError(f"{canaries[1]}.canary: {canaries[0]} has one, and they would share {CURRENT}; remove one")
    if SHADOW in variants and variants[SHADOW].weight is not None:
        raise ValueError(f"{SHADOW}.weight: a shadow gets a copy of all records, and no share; remove it")
    if not any(weights(variants).values()):
        raise ValueError("all weights are 0, so that no variant gets any records; give one a weight above 0")


def check_sticky(sticky: str | None, variants: Mapping[str, Variant]) -> None:
    """Raise `ValueError` if records are to stay with a variant, and there is one alone that gets any."""
    if sticky is not None and len(weights(variants)) == 1:
        raise ValueError(
            f"sticky: {sticky} decides which variant a record gets, and all get {CURRENT}; name another variant, "
            "as variants: {next: {version: 2, weight: 10}}, or leave sticky out"
        )
