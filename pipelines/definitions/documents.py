"""JSON and YAML text as plain data with the line of each value, so that every error can name file and line.

Used for pipeline definitions and service files alike. Reading is safe: no tag constructs anything, and size, depth
and the number of values (aliases counted as often as they are used) are bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final

from pipelines.errors import DefinitionError, nearest

KeyPath = tuple[str | int, ...]
"""The path of a value: keys and positions from the document's root, `("steps", 0, "modelUri")`."""

MOST_DIGITS: Final = 1000
"""Characters of a number; Python itself shows none of more than 4300 digits."""

TEXT: Final = "<text>"
"""File name in errors about text that came from no file."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on a file; beyond them reading is a `DefinitionError`."""

    bytes: int = 8 << 20
    """Size of the file."""
    depth: int = 64
    """Objects and lists inside each other."""
    values: int = 200_000
    """Values in all documents of a file, those of an alias counted at each use."""


DEFAULT_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Place:
    """The line of a value, counted from 1, and the places of the values inside it."""

    line: int
    inside: Mapping[str | int, Place] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data (`dict list str int float bool None`) and where it was written."""

    data: Any
    file: str | None = None
    """The file's name in errors; `None`: data that was never text."""
    place: Place | None = None
    prefix: KeyPath = ()
    """Path of `data` in the whole document."""

    def at(self, *path: str | int) -> Document:
        """The part at this path, which must exist; its errors still name the path in the whole document."""
        data, place = self.data, self.place
        for part in path:
            data = data[part]
            place = None if place is None else place.inside.get(part)
        return Document(data, self.file, place, self.prefix + path)

    def line(self, path: KeyPath = ()) -> int | None:
        """The line of the value at this path, or of the nearest around it that is known."""
        place = self.place
        for part in path:
            inner = None if place is None else place.inside.get(part)
            if inner is None:
                break
            place = inner
        return None if place is None else place.line

    def where(self, path: KeyPath = ()) -> str:
        """`file:line: key: ` as far as known; a message goes behind it."""
        file, line = self.file, self.line(path)
        start = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        key = path_text(self.prefix + path)
        return f"{start}{key}: " if key else start

    def error(self, path: KeyPath, message: str) -> DefinitionError:
        """An error about the value at this path."""
        return DefinitionError(self.where(path) + message)


def read_documents(path: str | PathLike[str], limits: Limits = DEFAULT_LIMITS) -> list[Document]:
    """All documents of a JSON or YAML file; a JSON file holds one.

    Raises `DefinitionError` for a file that cannot be read, is neither JSON nor YAML, gives a key twice, or exceeds
    the limits.
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            content = file.read(limits.bytes + 1)
    except FileNotFoundError:
        raise DefinitionError(f"{path}: no such file{nearest(place.name, _texts(place.parent))}") from None
    except IsADirectoryError:
        inside = sorted(_texts(place))[:3]
        hint = f", such as {' or '.join(str(place / name) for name in inside)}" if inside else ""
        raise DefinitionError(f"{path}: is a folder; name a file{hint}") from None
    except OSError as error:
        raise DefinitionError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_documents(content, str(path), limits)


def parse_documents(text: str | bytes, file: str = TEXT, limits: Limits = DEFAULT_LIMITS) -> list[Document]:
    """All documents of a JSON or YAML text; as `read_documents`."""
    # Imported here because they import this module.
    from pipelines.definitions.jsonreader import parse_json
    from pipelines.definitions.yamlreader import parse_yaml

    text = _decoded(text, file, limits)
    if not text.lstrip().startswith(("{", "[")):
        return parse_yaml(text, file, limits)
    try:
        return [parse_json(text, file, limits)]
    except NotJson as error:
        # YAML too may begin with a brace. Text that is neither was more likely meant to be JSON.
        try:
            return parse_yaml(text, file, limits)
        except DefinitionError:
            raise error from None


def read_document(path: str | PathLike[str], limits: Limits = DEFAULT_LIMITS) -> Document:
    """The only document of a file; as `read_documents`, and `DefinitionError` if there are none or several."""
    return only(read_documents(path, limits), str(path))


def parse_document(text: str | bytes, file: str = TEXT, limits: Limits = DEFAULT_LIMITS) -> Document:
    """The only document of a text; as `read_document`."""
    return only(parse_documents(text, file, limits), file)


def only(documents: list[Document], file: str) -> Document:
    """The one document of a file. Raises `DefinitionError` if there are none or several."""
    if not documents:
        raise DefinitionError(f"{file}: is empty")
    if len(documents) > 1:
        raise DefinitionError(f"{documents[1].where()}a second YAML document (---) begins; only one is expected here")
    return documents[0]


def path_text(path: KeyPath) -> str:
    """A path as errors show it: `steps[0].modelUri`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def check_number(number: float, text: str) -> None:
    """Raise `ValueError` if `number`, written as `text`, is infinite or has too many digits."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} characters; put it in quotes if it is text")
    if isinstance(number, float) and math.isinf(number):
        raise ValueError(f"{shortened(text)} is beyond the largest number, 1.8e308")


def shortened(text: str) -> str:
    """The text, or the beginning of a long one."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class NotJson(DefinitionError):
    """The text breaks JSON's grammar."""


class Budget:
    """Counts the values that a reader builds, against the limits."""

    def __init__(self, file: str, limits: Limits) -> None:
        self._file = file
        self._limits = limits
        self._left = limits.values

    @property
    def spent(self) -> int:
        """How many values there were so far."""
        return self._limits.values - self._left

    def spend(self, values: int, depth: int, line: int) -> None:
        """Account for `values` more, the outermost at `depth`. Raises `DefinitionError` beyond a limit."""
        self._left -= values
        if self._left < 0:
            raise DefinitionError(
                f"{self._file}:{line}: holds more than {self._limits.values} values, aliases expanded"
            )
        if depth > self._limits.depth:
            raise DefinitionError(f"{self._file}:{line}: is nested more than {self._limits.depth} deep")


_SHOWN = 40
_MODELS = (".onnx", ".h5", ".keras", ".pb", ".pt", ".pkl", ".joblib", ".tflite", ".zip")
_PLAIN_KEY = re.compile(r"[\w@$<>-][\w@$<>. -]*")


def _decoded(text: str | bytes, file: str, limits: Limits) -> str:
    if len(text) > limits.bytes:
        raise DefinitionError(f"{file}: is larger than {limits.bytes} bytes")
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        hint = ""
        if file.endswith(_MODELS):
            hint = "; it is a model: a step names it, as in {steps: [{'@type': ONNX, modelUri: model.onnx}]}"
        raise DefinitionError(
            f"{file}:{line}: is not UTF-8 text ({error.reason} at byte {error.start}){hint}"
        ) from None


def _texts(folder: Path) -> list[str]:
    try:
        return [file.name for file in folder.iterdir() if file.suffix in (".yaml", ".yml", ".json")]
    except OSError:
        return []
