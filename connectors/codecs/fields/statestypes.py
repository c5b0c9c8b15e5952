"""`types` of a codec: the types that the values of some keys are to be of when a step reads them."""

from __future__ import annotations

from pydantic import Field

from connectors.codecs.config import PayloadFields
from pipelines.described import Described
from pipelines.steps.config import Key
from pipelines.wire.stated.conversions import Decimal, StatedType
from pipelines.wire.stated.types import Stated, images_among


class StatesTypes(Described):
    """The field of a codec's configuration for the types of values."""

    types: dict[Key, StatedType] = Field(default_factory=dict)
    """The types that values become when they are read: `{temp: number, n: integer, ok: boolean, id: text, raw: bytes, photo: image}`."""  # noqa: E501

    def stated(self, decimal: Decimal | None = None) -> tuple[Stated, ...]:
        """The types, for a codec whose option for the sign before fractions has this value."""
        return tuple(Stated(key, kind, decimal) for key, kind in self.types.items())

    @property
    def stated_fields(self) -> PayloadFields | None:
        """What the types say of payloads that may have any other fields; `None` if none are stated."""
        if not self.types:
            return None
        return PayloadFields(frozenset(self.types), others=True, images=images_among(self.stated()))
