"""Services made of models and pipelines without a service file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pageblocks import ROOT

from pipelines.errors import DefinitionError
from streamer.definition.nocode import NoCode
from streamer.definition.serving import Serving, services_of

DIGITS = ROOT / "examples" / "digits"
PLAIN = Serving({"codec": "json"})
PIPELINE = "steps: [{'@type': LOGGING}]"


def placed(model: Path) -> Path:
    model.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(DIGITS / "digits.onnx", model)
    return model


def test_a_model_is_a_service_of_its_name_between_requests_and_answers(tmp_path: Path) -> None:
    (service,) = services_of([placed(tmp_path / "my.onnx")], Serving({"codec": "json", "listen": "127.0.0.1:1"}))
    (source,), (sink,) = service.sources, service.sinks
    assert (service.name, source.type, sink.type, source.place) == ("my", "http", "http", "127.0.0.1:1")
    assert [step.type_name for step in service.pipeline.steps] == ["ONNX"]
    with service.pipeline.open() as executor:
        assert executor.ports().inputs


def test_a_folder_has_models_by_name_folder_and_version_and_pipelines_go_before_models(tmp_path: Path) -> None:
    for path in ("a.onnx", "b/model.onnx", "c/2/model.onnx", "c/10/model.onnx", "d/only.onnx", "e.onnx"):
        placed(tmp_path / path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "e.pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "notes.yaml").write_text("not: ours")
    services = {service.name: service for service in services_of([tmp_path], PLAIN)}
    assert sorted(services) == ["a", "b", "c", "d", "e"]
    assert [step.type_name for step in services["e"].pipeline.steps] == ["LOGGING"]
    assert [services[name].pipeline.steps[0].model_uri for name in "bc"] == ["model.onnx", "c"]


def test_a_pipeline_file_is_served_and_a_service_file_as_it_is(tmp_path: Path) -> None:
    pipeline = tmp_path / "one.pipeline.yaml"
    pipeline.write_text(PIPELINE)
    file = tmp_path / "two.yaml"
    file.write_text("{source: {type: http, codec: json}, pipeline: [], sink: {type: http, codec: json}}")
    assert [service.name for service in services_of([pipeline], PLAIN)] == ["one"]
    assert [service.name for service in services_of([pipeline], Serving({"codec": "json"}, name="x"))] == ["x"]
    assert [service.name for service in services_of([file], Serving())] == ["two"]


def test_a_token_is_taken_as_it_is_without_variables(tmp_path: Path) -> None:
    (service,) = services_of([placed(tmp_path / "my.onnx")], Serving({"codec": "json", "token": "a$$b${HOME}"}))
    assert service.sources[0].model_dump()["token"].get_secret_value() == "a$$b${HOME}"


@pytest.mark.parametrize(
    ("target", "text", "error"),
    [
        ("gone.onnx", None, "no such file or folder"),
        ("a.txt", "", "no model that can be served by its file alone"),
        (
            "a.yaml",
            "{source: {type: memory, topic: a}, pipeline: [], sink: {type: memory, topic: b}}",
            "no source of type",
        ),
        ("a.yaml", "{source: {type: http, codec: json}, pipeline: [], sink: {type: http, codec: json}}", "write codec"),
        (".", None, "there is no model in it"),
    ],
)
def test_what_cannot_be_served_is_told_with_what_to_do(
    target: str, text: str | None, error: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / target).write_text(text)
    with pytest.raises(DefinitionError, match=error):
        services_of([tmp_path / target], PLAIN)


def test_two_models_of_one_name_and_a_name_for_two_are_errors(tmp_path: Path) -> None:
    both = [placed(tmp_path / "a" / "m.onnx"), placed(tmp_path / "b" / "m.onnx")]
    with pytest.raises(DefinitionError, match='has the name "m" too'):
        services_of(both, PLAIN)
    with pytest.raises(DefinitionError, match="--name is the name of one model, and there are 2"):
        services_of(both, Serving(name="x"))


def test_a_pipeline_that_is_not_trusted_runs_no_code(tmp_path: Path) -> None:
    pipeline = tmp_path / "bad.pipeline.yaml"
    pipeline.write_text("steps: [{'@type': FUNCTION, function: 'os:getcwd'}]")
    (service,) = services_of([pipeline], PLAIN, NoCode.of())
    assert not service.allows_code
