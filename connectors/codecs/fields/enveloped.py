"""`at`, `each` and `outer` of a codec: where the records of a payload are."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from pipelines.described import Described
from pipelines.steps.config import Key
from pipelines.wire.jsontext import Pointer


class Enveloped(Described):
    """The fields of a codec's configuration for payloads that hold their records somewhere inside."""

    at: str = ""
    """Where the record is in the payload, by JSON pointer: `/payload/after`; with `each`, where the list of records is. A payload with null there has no record, as a deletion, and passes by; one that has nothing there fails. By default the payload is the record."""  # noqa: E501
    each: bool = False
    """Whether every element of an array is a record of its own. The payload is done when they all are; if one fails, all of it fails."""  # noqa: E501
    outer: dict[Key, str] = Field(default_factory=dict)
    """Values from around the record, and their keys, by JSON pointer into the whole payload: `{site: /site}`, with `at`. Each record of the payload has them; where there is none, or null, the records lack the key."""  # noqa: E501

    @field_validator("at")
    @classmethod
    def _pointer(cls, at: str) -> str:
        Pointer(at)
        return at

    @field_validator("outer")
    @classmethod
    def _outer_pointers(cls, outer: dict[str, str]) -> dict[str, str]:
        for text in outer.values():
            Pointer(text)
        return outer

    @model_validator(mode="after")
    def _outer_of_something(self) -> Enveloped:
        if self.outer and not self.at:
            raise ValueError("outer is for values around the record, and without at the payload is the record; add at")
        return self

    @property
    def several(self) -> bool:
        """See `CodecConfig.several`."""
        return self.each

    @property
    def outer_pointers(self) -> tuple[tuple[str, Pointer], ...]:
        """The keys of `outer`, each with the place of its value in the payload."""
        return tuple((key, Pointer(text)) for key, text in self.outer.items())
