"""The examples of the step pages (docs/steps): a definition, what goes in, and what comes out.

    <!-- pipeline -->     YAML, the definition
    <!-- input -->        Python, a record as a dict, or a list of records
    <!-- output -->       Python, the result in the same form; `None` for a record that is dropped, `"fails"`

`<!-- file: NAME -->` before them is Python that the definition names; `<!-- given: CODE -->` in place of
`<!-- input -->` is Python that runs first. Pictures are `Image.open("NAME.png")`: those of an input are drawn by
`docs/pictures.py`; those of an output are what the example gives, written there too, and `tests/test_step_pages.py`
compares them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pageblocks import Block, blocks_of

import pipelines
from pipelines import BoundingBox, Data, Image, Point, RecordContext, StepError
from pipelines.data.data import as_data

TOLERANCE: Final = 1e-3
"""How far numbers may lie from the page's: pages round them."""
PIXEL_TOLERANCE: Final = 2.0
"""How far pixels may, and the mean of a picture's, of 255: versions of OpenCV smooth edges differently."""


_NAMES: Final = {
    "np": np,
    "Image": Image,
    "BoundingBox": BoundingBox,
    "Point": Point,
    "Data": Data,
    "RecordContext": RecordContext,
}
"""What inputs and outputs may name."""


@dataclass(frozen=True)
class Picture:
    """A picture that an output names."""

    name: str


class _ExpectedImage(Image):
    """`Image` in an output, which names pictures instead of opening them."""

    open = Picture  # type: ignore[assignment]

    def __new__(cls, source: Any) -> Any:
        return Image(source)


@dataclass(frozen=True)
class Example:
    """An example of a page. Without input and output it is only loaded and written."""

    definition: Block
    files: tuple[Block, ...] = ()
    given: str = ""
    input: str | None = None
    output: str | None = None

    def __str__(self) -> str:
        return str(self.definition)

    @property
    def runs(self) -> bool:
        """Whether it says what goes in and what comes out."""
        return self.input is not None and self.output is not None

    def run(self, folder: Path) -> tuple[list[Any], list[Any]]:
        """What comes out, and what the page says; both a list, one item a record.

        `folder` holds the files that it names, and has to be the working directory.
        """
        assert self.output is not None
        expected = eval(self.output, {**_NAMES, "Image": _ExpectedImage})  # noqa: S307 - our own pages
        found = self.run_many(folder, self.records())
        return found, expected if isinstance(expected, list) else [expected]

    def records(self) -> list[Data]:
        """What goes in, after the code that runs first; in the folder of its files."""
        assert self.input is not None
        exec(self.given, dict(_NAMES))  # noqa: S102 - our own pages
        given = eval(self.input, dict(_NAMES))  # noqa: S307
        return [as_data(one) for one in (given if isinstance(given, list) else [given])]

    def run_many(self, folder: Path, records: list[Data]) -> list[Any]:
        """What the definition makes of these records, one item a record."""
        with _Modules(folder, self.files), pipelines.loads(self.definition.text, base=folder).open() as executor:
            return executor.run_many(records)


def examples(page: Path) -> list[Example]:
    """The examples of a page, from top to bottom."""
    found: list[Example] = []
    files: list[Block] = []
    for block in blocks_of(page):
        if block.mark == "file":
            files.append(block)
        elif block.mark == "pipeline":
            found.append(Example(block, tuple(files)))
        elif block.mark in ("input", "given") and block.language == "python" and found:
            given = block.value if block.mark == "given" else ""
            found[-1] = Example(found[-1].definition, tuple(files), given, input=block.text.strip())
        elif block.mark == "output":
            last = found[-1]
            found[-1] = Example(last.definition, last.files, last.given, last.input, block.text.strip())
    return found


def difference(found: Any, expected: Any, folder: Path, where: str = "") -> str:
    """Where a result is not what the page says, in words; empty if it is. `folder` holds the pictures."""
    if isinstance(found, StepError):
        return "" if expected == "fails" else f"{where}: {found}"
    if isinstance(expected, Picture):
        return _pixels_differ(found, Image.open(folder / expected.name), where or expected.name)
    if isinstance(expected, dict) and isinstance(found, Data):
        if list(found) != list(expected):
            return f"{where}: there are {list(found)}"
        parts = ((found[key], expected[key], f"{where}[{key!r}]") for key in expected)
        return next((text for one in parts if (text := difference(one[0], one[1], folder, one[2]))), "")
    if isinstance(expected, list) and isinstance(found, list):
        if len(found) != len(expected):
            return f"{where}: there are {len(found)}"
        each = (difference(a, b, folder, f"{where}[{i}]") for i, (a, b) in enumerate(zip(found, expected, strict=True)))
        return next((text for text in each if text), "")
    return "" if _alike(found, expected) else f"{where}: it is {found!r}"


def pictures(found: Any, expected: Any) -> Iterator[tuple[str, Image]]:
    """The pictures of a result by the names that the page gives them."""
    if isinstance(expected, Picture):
        yield expected.name, found
    elif isinstance(expected, dict):
        for key, value in expected.items():
            yield from pictures(found[key], value)
    elif isinstance(expected, list):
        for one, value in zip(found, expected, strict=True):
            yield from pictures(one, value)


class _Modules:
    """Modules that a definition names, importable while it runs."""

    def __init__(self, folder: Path, files: tuple[Block, ...]) -> None:
        self._folder = folder
        self._files = files

    def __enter__(self) -> None:
        for file in self._files:
            (self._folder / file.value).write_text(file.text)
        sys.path.insert(0, str(self._folder))
        importlib.invalidate_caches()

    def __exit__(self, *_: object) -> None:
        sys.path.remove(str(self._folder))
        for file in self._files:
            sys.modules.pop(Path(file.value).stem, None)


def _pixels_differ(found: Any, expected: Image, where: str) -> str:
    ours, page = found.get_as("numpy"), expected.get_as("numpy")
    if ours.shape != page.shape:
        return f"{where}: the picture is {ours.shape}, in the page {page.shape}"
    apart = float(np.abs(ours.astype("f4") - page).mean())
    return "" if apart <= PIXEL_TOLERANCE else f"{where}: pixels differ by {apart:.1f}; python docs/pictures.py"


def _alike(found: Any, expected: Any) -> bool:
    if type(found) is not type(expected):
        return False
    if isinstance(expected, np.ndarray):
        same: bool = found.dtype == expected.dtype and found.shape == expected.shape
        near = PIXEL_TOLERANCE if expected.dtype == np.uint8 else TOLERANCE
        return same and bool(np.allclose(found.astype("f8"), expected.astype("f8"), rtol=0, atol=near))
    if isinstance(expected, float):
        return bool(abs(found - expected) <= TOLERANCE)
    if isinstance(expected, BoundingBox):
        numbers = zip(
            (*found.numbers, found.probability or 0), (*expected.numbers, expected.probability or 0), strict=True
        )
        return (found.form, found.label) == (expected.form, expected.label) and _near(numbers)
    if isinstance(expected, Point):
        numbers = zip(
            (*found.coords, found.probability or 0), (*expected.coords, expected.probability or 0), strict=True
        )
        return found.label == expected.label and _near(numbers)
    return bool(found == expected)


def _near(pairs: Iterator[tuple[float, float]]) -> bool:
    return all(abs(a - b) <= TOLERANCE for a, b in pairs)
