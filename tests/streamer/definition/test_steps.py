"""The field `steps`: what it may say, and the exact words about what it may not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import pipelines
import streamer
from pipelines import Function, PipelineStep, Sequence
from pipelines.errors import DefinitionError
from pipelines.executors.policy import Retry, StepPolicy
from streamer.agent.assembly import build
from streamer.definition.loading import load
from streamer.definition.stepsettings import policies

FILE = """\
source: {type: memory, topic: in}
pipeline:
  - {"@type": FUNCTION, name: enrich, function: "steps_of_test:enrich"}
  - {"@type": LOGGING, name: log}
  - {"@type": TRACK, name: track}
  - {"@type": PIPELINE, name: inner, pipeline: inner.yaml}
sink: {type: memory, topic: out}
steps:
"""
INNER = """\
steps:
  - {"@type": FUNCTION, name: ask, function: "steps_of_test:plain"}
"""
CODE = """\
class Busy(Exception):
    pass

async def enrich(data):
    return data

def plain(data):
    return data
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "inner.yaml").write_text(INNER)
    (tmp_path / "steps_of_test.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "steps_of_test", raising=False)
    return tmp_path


def written(folder: Path, steps: str) -> Path:
    (folder / "a.yaml").write_text(FILE + steps)
    return Path("a.yaml")


def test_a_file_says_it_with_units_and_short_forms(folder: Path) -> None:
    service = load(
        written(
            folder,
            "  enrich: {retry: {attempts: 4, wait: 50ms, on: [ConnectionError, steps_of_test.Busy]}, timeout: 2s}\n"
            "  inner/ask: {retry: {on: TimeoutError}}\n",
        )
    )
    assert policies(service.steps) == {
        "enrich": StepPolicy(Retry(("ConnectionError", "steps_of_test.Busy"), attempts=4, wait=0.05), timeout=2.0),
        "inner/ask": StepPolicy(Retry(("TimeoutError",), attempts=3, wait=0.2)),
    }


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            "  enrch: {timeout: 2s}\n",
            'a.yaml:9: steps.enrch: names no step; did you mean "enrich"?; there are enrich, log, track, '
            "inner, inner/ask, FUNCTION, LOGGING, TRACK, PIPELINE",
        ),
        (
            "  enrich:\n    retry:\n      on: [ConectionError]\n",
            'a.yaml:11: steps.enrich.retry.on[0]: there is no error "ConectionError"; did you mean "ConnectionError"?; '
            "one that is not of Python itself has its module before its name: requests.exceptions.Timeout",
        ),
        ("  enrich:\n    retry: {attempts: 2}\n", "a.yaml:10: steps.enrich.retry.on: is required"),
        (
            "  enrich: {retry: {on: OSError, attemps: 2}}\n",
            'a.yaml:9: steps.enrich.retry.attemps: no such field; did you mean "attempts"?',
        ),
        ("  enrich: {retry: {on: OSError, attempts: 0}}\n", "a.yaml:9: steps.enrich.retry.attempts: must be greater"),
        ("  enrich: {retry: {on: []}}\n", "a.yaml:9: steps.enrich.retry.on: value should have at least 1 item"),
        ("  enrich: {timeout: 0s}\n", "a.yaml:9: steps.enrich.timeout: must be greater than 0"),
        (
            "  log: {retry: {on: OSError, attempts: 9, wait: 1s}}\n"
            "  enrich: {retry: {on: OSError, attempts: 5, wait: 0.1}, timeout: 10s}\n",
            "a.yaml:9: steps.log: attempts and waits of all steps may add up to 172.5 s for a record, and after "
            "limits.stuck (120 s) the service counts as hung; lower attempts, wait or timeout, or raise limits.stuck",
        ),
    ],
)
def test_a_mistake_is_told_at_its_place_when_the_file_is_read(folder: Path, steps: str, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        load(written(folder, steps))
    assert str(caught.value).startswith(message)


ONLY_ASYNC = (
    "only a call of an async function for one record can be ended from outside, and this step makes none; remove it: "
    "for steps that hang there is limits.stuck of a service, and streamer run --workers, which ends the process and "
    "runs the other records in a new one"
)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("  log: {timeout: 2s}\n", f"a.yaml:9: steps.log.timeout: step log: {ONLY_ASYNC}"),
        ("  FUNCTION: {timeout: 2s}\n", f"a.yaml:9: steps.FUNCTION.timeout: step inner/ask: {ONLY_ASYNC}"),
        ("  ask:\n    timeout: 2s\n", f"a.yaml:10: steps.ask.timeout: step inner/ask: {ONLY_ASYNC}"),
        ("  inner: {timeout: 2s}\n", f"a.yaml:9: steps.inner.timeout: step inner: {ONLY_ASYNC}"),
        (
            "  TRACK: {retry: {on: OSError}}\n",
            "a.yaml:9: steps.TRACK.retry: step track: the step keeps state from record to record, and a record that "
            "comes again would count twice; remove it, or have only the steps before it retried",
        ),
    ],
)
def test_what_a_step_cannot_have_is_told_with_file_and_line_by_check_and_at_the_start(
    folder: Path, steps: str, message: str, cli: Any
) -> None:
    file = written(folder, steps)
    with pytest.raises(DefinitionError) as caught:
        build(load(file)).open()
    assert str(caught.value) == message
    ended = cli("check", file)
    assert ended.code == 2
    assert message in " ".join(ended.out.split())


def test_check_imports_the_errors_that_are_named(folder: Path, cli: Any) -> None:
    steps = "  enrich: {{retry: {{on: steps_of_test.{}}}}}\n"
    ended = cli("check", written(folder, steps.format("Busy")))
    assert ended.code == 0
    assert "python, 3 attempts after steps_of_test.Busy" in " ".join(ended.out.split())
    ended = cli("check", written(folder, steps.format("Bussy")))
    assert ended.code == 2
    assert 'steps_of_test has no "Bussy"; did you mean "Busy"?' in " ".join(ended.out.split())


def test_without_code_no_module_of_an_error_is_imported(folder: Path, cli: Any) -> None:
    (folder / "log.yaml").write_text(
        "source: {type: memory, topic: in}\n"
        'pipeline: [{"@type": LOGGING, name: log}]\n'
        "sink: {type: memory, topic: out}\n"
        "steps:\n"
        "  log: {retry: {on: [OSError, steps_of_test.Busy]}}\n"
    )
    why = "log.yaml:5: {}retry.on: steps_of_test.Busy has to be imported, and --no-code (STREAMER_NO_CODE) refuses"
    ended = cli("run", "log.yaml", "--no-code")
    assert ended.code == 2
    assert why.format("service log: steps log: ") in ended.err
    ended = cli("check", "log.yaml", "--no-code")
    assert ended.code == 2
    assert why.format("") in " ".join(ended.out.split())
    assert "steps_of_test" not in sys.modules


def test_in_python_errors_may_be_classes_that_can_be_found_by_their_names() -> None:
    def service(*on: Any) -> streamer.Service:
        return streamer.Service(
            source={"type": "memory", "topic": "a"},
            pipeline=Sequence([Function(print, name="p")]),
            sink={"type": "memory", "topic": "b"},
            steps={"p": {"retry": {"on": on}}},
        )

    retry = service(ConnectionError, pipelines.WireError, ValidationError).steps["p"].retry
    assert retry is not None
    assert retry.on == ("ConnectionError", "WireError", "pydantic_core._pydantic_core:ValidationError")

    class Mine(Exception):
        pass

    with pytest.raises(ValidationError, match="Mine cannot be found by its name: move it to the top level of a module"):
        service(Mine)


def test_a_step_inside_can_be_named_by_its_type_in_python() -> None:
    service = streamer.Service(
        source={"type": "memory", "topic": "a"},
        pipeline=Sequence([PipelineStep(Sequence([Function(print)]), name="outer")]),
        sink={"type": "memory", "topic": "b"},
        steps={"FUNCTION": {"retry": {"on": "OSError"}}},
    )
    assert service.steps["FUNCTION"].policy() == StepPolicy(Retry("OSError"))
