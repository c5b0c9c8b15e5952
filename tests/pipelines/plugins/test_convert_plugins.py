"""Forms and converters of plug-ins: two converters join a form to all others, clashes and broken plug-ins are told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines import ArrayFormat, Data, Image, NDArray, Package, RegistryError, any_of
from pipelines.errors import DataError
from pipelines.values import Converter, Factory, array_conversions, image_conversions
from pipelines.values.conversion.convert import Conversions, conversion_plugins

Install = Callable[..., None]

TOY = """
from pipelines import SerializedNDArray
from pipelines.values import Converter, Factory

class Toy:
    def __init__(self, serialized):
        self.serialized = serialized

calls = []

def read(toy, wanted):
    calls.append("read")
    return toy.serialized

def write(serialized, wanted):
    calls.append("write")
    return Toy(serialized)

def straight(toy, wanted):
    calls.append("straight")
    return toy.serialized.numpy().tolist()

form = Factory("array", "toy", (f"{__name__}.Toy",))
converters = [Converter("array", "toy", "serialized", read), Converter("array", "serialized", "toy", write)]
direct = Converter("array", "toy", "list", straight)
"""
PICTURE = """
from pipelines.values import Converter, Factory

class Picture:
    def __init__(self, png):
        self.png = png

form = Factory("image", "picture", (f"{__name__}.Picture",))
converters = (
    Converter("image", "picture", "png", lambda picture, wanted: picture.png),
    Converter("image", "png", "picture", lambda png, wanted: Picture(png)),
)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution: `install("name", code, formats=["form"], converters=["converters"])`."""
    monkeypatch.syspath_prepend(tmp_path)
    names: list[str] = []

    def installed(
        name: str, code: str, *, formats: list[str] | None = None, converters: list[str] | None = None
    ) -> None:
        names.append(name)
        (tmp_path / f"{name}.py").write_text(code)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        groups = {"streamer.formats": formats or [], "streamer.converters": converters or []}
        lines = [
            line
            for group, objects in groups.items()
            for line in (f"[{group}]", *(f"{one} = {name}:{one}" for one in objects))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        _forget()

    yield installed
    _forget()
    for name in names:
        sys.modules.pop(name, None)


def _forget() -> None:
    for cached in (conversion_plugins, array_conversions, image_conversions):
        cached.cache_clear()


def test_two_converters_join_a_form_to_all_others(install: Install) -> None:
    """K-14."""
    install("toy_two", TOY, formats=["form"], converters=["converters"])
    made = NDArray.create([[1.0, 2.0]]).get_as("toy")
    module: Any = sys.modules["toy_two"]
    assert type(made) is module.Toy
    assert module.calls == ["write"]

    assert NDArray.create(made).get_as(list) == [[1.0, 2.0]]
    assert module.calls == ["write", "read"]
    assert NDArray.create(made).get_as("arrow-tensor float32").to_numpy().tolist() == [[1.0, 2.0]]
    assert NDArray.create(made).get_as(module.Toy) is made
    assert NDArray.create(made).form == "toy"
    assert Data({"x": made})["x"].tolist() == [[1.0, 2.0]]
    conversions = array_conversions()
    hops = conversions.route("toy", conversions.wanted("list"))
    assert [(hop.source, hop.target) for hop in hops] == [("toy", "serialized"), ("serialized", "list")]


def test_a_direct_converter_wins(install: Install) -> None:
    """K-14."""
    install("toy_direct", TOY, formats=["form"], converters=["converters", "direct"])
    made = NDArray.create([1.0]).get_as("toy")
    module = sys.modules["toy_direct"]
    module.calls.clear()
    assert NDArray.create(made).get_as(list) == [1.0]
    assert module.calls == ["straight"]
    with pytest.raises(DataError, match="from toy to list knows no dtype; it knows no details"):
        NDArray.create(made).get_as("list float32")


def test_a_form_of_images_meets_the_others_in_png(install: Install) -> None:
    """K-14."""
    install("toy_picture", PICTURE, formats=["form"], converters=["converters"])
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    picture = Image(pixels).get_as("picture")
    image = Image(picture)
    assert (image.width, image.height, image.channels) == (2, 2, 3)
    np.testing.assert_array_equal(image.get_as("numpy"), pixels)
    assert image.get_as("jpeg quality 90")[:3] == b"\xff\xd8\xff"
    assert image.get_as("pil").size == (2, 2)
    assert image.to_wire() == picture.png
    assert Data({"k": picture}).get_image("k").get_as("png") == picture.png


def test_a_plug_in_is_there_while_it_is_installed(install: Install) -> None:
    """K-15."""
    _forget()
    with pytest.raises(DataError, match="No converter found from Array to 'toy'"):
        NDArray.create([1.0]).get_as("toy")
    install("toy_listed", TOY, formats=["form"], converters=["converters"])
    forms, converters = array_conversions().listing()
    assert [(one.form, one.origin) for one in forms if one.origin != "streamer"] == [("toy", "toy_listed")]
    assert {(one.source, one.target) for one in converters if one.origin == "toy_listed"} == {
        ("toy", "serialized"),
        ("serialized", "toy"),
    }
    assert array_conversions().problems == []


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import toy_needs_this", "ModuleNotFoundError: No module named 'toy_needs_this'"),
        ("form = 5", "TypeError: the entry point must name a Factory or several in a list"),
        ("form = [5]", "TypeError: the entry point must name a Factory"),
        ("", "AttributeError"),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_reported_once_and_skipped(install: Install, code: str, reason: str) -> None:
    """K-15."""
    install("toy_bad", code, formats=["form"])
    with pytest.warns(RuntimeWarning, match="toy_bad") as caught:
        assert NDArray.create([1.0]).get_as("numpy").tolist() == [1.0]
    assert Image(np.zeros((2, 2, 3), "u1")).get_as("pil").size == (2, 2)
    assert len(caught) == 1
    (problem,) = array_conversions().problems
    assert f"plug-in form of toy_bad (toy_bad:form): {reason}" in problem
    sys.modules.pop("toy_bad", None)


def test_two_plug_ins_with_one_form_are_an_error_that_names_both(install: Install) -> None:
    """K-15."""
    install("toy_left", TOY, formats=["form"], converters=["converters"])
    install("toy_right", TOY, formats=["form"])
    with pytest.raises(RegistryError, match=r'claim "toy": toy \(toy_left\) and toy \(toy_right\); uninstall one'):
        NDArray.create([1.0]).get_as("toy")
    assert len(array_conversions().problems) == 1
    assert NDArray.create([1.0]).get_as("numpy").tolist() == [1.0]


def test_two_converters_between_the_same_forms_are_an_error_that_names_both(install: Install) -> None:
    """K-15."""
    install("toy_first", TOY, formats=["form"], converters=["converters"])
    install("toy_second", TOY, converters=["converters"])
    with pytest.raises(RegistryError) as caught:
        NDArray.create([1.0]).get_as("toy")
    message = str(caught.value)
    assert (
        "from serialized to toy exists twice: toy_first.write (toy_first) and toy_second.write (toy_second)" in message
    )
    assert len(array_conversions().problems) == 2


def test_the_registries_list_what_is_built_in() -> None:
    """K-13."""
    forms, converters = array_conversions().listing()
    assert {"numpy", "list", "array", "buffer", "bytes", "serialized", "torch", "arrow", "dlpack"} <= {
        one.form for one in forms
    }
    assert all(one.available for one in forms if one.form in ("numpy", "arrow"))
    pairs = {(one.source, one.target): one for one in converters}
    assert pairs["numpy", "bytes"].honours == ("byte_order", "dtype")
    forms, converters = image_conversions().listing()
    assert [one.form for one in forms] == ["numpy", "png", "jpeg", "bmp", "gif", "pil", "frame"]
    assert ("frame", "jpeg") in {(one.source, one.target) for one in converters}


def test_every_built_in_form_has_a_way_to_and_from_the_canonical_one() -> None:
    conversions = array_conversions()
    sources_only = {"array-like"}
    for _, factory in conversions.factories:
        conversions.route(factory.form, ArrayFormat("serialized"))
        if factory.form not in sources_only:
            conversions.route("serialized", ArrayFormat(factory.form))


def test_a_registry_of_ones_own_starts_empty() -> None:
    own: Conversions[ArrayFormat] = Conversions("array", ArrayFormat, "serialized", plugins=False)
    own.add(Factory("array", "numpy", ("numpy.ndarray",)), Factory("array", "list", ("builtins.list",)))
    own.add(Converter("array", "list", "numpy", lambda values, wanted: np.array(values)))
    assert own.convert([1, 2], "list", own.wanted(np.ndarray)).tolist() == [1, 2]
    with pytest.raises(DataError, match="none from numpy to serialized either"):
        own.route("numpy", own.wanted("list"))
    assert own.factories.of(object()) is None


def test_a_form_needs_any_of_several_packages(install: Install) -> None:
    """K-34."""
    install("toy_either", TOY, formats=["form"], converters=["converters"])
    conversions = Conversions("array", ArrayFormat, "serialized")
    gone = Package("no_such_package", "arrays")
    conversions.add(
        Factory("array", "either", requires=any_of(gone, "numpy")),
        Factory("array", "neither", requires=any_of(gone, Package("nor_this", distribution="nor-this"))),
    )
    listed = {form.form: form for form in conversions.listing()[0]}
    assert listed["toy"].available
    assert listed["either"].available
    assert not listed["neither"].available
    assert listed["neither"].reason == (
        "not installed: no_such_package or nor_this (pip install 'streamer-inference[arrays]' or pip install nor-this)"
    )
