"""K-34: what must be installed, all of it or any of it, and what a user is told when it is not."""

from __future__ import annotations

import sys

import pytest

from pipelines import MissingPackageError, Package, all_of, any_of
from pipelines.plugins.requirements import NOTHING, how_to_install, required

HERE = Package("numpy", "arrays")
GONE = Package("no_such_one", "one")
ALSO_GONE = Package("no_such_two", distribution="two-of-them")


def test_all_of_needs_every_part() -> None:
    assert all_of("numpy", "json").lacking() is None
    assert all_of("numpy", GONE).lacking() == GONE
    assert all_of(GONE, "json", ALSO_GONE).lacking() == all_of(GONE, ALSO_GONE)
    assert NOTHING.lacking() is None


def test_any_of_needs_one_part() -> None:
    assert any_of(GONE, "numpy").lacking() is None
    assert any_of(GONE, ALSO_GONE).lacking() == any_of(GONE, ALSO_GONE)
    with pytest.raises(ValueError, match="needs a package"):
        any_of()


def test_alternatives_and_lists_of_packages_can_be_nested() -> None:
    either = any_of(all_of(GONE, "json"), all_of("numpy", "sys"))
    assert all_of("json", either).lacking() is None
    assert all_of("json", any_of(GONE, all_of("numpy", ALSO_GONE))).lacking() == any_of(GONE, ALSO_GONE)


def test_of_several_that_would_do_the_first_that_is_there_counts() -> None:
    assert [package.name for package in any_of(GONE, "json", "numpy").met_by()] == ["json"]
    assert [package.name for package in all_of("numpy", any_of(GONE, "json")).met_by()] == ["numpy", "json"]
    assert all_of("numpy", GONE).met_by() == ()


def test_names_and_tuples_of_names_are_requirements() -> None:
    assert required(()).lacking() is None
    assert required("numpy").met_by() == (Package("numpy"),)
    assert required(("numpy", "no_such_one"), extra="one").lacking() == GONE
    assert required(("numpy", any_of("no_such_one", HERE)), extra="one").met_by() == (Package("numpy", "one"), HERE)


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        (GONE, "it needs the package no_such_one: pip install 'streamer-inference[one]'"),
        (ALSO_GONE, "it needs the package no_such_two: pip install two-of-them"),
        (Package("no_such_three"), "it needs the package no_such_three: it is not installed"),
        (
            all_of(GONE, ALSO_GONE, Package("no_such_four", "four")),
            "it needs the packages no_such_one and no_such_two and no_such_four: "
            "pip install 'streamer-inference[four,one]' two-of-them",
        ),
        (
            any_of(GONE, ALSO_GONE),
            "it needs the packages no_such_one or no_such_two: "
            "pip install 'streamer-inference[one]' or pip install two-of-them",
        ),
        (
            all_of("numpy", any_of(GONE, all_of(ALSO_GONE, "no_such_five"))),
            "it needs the packages no_such_one or (no_such_two and no_such_five): "
            "pip install 'streamer-inference[one]'",
        ),
    ],
)
def test_a_missing_package_is_an_error_that_says_what_installs_it(requirement: Package, text: str) -> None:
    with pytest.raises(MissingPackageError) as raised:
        requirement.check("it")
    assert str(raised.value) == text
    assert str(raised.value.name).startswith("no_such_")


def test_an_installed_package_is_found_without_importing_it() -> None:
    name = "xmlrpc"
    sys.modules.pop(name, None)
    assert all_of(name).lacking() is None
    all_of(name).check("it")
    assert name not in sys.modules


def test_how_to_install_says_nothing_of_what_nobody_knows() -> None:
    assert how_to_install(Package("no_such_three")) is None
