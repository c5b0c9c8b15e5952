"""`Variant`: the field `variants` of a service, and what its variants weigh."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from streamer.definition.settings import Settings

SHADOW: Final = "shadow"
"""The variant that gets a copy of the records, and whose results are compared and thrown away."""
CURRENT: Final = "current"
"""The variant that every service has: the newest version that is no other variant's."""
WHOLE: Final = 100.0
"""What weights are shares of, where `current` has none of its own."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class Variant(Settings):
    """A version of the pipeline that gets a share of the records."""

    version: Annotated[int, Field(ge=1)] | None = None
    """The number of its version folder, in each model that has one of that number; by default the newest that no other variant names."""  # noqa: E501
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Its share of the records, beside the weights of the others. By default `current` has what the others leave of 100, and the others have none: only requests that name them reach them."""  # noqa: E501
    set: dict[str, Any] = Field(default_factory=dict)
    """Overrides fields of the pipeline's steps for this variant alone, as `set` of the service does for all."""


def weights(variants: Mapping[str, Variant]) -> dict[str, float]:
    """What each variant weighs, `current` first, whether it is named or not. A shadow weighs nothing."""
    others = {name: variant.weight or 0.0 for name, variant in variants.items() if name not in (CURRENT, SHADOW)}
    given = variants[CURRENT].weight if CURRENT in variants else None
    return {CURRENT: max(0.0, WHOLE - sum(others.values())) if given is None else given, **others}


def check_variants(variants: Mapping[str, Variant]) -> None:
    """Raise `ValueError` for names that cannot be told from version numbers, and weights of which none is above 0."""
    for name in variants:
        if not _NAME.fullmatch(name):
            raise ValueError(f'"{name}": a name begins with a letter, and has letters, digits, - and _ (64 at most)')
    if CURRENT in variants and variants[CURRENT].version is not None:
        raise ValueError(f"{CURRENT}.version: {CURRENT} is the newest version that is no other variant's; remove it")
    if SHADOW in variants and variants[SHADOW].weight is not None:
        raise ValueError(f"{SHADOW}.weight: a shadow gets a copy of all records, and no share; remove it")
    if not any(weights(variants).values()):
        raise ValueError("all weights are 0, so that no variant gets any records; give one a weight above 0")
