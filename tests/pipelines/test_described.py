"""Fields of configurations are described by the docstrings below them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import BaseModel, ConfigDict, Field

from pipelines.described import Described, descriptions


class Inner(Described):
    """A mapping inside."""

    deep: int = 0
    """How deep
    it is."""


class Base(Described):
    model_config = ConfigDict(extra="forbid")

    kept: int = 0
    """Of the base."""
    anew: int = 0
    """Of the base, too."""
    silent: int = 0


class Model(Base):
    """With fields of all kinds."""

    anew: int = 1
    inner: Inner = Inner()
    """What is inside."""
    spelled: int = Field(default=0, alias="Spelled")
    """Known by another name."""
    said: int = Field(default=0, description="Said to pydantic.")
    """Not this."""

    """Of no field."""

    if sys.platform:

        class Nested(Described):
            number: int = 0
            """In a class in a condition in a class."""


def test_a_schema_has_the_docstrings_of_its_models_and_of_those_inside() -> None:
    schema = Model.model_json_schema()
    described = {key: field.get("description") for key, field in schema["properties"].items()}
    assert described == {
        "kept": "Of the base.",
        "anew": None,
        "silent": None,
        "inner": "What is inside.",
        "Spelled": "Known by another name.",
        "said": "Said to pydantic.",
    }
    assert schema["$defs"]["Inner"]["properties"]["deep"]["description"] == "How deep\nit is."
    assert schema["properties"]["inner"]["$ref"] == "#/$defs/Inner"


@pytest.mark.parametrize("by_alias", [True, False])
def test_descriptions_are_at_the_names_that_a_schema_uses(by_alias: bool) -> None:
    properties = Model.model_json_schema(by_alias=by_alias)["properties"]
    assert properties["Spelled" if by_alias else "spelled"]["description"] == "Known by another name."


def test_classes_in_classes_and_in_functions_are_described() -> None:
    class Local(Described):
        number: int = 0
        """In a function."""

    assert descriptions(Local) == {"number": "In a function."}
    assert descriptions(Model.Nested) == {"number": "In a class in a condition in a class."}


def test_a_model_of_pydantic_alone_has_what_pydantic_knows() -> None:
    class Plain(BaseModel):
        number: int = 0
        """Not read."""
        said: int = Field(default=0, description="Said.")

    assert descriptions(Plain) == {"said": "Said."}


def test_a_model_without_a_source_has_no_descriptions() -> None:
    code = """
from pipelines.described import Described, descriptions
class Typed(Described):
    number: int = 0
    "Nowhere to be read."
print(descriptions(Typed), Typed.model_json_schema()["properties"]["number"]["title"])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "{} Number\n"
