"""The choice of the hot path, and that the compiled one was built where it can be."""

from __future__ import annotations

import shutil

import pytest

from pipelines import hotpath
from pipelines.hotpath import HotPathError


@pytest.mark.skipif(shutil.which("cargo") is None, reason="no Rust toolchain (cargo) on the PATH")
def test_the_compiled_hot_path_was_built_where_a_toolchain_is() -> None:
    assert hotpath.why_not() is None


def test_plain_python_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hotpath.VARIABLE, raising=False)
    assert hotpath.compiled("python") is None


def test_the_environment_goes_before_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hotpath.VARIABLE, "Python")
    assert hotpath.chosen("native") == "python"
    assert hotpath.compiled("native") is None


def test_a_choice_that_is_none_is_an_error_that_names_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hotpath.VARIABLE, "natve")
    with pytest.raises(HotPathError, match='did you mean "native"'):
        hotpath.compiled()


def test_what_was_not_built_is_an_error_only_for_those_who_insist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hotpath.VARIABLE, raising=False)
    monkeypatch.setattr(hotpath, "_extension", lambda: "it was not built")
    assert hotpath.compiled("auto") is None
    assert hotpath.why_not() == "it was not built"
    with pytest.raises(HotPathError, match="was not built"):
        hotpath.compiled("native")
