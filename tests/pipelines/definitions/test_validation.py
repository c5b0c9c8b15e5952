"""pydantic's complaints in a reader's terms."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pipelines.definitions.document import Document
from pipelines.definitions.documents import parse_document
from pipelines.definitions.validation import UnknownKeyWarning, validated
from pipelines.errors import DefinitionError
from pipelines.steps import Onnx


class Kafka(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["kafka"] = "kafka"
    topics: list[str]
    client: dict[str, str] = {}


class Mqtt(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["mqtt"] = "mqtt"
    topic_filter: str


class Service(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    source: Annotated[Kafka | Mqtt, Field(discriminator="type")]


def failure(text: str) -> str:
    with pytest.raises(DefinitionError) as caught:
        validated(Service, parse_document(text, "a.yaml"))
    return str(caught.value)


def test_a_valid_document_becomes_its_model() -> None:
    service = validated(Service, parse_document("name: a\nsource: {type: kafka, topics: [t]}"))

    assert service.source == Kafka(topics=["t"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "name: a\nsource:\n  type: kafka\n  topics: []\n  topcis: [t]",
            'a.yaml:5: source.topcis: no such field; did you mean "topics"?',
        ),
        ("name: a\nsource:\n  type: kafk", 'a.yaml:3: source.type: no such type: "kafk"; did you mean "kafka"?'),
        ("name: a\nsource:\n  type: x", 'a.yaml:3: source.type: no such type: "x"; known are kafka, mqtt'),
        ("name: a\nsource:\n  topics: [t]", "a.yaml:2: source.type: is required"),
        ("name: a\nsource: {type: kafka}", "a.yaml:2: source.topics: is required"),
        ("name: a\nsource: {type: kafka, topics: t}", "a.yaml:2: source.topics: must be a list, not 't'"),
        ("name: []\nsource: {type: kafka, topics: [t]}", "a.yaml:1: name: must be a string"),
        ("name: 7\nsource: {type: kafka, topics: [t]}", "a.yaml:1: name: must be a string in quotes, not 7"),
    ],
)
def test_errors_name_file_line_key_and_what_to_write(text: str, message: str) -> None:
    assert failure(text) == message


class Place(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)
    points: Annotated[tuple[float, ...], Field(min_length=3)] = (0, 0, 0)
    label: Annotated[str, Field(min_length=1)] = "x"
    at: Kafka | None = None

    @model_validator(mode="after")
    def _three(self) -> Place:
        if self.label == "none":
            raise ValueError("ZONES needs a label")
        return self


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("points: [1, 2]", "a.yaml:1: points: must have at least 3 items, not 2"),
        ("label: ''", "a.yaml:1: label: must have at least 1 character, not ''"),
        ("at: kafka", "a.yaml:1: at: must be a mapping, not 'kafka'"),
        ("label: none", "a.yaml:1: ZONES needs a label"),
    ],
)
def test_errors_have_words_of_files_rather_than_of_python(text: str, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        validated(Place, parse_document(text, "a.yaml"))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("taken", "problem"),
    [
        ("[temp, {field: b, onehot: [u]}]", 'inputs.x[1].onehot: no such field; did you mean "oneHot"?'),
        ("[temp, {field: b, oneHot: [u, u]}]", 'inputs.x[1]: "oneHot" of "b" has \'u\' twice'),
    ],
)
def test_a_mistake_inside_a_list_of_features_is_the_only_one_told(taken: str, problem: str) -> None:
    text = f"modelUri: m.onnx\ninputs: {{x: {taken}}}"
    with pytest.raises(DefinitionError) as caught:
        validated(Onnx, parse_document(text, "a.yaml"))
    assert str(caught.value) == f"a.yaml:2: {problem}"


def test_several_errors_come_in_the_order_of_the_file_three_at_most() -> None:
    lines = failure("name: []\na: 1\nb: 2\nc: 3\nsource: {type: mqtt}").splitlines()

    assert [line.split(":")[1] for line in lines] == ["1", "2", "3"]
    assert lines[2].endswith("(and 2 more)")


def test_a_secret_is_not_shown() -> None:
    text = failure("name: a\nsource: {type: kafka, topics: [t], client: {sasl.password: 12345}}")

    assert "a.yaml:2: source.client.sasl.password: must be a string" in text
    assert "12345" not in text


def test_errors_about_data_that_was_never_text_name_the_key() -> None:
    with pytest.raises(DefinitionError, match=r"^source\.topics: is required$"):
        validated(Service, Document({"name": "a", "source": {"type": "kafka"}}))


def test_unknown_keys_at_any_depth_can_be_warnings_instead() -> None:
    document = parse_document("modelUri: m\nmodelUrl: x\nsessionOptions:\n  spining: true\n  spinning: true", "a.yaml")

    with pytest.warns(UnknownKeyWarning) as caught:
        step = validated(Onnx, document, unknown="warn")

    assert step.model_uri == "m"
    assert step.session_options.spinning
    assert sorted(str(warning.message) for warning in caught) == [
        'a.yaml:2: modelUrl: no such field; ignored; did you mean "modelUri"?',
        'a.yaml:4: sessionOptions.spining: no such field; ignored; did you mean "spinning"?',
    ]
    assert "modelUrl" in document.data  # the document itself stays as it was


@pytest.mark.filterwarnings("ignore::pipelines.definitions.validation.UnknownKeyWarning")
def test_other_errors_stay_errors_when_unknown_keys_are_warnings() -> None:
    document = parse_document("maxBatch: many\nmodelUrl: x", "a.yaml")

    with pytest.raises(DefinitionError, match=r"^a\.yaml:1: maxBatch: must be an integer"):
        validated(Onnx, document, unknown="warn")
