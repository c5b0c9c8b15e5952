"""The registry: which runner is chosen, plug-ins from real distributions, clashes, the listing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
from builtintypes import RUNNERS, STEPS
from outcomes import result_of, results_of

import pipelines
from pipelines import Logging, MissingPackageError, Onnx, Registry, RegistryError, RunnerFactory, Step
from pipelines.runners.runner import OpenContext

Install = Callable[..., None]

LOGGING = RunnerFactory("LOGGING", "logging", "pipelines.runners.code.logging:LoggingRunner")
STEP_CODE = """
from typing import ClassVar
from pipelines import Step

class Threshold(Step):
    type_name: ClassVar[str] = "THRESHOLD"
    at_least: float = 0.5
"""
RUNNER_CODE = """
from pipelines import Data, RowRunner, RunnerFactory

class ThresholdRunner(RowRunner):
    def __init__(self, step, context):
        self.at_least = step.at_least

    def run(self, data):
        return data if data["x"] >= self.at_least else None

factory = RunnerFactory("THRESHOLD", "plain", f"{__name__}:ThresholdRunner")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution: `install("name", code, steps="module:Class", runners="module:factory", triggers=...)`."""
    monkeypatch.syspath_prepend(tmp_path)

    def installed(name: str, code: str, **groups: str) -> None:
        (tmp_path / f"{name}.py").write_text(code)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        text = "".join(f"[streamer.{group}]\n{name} = {value}\n" for group, value in groups.items())
        (info / "entry_points.txt").write_text(text)

    return installed


def test_every_built_in_step_has_a_runner() -> None:
    # Only Java runs some models: those steps say what to do instead.
    foreign = {step.type_name for step in STEPS if step.instead}
    assert {factory.step_type for factory in RUNNERS} == {step.type_name for step in STEPS} - foreign


def test_the_built_in_runners_exist() -> None:
    for factory in RUNNERS:
        module, _, name = factory.target.partition(":")
        makes = getattr(__import__(module, fromlist=[name]), name)
        # A step may have several runners, and a function that chooses.
        assert issubclass(makes if isinstance(makes, type) else get_type_hints(makes)["return"], pipelines.Runner)


def test_a_plug_in_adds_a_step_and_its_runner(install: Install) -> None:
    install("plugin_whole", STEP_CODE + RUNNER_CODE, steps="plugin_whole:Threshold", runners="plugin_whole:factory")
    registry = Registry()

    pipeline = pipelines.loads("steps:\n- '@type': THRESHOLD\n  at_least: 2", registry=registry)
    with pipeline.open(registry=registry) as executor:
        found = executor.run_many([pipelines.Data({"x": x}) for x in (1.0, 3.0)])

    assert found == [None, pipelines.Data({"x": 3.0})]
    assert registry.problems == []
    assert pipelines.loads(pipeline.to_yaml(), registry=registry) == pipeline
    assert [(line.runner, line.origin) for line in registry.listing() if line.step_type == "THRESHOLD"] == [
        ("plain", "plugin_whole")
    ]


GRAPH_CODE = """
from typing import ClassVar
import numpy as np
from pipelines import AlignedCombine, CachingTrigger, GraphStep, SwitchFunction, Trigger
from pipelines.executors.graph.joining import AnyJunction

class Odd(SwitchFunction):
    type_name: ClassVar[str] = "ODD"

    def open(self, context):
        return lambda batch: np.array(batch["n"].values()) % 2

class Last(AlignedCombine):
    type_name: ClassVar[str] = "LAST"

    def combiner(self, context):
        return lambda inputs: inputs[-1]

class Either(GraphStep):
    type_name: ClassVar[str] = "EITHER"

    def open(self, name, inputs, context):
        return AnyJunction(name, inputs)

class Lazy(Trigger):
    type_name: ClassVar[str] = "LAZY"

    def open(self, clock):
        return CachingTrigger(frequency_ms=0).open(clock)
"""

GRAPH = """
'@AsyncTrigger': {'@type': LAZY}
steps:
  sw: {'@type': SWITCH, '@input': input, switchFn: {'@type': ODD, numOutputs: 2}}
  even: {'@type': SWITCH_OUTPUT, '@input': sw, outputNum: 0}
  odd: {'@type': SWITCH_OUTPUT, '@input': sw, outputNum: 1}
  log: {'@type': LOGGING, '@input': odd}
  either: {'@type': EITHER, '@input': [even, log]}
  end: {'@type': COMBINE, '@input': [either, input], combineFn: {'@type': LAST}}
"""


@pytest.mark.slow
def test_a_plug_in_adds_parts_of_graphs_and_triggers(install: Install) -> None:
    groups = {"switch_functions": "Odd", "combine_functions": "Last", "graph_steps": "Either", "triggers": "Lazy"}
    install("plugin_graph", GRAPH_CODE, **{group: f"plugin_graph:{name}" for group, name in groups.items()})
    registry = Registry()

    pipeline = pipelines.loads(GRAPH, registry=registry)
    with pipeline.open(registry=registry) as executor:
        assert executor.run(pipelines.Data({"n": 3})) == pipelines.Data({"n": 3})

    assert registry.problems == []
    assert pipelines.loads(pipeline.to_yaml(), registry=registry) == pipeline


@pytest.mark.slow
def test_a_part_in_the_group_of_another_kind_is_reported(install: Install) -> None:
    install("plugin_mixed", GRAPH_CODE, triggers="plugin_mixed:Odd")
    registry = Registry()

    with pytest.warns(
        RuntimeWarning, match=r"must name a subclass of pipelines\.steps\.flow\.trigger\.Trigger with a type"
    ):
        assert "ODD" not in registry.types(pipelines.Trigger)


def test_two_plug_ins_with_one_name_make_an_error_that_names_both() -> None:
    class IntSwitch(pipelines.SwitchFunction):
        type_name = "INT_SWITCH"

    registry = Registry(plugins=False)
    registry.add_type(IntSwitch, "other")

    with pytest.raises(
        pipelines.DefinitionError, match=r"the switch function type INT_SWITCH exists twice: .*streamer.* and .*other"
    ):
        pipelines.loads(GRAPH.replace("ODD", "INT_SWITCH"), registry=registry)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "steps", "reason"),
    [
        (
            "import plugin_needs_this",
            "plugin_bad:Threshold",
            "ModuleNotFoundError: No module named 'plugin_needs_this'",
        ),
        ("Threshold = 5", "plugin_bad:Threshold", "TypeError: the entry point must name a subclass"),
        ("", "plugin_bad:Threshold", "AttributeError"),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_reported_once_and_skipped(
    install: Install, monkeypatch: pytest.MonkeyPatch, code: str, steps: str, reason: str
) -> None:
    monkeypatch.delitem(sys.modules, "plugin_bad", raising=False)
    install("plugin_bad", code, steps=steps)
    registry = Registry()

    with pytest.warns(RuntimeWarning, match="plugin_bad") as caught:
        assert registry.step_class("ONNX") is Onnx
    assert registry.step_class("THRESHOLD") is None

    assert len(caught) == 1
    (problem,) = registry.problems
    assert f"plug-in plugin_bad of plugin_bad ({steps}): {reason}" in problem


@pytest.mark.slow
def test_a_runner_entry_point_that_is_no_factory_is_reported(install: Install) -> None:
    install("plugin_nofactory", "factory = object()", runners="plugin_nofactory:factory")
    registry = Registry()

    with pytest.warns(RuntimeWarning, match="it lacks step_type, name, priority, requires, create"):
        registry.listing()


def test_two_plug_ins_with_one_step_type_are_an_error_that_names_both(install: Install) -> None:
    install("plugin_left", STEP_CODE, steps="plugin_left:Threshold")
    install("plugin_right", STEP_CODE, steps="plugin_right:Threshold")
    registry = Registry()

    with pytest.raises(RegistryError) as caught:
        registry.step_class("THRESHOLD")

    assert "plugin_left.Threshold (plugin_left) and plugin_right.Threshold (plugin_right)" in str(caught.value)
    assert len(registry.problems) == 1
    assert registry.step_class("ONNX") is Onnx


def test_two_runners_of_one_name_are_an_error_that_names_both() -> None:
    registry = Registry(plugins=False)
    registry.add_runner(replace(LOGGING, target="other:Runner"), "other-package")

    with pytest.raises(RegistryError, match=r"LoggingRunner \(streamer\) and other:Runner \(other-package\)"):
        registry.runner_for(Logging())
    assert len(registry.problems) == 1


def test_adding_the_same_thing_again_changes_nothing() -> None:
    registry = Registry(plugins=False)
    registry.add_step(Onnx)
    registry.add_runner(RUNNERS[0])

    assert registry.problems == []
    assert registry.step_class("ONNX") is Onnx


def test_the_highest_priority_wins_and_the_name_decides_among_equals() -> None:
    registry = Registry(plugins=False, builtins=False)
    for name, priority in (("c", 1), ("b", 1), ("a", 0)):
        registry.add_runner(replace(LOGGING, name=name, priority=priority))

    assert registry.runner_for(Logging()).name == "b"


def test_a_runner_whose_package_is_missing_gives_way_to_the_next() -> None:
    registry = Registry(plugins=False)
    registry.add_runner(replace(LOGGING, name="fast", priority=9, requires=("no_such_package", "numpy")))

    assert registry.runner_for(Logging()).name == "logging"
    (fast, plain) = [line for line in registry.listing() if line.step_type == "LOGGING"]
    assert (fast.runner, fast.priority, fast.available, fast.reason) == (
        "fast",
        9,
        False,
        "not installed: no_such_package",
    )
    assert (plain.runner, plain.available, plain.reason) == ("logging", True, "")


def test_a_missing_package_of_ours_is_answered_with_what_to_install() -> None:
    registry = Registry(plugins=False, builtins=False)
    registry.add_runner(RunnerFactory("ONNX", "onnxruntime", "m:C", ("no_such_package",), extra="onnx"))

    with pytest.raises(
        MissingPackageError,
        match=r"step ONNX \(runner onnxruntime\) needs the package no_such_package: pip install '.*\[onnx\]'",
    ):
        registry.runner_for(Onnx("m"))


def test_a_step_that_nothing_can_run_is_answered_with_all_that_was_considered() -> None:
    registry = Registry(plugins=False, builtins=False)
    registry.add_step(Logging)
    registry.add_runner(replace(LOGGING, name="a", requires=("no_such_package",)))
    registry.add_runner(replace(LOGGING, name="b", requires=("no_such.package",)))

    with pytest.raises(RegistryError) as caught:
        registry.runner_for(Logging())

    assert str(caught.value) == (
        "no runner can run the step LOGGING here (a: not installed: no_such_package; b: not installed: no_such.package)"
    )


def test_a_step_without_any_runner_is_an_error_and_listed_as_such() -> None:
    class Lonely(Step):
        type_name = "LONELY"

    registry = Registry(plugins=False)
    assert registry.add_step(Lonely) is Lonely

    with pytest.raises(RegistryError, match="no runner for the step LONELY is installed"):
        registry.create(Lonely(), OpenContext())
    (line,) = [line for line in registry.listing() if line.step_type == "LONELY"]
    assert (line.runner, line.available, line.reason) == (None, False, "no runner is installed")


HEAVY = ("confluent_kafka", "paho", "onnxruntime", "cv2", "av", "starlette", "grpc", "PIL")


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import pipelines",
        'import pipelines; pipelines.loads(\'steps: [{"@type": ONNX}, {"@type": CLASSIFIER_OUTPUT}]\')',
        "import pipelines; pipelines.default_registry().listing()",
        "import pipelines; pipelines.default_registry().runner_for(pipelines.Onnx('m'))",
    ],
)
def test_the_core_is_light_until_a_runner_opens(code: str) -> None:
    program = f"{code}\nimport sys\nprint([name for name in {HEAVY} if name in sys.modules])"

    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert found.stdout == "[]\n"


def test_any_of_several_packages_is_enough_for_a_runner() -> None:
    """K-34."""
    registry = Registry(plugins=False, builtins=False)
    either = pipelines.any_of(pipelines.Package("no_such_package", "one"), "numpy")
    registry.add_runner(replace(LOGGING, requires=either))
    assert registry.runner_for(Logging()).name == "logging"


def test_a_runner_that_lacks_all_of_several_says_which_extras_would_do() -> None:
    """K-20 and K-34: the error names the type of the step, the runner, and every extra."""
    registry = Registry(plugins=False, builtins=False)
    registry.add_step(Logging)
    either = pipelines.any_of(pipelines.Package("no_such_a", "one"), pipelines.Package("no_such_b", "two"))
    registry.add_runner(replace(LOGGING, requires=either))

    with pytest.raises(MissingPackageError) as caught:
        registry.runner_for(Logging())

    text = (
        "needs the packages no_such_a or no_such_b: "
        "pip install 'streamer-inference[one]' or pip install 'streamer-inference[two]'"
    )
    assert str(caught.value) == f"the step LOGGING (runner logging) {text}"
    (line,) = registry.listing()
    assert line.reason == text.replace("needs the packages", "it needs")


def test_all_runners_of_a_step_are_named_with_their_extras_when_none_can_run() -> None:
    """K-20."""
    registry = Registry(plugins=False, builtins=False)
    for name, extra in (("a", "one"), ("b", "two")):
        registry.add_runner(replace(LOGGING, name=name, requires=("no_such_package",), extra=extra))

    with pytest.raises(RegistryError) as caught:
        registry.runner_for(Logging())

    for text in (
        "the step LOGGING",
        "a: it needs",
        "streamer-inference[one]",
        "b: it needs",
        "streamer-inference[two]",
    ):
        assert text in str(caught.value)


class Marking(pipelines.RowRunner):
    """Writes which class ran."""

    def __init__(self, step: Step, context: OpenContext) -> None:
        pass

    def run(self, data: pipelines.Data) -> pipelines.Data:
        return pipelines.Data({**data, "by": type(self).__name__})


class MarkingToo(Marking):
    """Another class for the same step."""


def _two_runners(first: int, second: int) -> Registry:
    registry = Registry(plugins=False, builtins=False)
    registry.add_step(Logging)
    # By a name that is imported, which a test module's own is not.
    sys.modules["marking_runners"] = sys.modules[__name__]
    for name, runner, priority in (("a", Marking, first), ("b", MarkingToo, second)):
        registry.add_runner(RunnerFactory("LOGGING", name, f"marking_runners:{runner.__name__}", priority=priority))
    return registry


@pytest.mark.parametrize(("first", "second", "ran"), [(1, 0, "Marking"), (0, 1, "MarkingToo"), (0, 0, "Marking")])
def test_priority_decides_which_of_two_runs(first: int, second: int, ran: str) -> None:
    """K-21: reversed priorities pick the other one."""
    registry = _two_runners(first, second)
    with pipelines.Sequence([Logging()]).open(registry=registry) as executor:
        assert result_of(executor.run(pipelines.Data({})))["by"] == ran


def test_a_runner_that_is_named_runs_whatever_the_priorities(tmp_path: Path) -> None:
    """K-21: the override, also for pipelines inside the pipeline."""
    registry = _two_runners(9, 0)
    registry.add_step(pipelines.PipelineStep)
    registry.add_runner(RunnerFactory("PIPELINE", "executor", "pipelines.runners.code.pipeline:PipelineRunner"))
    (tmp_path / "inner.yaml").write_text("steps: [{'@type': LOGGING}]")
    for pipeline in (
        pipelines.Sequence([Logging()]),
        pipelines.Sequence([pipelines.PipelineStep("inner.yaml")], base=tmp_path),
    ):
        with pipeline.open(registry=registry, runners={"LOGGING": "b"}) as executor:
            assert result_of(executor.run(pipelines.Data({})))["by"] == "MarkingToo"


@pytest.mark.parametrize(
    ("runners", "text"),
    [
        ({"LOGGING": "other"}, 'runners: LOGGING has no runner "other"; there are a, b'),
        ({"LOGING": "b"}, 'runners: there is no step LOGING; did you mean "LOGGING"?'),
    ],
)
def test_a_runner_that_there_is_not_is_an_error_of_the_configuration(runners: dict[str, str], text: str) -> None:
    """K-21."""
    with pytest.raises(pipelines.DefinitionError) as caught:
        pipelines.Sequence([]).open(registry=_two_runners(0, 0), runners=runners)
    assert str(caught.value) == text


def test_runners_of_equal_priority_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """K-21."""
    registry = _two_runners(0, 0)
    for _ in range(2):
        assert registry.runner_for(Logging()).name == "a"
    (told,) = [record.getMessage() for record in caplog.records if record.name == "pipelines.plugins.registry"]
    assert told.startswith("LOGGING is run by a: b has the same priority")


def test_a_named_runner_breaks_a_tie_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """K-21."""
    assert _two_runners(0, 0).runner_for(Logging(), "b").name == "b"
    assert not [record for record in caplog.records if record.name == "pipelines.plugins.registry"]


class ReferenceRunner(pipelines.RowRunner):
    """Runs an ONNX model without onnxruntime, with the evaluator that comes with the package `onnx`."""

    def __init__(self, step: Onnx, context: OpenContext) -> None:
        from onnx.reference import ReferenceEvaluator

        self._model = ReferenceEvaluator(str(context.path(step.model_uri or "")))

    def run(self, data: pipelines.Data) -> pipelines.Data:
        given = {name: data.get_ndarray(name)[None] for name in self._model.input_names}
        return pipelines.Data(dict(zip(self._model.output_names, self._model.run(None, given), strict=True)))


@pytest.mark.slow
def test_one_definition_gives_the_same_with_either_of_two_runners() -> None:
    """K-20: the same bytes, onnxruntime and another runner."""
    sys.modules["marking_runners"] = sys.modules[__name__]
    registry = Registry(plugins=False)
    registry.add_runner(RunnerFactory("ONNX", "reference", "marking_runners:ReferenceRunner", ("onnx",), priority=-1))
    folder = Path(__file__).parents[3] / "examples" / "digits"
    pipeline = pipelines.loads('{"steps": [{"@type": "ONNX", "modelUri": "digits.onnx"}]}', folder, registry=registry)
    images = np.load(folder / "digits.npz")["images"][:20]

    found = []
    for runner in ("onnxruntime", "reference"):
        with pipeline.open(registry=registry, runners={"ONNX": runner}) as executor:
            results = results_of(executor.run_many([pipelines.Data({"image": image}) for image in images]))
        found.append(np.array([result["probabilities"].reshape(10) for result in results]))

    assert found[0].shape == (20, 10)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


FETCHER_CODE = """
class Fetcher:
    schemes = ("store",)
    def cached(self, uri): return None
    def fetch(self, uri, progress=None): raise NotImplementedError
fetcher = Fetcher()
"""


def test_two_fetchers_of_one_scheme_are_an_error_that_names_both(install: Install) -> None:
    """K-28, for what fetches models."""
    from pipelines.plugins.modelfiles import fetchers, is_here

    install("fetch_left", FETCHER_CODE, model_fetchers="fetch_left:fetcher")
    install("fetch_right", FETCHER_CODE, model_fetchers="fetch_right:fetcher")
    fetchers.cache_clear()
    try:
        assert set(fetchers().known) == {"az", "gs", "hf", "http", "https", "s3", "store"}
        (problem,) = fetchers().problems
        assert "fetch_left.Fetcher (fetch_left) and fetch_right.Fetcher (fetch_right); uninstall one" in problem
        with pytest.raises(RegistryError, match="the model fetcher store exists twice"):
            is_here("store://model")
    finally:
        fetchers.cache_clear()
