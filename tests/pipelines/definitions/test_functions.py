"""Python functions as steps: marks, references, and what is said when one cannot be found."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from pipelines import Batch, batched
from pipelines.definitions.functions import is_batched, reference, resolve
from pipelines.errors import DefinitionError


@batched
def doubled(batch: Batch) -> Batch:
    return batch


class Counter:
    def __call__(self, data: object) -> object:
        return data

    @classmethod
    def make(cls) -> Counter:
        return cls()

    class OnBatches:
        @batched
        def __call__(self, batch: Batch) -> Batch:
            return batch


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's, importable as `own_steps`."""
    (tmp_path / "own_steps.py").write_text("def scale(data):\n    return data\n\nfactor = 3\n")
    (tmp_path / "own_broken.py").write_text("import own_missing_dependency\n")
    (tmp_path / "own_raising.py").write_text("raise OSError('no disk')\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "own_steps"


def test_the_mark_is_seen_on_functions_and_callable_objects() -> None:
    assert is_batched(doubled)
    assert is_batched(Counter.OnBatches())
    assert not is_batched(Counter())
    assert not is_batched(textwrap.dedent)
    assert not is_batched(lambda data: data)


def test_a_reference_leads_back_to_the_function() -> None:
    assert reference(textwrap.dedent) == "textwrap:dedent"
    assert resolve("textwrap:dedent") is textwrap.dedent
    assert resolve("textwrap:TextWrapper.wrap") is textwrap.TextWrapper.wrap


def test_a_function_that_cannot_be_imported_has_no_reference() -> None:
    def inner(data: object) -> object:
        return data

    assert reference(inner) is None
    assert reference(lambda data: data) is None
    assert reference(Counter()) is None
    assert reference(textwrap.TextWrapper().wrap) is None


def test_a_function_in_a_users_module_is_found(module: str) -> None:
    assert resolve(f"{module}:scale")(5) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("own_steps:scael", 'own_steps:scael: own_steps has no "scael"; did you mean "scale"?'),
        ("own_steps:factor", "own_steps:factor is a int, not a function"),
        (
            "own_nowhere:f",
            "own_nowhere:f: there is no module own_nowhere; install it, start in the folder that "
            "has own_nowhere.py, or add that folder to PYTHONPATH",
        ),
        ("own_steps.deeper:f", "own_steps.deeper:f: there is no module own_steps.deeper"),
        (
            "own_broken:f",
            "own_broken:f: importing own_broken failed with ModuleNotFoundError: No module named 'own_mis",
        ),
        ("own_raising:f", "own_raising:f: importing own_raising failed with OSError: no disk"),
        ("scale", '"module:name" is needed'),
        ("own_steps:", '"module:name" is needed'),
        ("os;system:x", '"module:name" is needed'),
    ],
)
@pytest.mark.usefixtures("module")
def test_the_error_says_what_is_wrong_with_the_reference_of_a_function(text: str, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        resolve(text)
    assert str(caught.value).startswith(message)
