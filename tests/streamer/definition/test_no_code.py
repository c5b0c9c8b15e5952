"""`--no-code`: services of strangers run no code that their files hold or name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import streamer
import streamer.testing
from connectors.kafka.client.userproperties import code_in
from pipelines import Data, Function, Graph, Onnx, PipelineStep, Sequence, Step, TensorRt
from pipelines.errors import DefinitionError, StepError
from streamer.definition.nocode import VARIABLE, code_allowed

pytestmark = pytest.mark.slow

MARK = "touched_by_code"
"""A module that leaves a file beside itself when it is imported."""

FUNCTION = {"@type": "FUNCTION", "function": f"{MARK}:run"}
PYTHON = {"@type": "PYTHON", "pythonConfig": {"importCode": f"import {MARK}", "pythonCode": "pass"}}
TVM = {"@type": "TVM", "modelUri": "model.so"}
LIBRARY = {"@type": "ONNX", "modelUri": "m.onnx", "providers": [{"cuda": {"trt_extra_plugin_lib_paths": "evil.so"}}]}
PLUGIN = {"@type": "TENSORRT", "modelUri": "m.onnx", "providerOptions": {"trt_extra_plugin_lib_paths": "evil"}}
GRAPH = {"@type": "TENSORFLOW", "modelUri": "m.pb"}
SWITCHED = {
    "outputStep": "any",
    "steps": {
        "sw": {
            "@type": "SWITCH",
            "@input": "input",
            "switchFn": {"@type": "FUNCTION_SWITCH", "function": f"{MARK}:run", "numOutputs": 1},
        },
        "out": {"@type": "SWITCH_OUTPUT", "@input": "sw", "outputNum": 0},
        "any": {"@type": "ANY", "@input": ["out"]},
    },
}
COMBINED = {
    "outputStep": "both",
    "steps": {
        "log": {"@type": "LOGGING", "@input": "input"},
        "both": {
            "@type": "COMBINE",
            "@input": ["log", "input"],
            "combineFn": {"@type": "FUNCTION", "function": f"{MARK}:run"},
        },
    },
}
KAFKA = {"type": "kafka", "bootstrap": "localhost:1"}
ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**{name: value for name, value in os.environ.items() if name != VARIABLE}, "PYTHONPATH": str(ROOT)}
PLAIN = {"steps": [{"@type": "LOGGING"}]}


@pytest.fixture(autouse=True)
def _put_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, MARK, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{MARK}.py").write_text(
        "import pathlib\n\npathlib.Path(__file__).with_name('mark').touch()\n\n\ndef run(data):\n    return data\n"
    )


def written(folder: Path, pipeline: Any = PLAIN, source: Any = None, sink: Any = None, **fields: Any) -> Path:
    service = {
        "source": source or {"type": "memory", "topic": "no-code-in"},
        "pipeline": pipeline,
        "sink": {"type": "memory", "topic": "no-code-out", **(sink or {})},
        **fields,
    }
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump(service))
    return file


def nested(folder: Path) -> dict[str, Any]:
    (folder / "inner.json").write_text(json.dumps({"steps": [FUNCTION]}))
    return {"steps": [{"@type": "PIPELINE", "name": "outer", "pipeline": "inner.json"}]}


REFUSALS: list[Any] = [
    pytest.param({"steps": [FUNCTION]}, {}, {}, "step 0:FUNCTION: function", id="FUNCTION"),
    pytest.param({"steps": [{"@type": "LOGGING"}, PYTHON]}, {}, {}, "step 1:PYTHON: pythonConfig", id="PYTHON"),
    pytest.param({"steps": [{**PYTHON, "name": "mine"}]}, {}, {}, "step mine: pythonConfig", id="named"),
    pytest.param({"steps": [TVM]}, {}, {}, "step 0:TVM: modelUri", id="TVM"),
    pytest.param({"steps": [LIBRARY]}, {}, {}, "step 0:ONNX: providers.0.cuda.trt_extra_plugin_lib_paths", id="ONNX"),
    pytest.param(
        {"steps": [PLUGIN]}, {}, {}, "step 0:TENSORRT: providerOptions.trt_extra_plugin_lib_paths", id="TENSORRT"
    ),
    pytest.param({"steps": [GRAPH]}, {}, {}, "step 0:TENSORFLOW: modelUri", id="TENSORFLOW"),
    pytest.param(
        {"steps": [{**GRAPH, "@type": "ND4JTENSORFLOW"}]}, {}, {}, "step 0:ND4JTENSORFLOW: modelUri", id="ND4J"
    ),
    pytest.param(SWITCHED, {}, {}, "step sw/FUNCTION_SWITCH: function", id="SWITCH"),
    pytest.param(COMBINED, {}, {}, "step both/FUNCTION: function", id="COMBINE"),
    pytest.param(nested, {}, {}, "step outer/0:FUNCTION: function", id="PIPELINE"),
    pytest.param(
        {"steps": [{"@type": "PIPELINE", "pipeline": {"steps": [PYTHON]}}]},
        {},
        {},
        "step 0:PIPELINE/0:PYTHON: pythonConfig",
        id="inline PIPELINE",
    ),
    pytest.param(
        {"steps": [FUNCTION], "@AsyncTrigger": {"@type": "SIMPLE_LOOP_TRIGGER", "frequencyMs": 1000}},
        {},
        {},
        "step 0:FUNCTION: function",
        id="async",
    ),
    pytest.param(
        PLAIN,
        {**KAFKA, "topics": "t", "client": {"oauth_cb": f"{MARK}:run"}},
        {},
        "source kafka: client.oauth_cb",
        id="oauth_cb",
    ),
    pytest.param(
        PLAIN,
        {},
        {**KAFKA, "client": {"plugin.library.paths": "evil"}},
        "sink kafka: client.plugin.library.paths",
        id="library",
    ),
    pytest.param(
        PLAIN,
        {},
        {**KAFKA, "client": {"sasl.kerberos.kinit.cmd": "touch mark"}},
        "sink kafka: client.sasl.kerberos.kinit.cmd",
        id="command",
    ),
    pytest.param(
        PLAIN,
        {},
        {**KAFKA, "client": {"sasl.kerberos.principal": "me; touch mark"}},
        "sink kafka: client.sasl.kerberos.principal",
        id="in a command",
    ),
    pytest.param(
        PLAIN,
        {},
        {**KAFKA, "client": {"ssl.providers": "/tmp/evil"}},
        "sink kafka: client.ssl.providers",
        id="provider",
    ),
]


def refusing(folder: Path, pipeline: Any, source: dict[str, Any], sink: dict[str, Any]) -> Path:
    return written(folder, pipeline(folder) if callable(pipeline) else pipeline, source, sink)


def nothing_ran(folder: Path) -> bool:
    return not (folder / "mark").exists() and MARK not in sys.modules


@pytest.mark.parametrize(("pipeline", "source", "sink", "named"), REFUSALS)
def test_code_is_refused_by_its_place_and_nothing_of_it_runs(
    pipeline: Any, source: Any, sink: Any, named: str, tmp_path: Path, cli: Any
) -> None:
    ended = cli("run", refusing(tmp_path, pipeline, source, sink), "--no-code")
    assert ended.code == 2
    assert re.search(rf"(mine|inner)\.(yaml|json):\d+: service mine: {named} ", ended.err)
    assert "--no-code (STREAMER_NO_CODE)" in ended.err
    assert nothing_ran(tmp_path)


@pytest.mark.parametrize(("pipeline", "source", "sink", "named"), REFUSALS)
def test_checking_finds_every_place_where_there_is_code_and_runs_nothing(
    pipeline: Any, source: Any, sink: Any, named: str, tmp_path: Path, cli: Any
) -> None:
    ended = cli("check", refusing(tmp_path, pipeline, source, sink), "--no-code", "--connect", "--json")
    assert ended.code == 2
    (report,) = json.loads(ended.out)["services"]
    part, _, key = named.partition(": ")
    refused = [one["part"] for one in report["findings"] if not one["ok"] and f": {key} " in one["text"]]
    assert refused
    assert all(part.startswith(one) for one in refused)
    assert nothing_ran(tmp_path)


def test_the_variable_does_what_the_switch_does(tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    file = written(tmp_path, {"steps": [FUNCTION]})
    for command in ("run", "check"):
        ended = cli(command, file)
        assert (ended.code, nothing_ran(tmp_path)) == (2, True)
        assert "STREAMER_NO_CODE" in ended.out + ended.err


def test_without_the_switch_the_same_file_runs_its_code(tmp_path: Path, cli: Any) -> None:
    file = written(tmp_path, {"steps": [FUNCTION]})
    ended = cli("check", file)
    assert ended.code == 0, ended
    assert (tmp_path / "mark").exists()


def test_a_service_without_code_runs_under_the_switch(tmp_path: Path) -> None:
    service = streamer.load(written(tmp_path, sink={"when": {"x": 1}})).without_code()
    assert streamer.testing.run(service, [Data({"x": 1}), Data({"x": 2})]).results == [Data({"x": 1})]


def test_checking_a_service_without_code_finds_nothing_wrong(tmp_path: Path, cli: Any) -> None:
    ended = cli("check", written(tmp_path), "--no-code", "--connect")
    assert ended.code == 0, ended


def test_nothing_is_imported_from_the_folder_of_the_file(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "other").mkdir()
    for options, there in ((["--no-code"], False), ([], True)):
        cli("check", written(tmp_path / "other"), *options)
        assert (str(tmp_path / "other") in sys.path) is there


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path) -> None:
    # A plug-in that lies there, and a module that is imported when it is there.
    (tmp_path / "plug-1.0.dist-info").mkdir()
    (tmp_path / "plug-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    entry = f"[streamer.steps]\nx = {MARK}:run\n"
    (tmp_path / "plug-1.0.dist-info" / "entry_points.txt").write_text(entry)
    written(tmp_path)
    for options, ran in ((["--no-code"], False), ([], True)):
        command = [sys.executable, "-m", "streamer", "check", "mine.yaml", *options]
        done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "mark").exists() is ran


@pytest.mark.parametrize("command", ["build", "check", "test", "steps", "schema", "plugins"])
def test_no_command_takes_plug_ins_from_the_folder_of_the_file_or_the_working_directory(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "plug-1.0.dist-info").mkdir()
    (tmp_path / "plug-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (tmp_path / "plug-1.0.dist-info" / "entry_points.txt").write_text(f"[streamer.steps]\nx = {MARK}:run\n")
    file = written(tmp_path)
    arguments = [file.name] if command in ("build", "check", "test") else []
    subprocess.run(
        [sys.executable, "-m", "streamer", command, *arguments],
        cwd=tmp_path,
        env={**ENVIRONMENT, VARIABLE: "1"},
        capture_output=True,
        timeout=200,
        check=False,
    )
    assert nothing_ran(tmp_path)


@pytest.mark.parametrize(
    ("value", "allowed"), [(None, True), ("", True), ("0", True), ("false", True), ("1", False), ("yes", False)]
)
def test_the_environment_says_whether_code_may_run(value: str | None, allowed: bool) -> None:
    assert code_allowed({} if value is None else {VARIABLE: value}) is allowed


def test_the_variable_cannot_be_overruled_by_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = streamer.load(written(tmp_path, {"steps": [FUNCTION]}))
    assert service.allows_code
    monkeypatch.setenv(VARIABLE, "1")
    assert not service.allows_code
    with pytest.raises(DefinitionError, match="0:FUNCTION"):
        streamer.testing.run(service, [Data()])


def test_a_file_cannot_allow_code(tmp_path: Path) -> None:
    for field in ("allows_code", "_allows_code", "no_code"):
        with pytest.raises(DefinitionError, match="no such field"):
            streamer.load(written(tmp_path, **{field: True}))


def test_many_refusals_are_listed_up_to_three(tmp_path: Path) -> None:
    service = streamer.load(written(tmp_path, {"steps": [FUNCTION] * 5})).without_code()
    with pytest.raises(DefinitionError) as caught:
        service.run()
    assert str(caught.value).count("runs code") == 3
    assert "(and 2 more)" in str(caught.value)


def test_a_function_given_in_python_is_refused_as_well(tmp_path: Path) -> None:
    inner = Graph({"f": (Function(lambda data: data), "input")})
    service = streamer.load(written(tmp_path)).model_copy(update={"pipeline": Sequence([PipelineStep(inner)])})
    with pytest.raises(DefinitionError, match="0:PIPELINE/f"):
        service.without_code().run()


@pytest.mark.parametrize(
    "options",
    [
        {"TRT_EXTRA_PLUGIN_LIB_PATHS": "evil"},
        {"op_packages": "Op:evil:Interface"},
        {"gpu_external_alloc": 140000000},
        {"user_compute_stream": "1"},
        {"trt_engine_cache_path": "engines/theirs"},
        {"load_config": "theirs.json"},
    ],
)
def test_options_of_a_provider_that_may_name_machine_code_are_refused(options: dict[str, Any]) -> None:
    (name,) = options
    assert list(Onnx("m.onnx", providers=["cpu", {"cuda": options}]).option_keys) == [f"providers.1.cuda.{name}"]
    assert list(TensorRt("m.onnx", provider_options=options).option_keys) == [f"providerOptions.{name}"]
    with pytest.raises(StepError, match=rf"providers\.0\.cuda\.{name} is not known to be harmless"):
        Sequence([Onnx("m.onnx", providers=[{"cuda": options}])]).open(allow_code=False)


def test_a_principal_of_kerberos_that_is_one_is_no_code() -> None:
    assert not code_in({"sasl.kerberos.principal": "streamer/host.example.org@EXAMPLE.ORG", "sasl.username": "a;b"})


def test_options_of_a_session_that_may_name_machine_code_are_refused() -> None:
    options = {"config": {"ep.qnnexecutionprovider.backend_path": "evil"}}
    for step in (Onnx("m.onnx", session_options=options), TensorRt("m.onnx", session_options=options)):
        assert list(step.option_keys) == ["sessionOptions.config.ep.qnnexecutionprovider.backend_path"]
    harmless = {"config": {"session.set_denormal_as_zero": "1", "session.load_model_format": "ORT"}}
    assert not Onnx("m.onnx", session_options=harmless).option_keys


def test_harmless_options_of_a_provider_are_not_refused() -> None:
    options = {"device_id": 0, "gpu_mem_limit": "4e9", "trt_profile_min_shapes": "x:1x3", "use_tf32": True}
    assert not Onnx("m.onnx", providers=["cpu", {"cuda": options}]).option_keys
    assert not TensorRt("m.onnx", provider_options=options).option_keys


def test_steps_of_plug_ins_that_say_so_are_refused_when_they_open() -> None:
    class Shell(Step):
        """Runs a command."""

        type_name = "SHELL"

        command: str = "true"
        """The command."""

        @property
        def code_keys(self) -> tuple[str, ...]:
            return ("command",)

    with pytest.raises(StepError, match=r"command.*not allowed here"):
        Sequence([Shell()]).open(allow_code=False)


def test_expressions_are_no_code(tmp_path: Path, cli: Any) -> None:
    file = written(tmp_path, {"steps": [{"@type": "MAP", "where": "x > 1"}]}, sink={"when": "x < 5"})
    assert cli("check", file, "--no-code").code == 0
    service = streamer.load(file).without_code()
    assert streamer.testing.run(service, [Data({"x": n}) for n in range(8)]).results == [
        Data({"x": n}) for n in (2, 3, 4)
    ]
