"""`${VAR}`, `${VAR:-default}` and `${file:/run/secrets/x}` in the scalars of a parsed document.

References are replaced after parsing, so that a value can never become structure: the result is always text, also if
it looks like a number or a list. Number and boolean fields parse the text; a password `0123` stays as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.definitions.document import KeyPath
from pipelines.errors import DefinitionError, nearest
from streamer.observe.shown import names_a_secret

MAX_FILE_BYTES = 1 << 20
"""A file that is put into a scalar may not be larger: it is a secret, not a document."""

_REFERENCE = re.compile(r"\$\$|\$\{([^}]*)(\}?)")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class InterpolationError(DefinitionError):
    """A reference cannot be replaced. `path` is its place, not in the message; `others` are further such errors."""

    def __init__(self, message: str, path: KeyPath) -> None:
        super().__init__(message)
        self.path = path
        self.others: list[InterpolationError] = []


def interpolate(
    tree: Any,
    *,
    base: Path,
    environment: Mapping[str, str] | None = None,
    untouched: Callable[[KeyPath], bool] = lambda path: False,
    secret: Callable[[str], object] = lambda text: None,
    refused: Callable[[Path], str | None] = lambda file: None,
) -> Any:
    """A copy of `tree` (mappings, lists, scalars) in which the references in its text scalars are replaced.

    `${VAR}` is an environment variable, an error if it is not defined; `${VAR:-default}` is the default where the
    variable is not defined or empty; `${file:PATH}` is a file's text without its last line end, `PATH` relative to
    `base`; `$$` is a dollar. Any other dollar stands for itself. Keys are not touched, nor values below a path for
    which `untouched` says so; text that was put in is not searched for references again.

    `secret` is called with every text that must not be shown: texts of files, and values of keys and variables whose
    names mark them as secrets (`streamer.observe.shown.names_a_secret`). `refused` says why a file may not be read.

    Raises `InterpolationError` for the first reference that cannot be replaced; its `others` are those of the rest.
    """
    known = os.environ if environment is None else environment
    replacing = _Replacing(base, known, untouched, secret, refused)
    result = replacing.replaced(tree, ())
    if replacing.failed:
        first, *first.others = replacing.failed
        raise first
    return result


@dataclass(frozen=True, slots=True)
class _Replacing:
    base: Path
    environment: Mapping[str, str]
    untouched: Callable[[KeyPath], bool]
    secret: Callable[[str], object]
    refused: Callable[[Path], str | None]
    failed: list[InterpolationError] = field(default_factory=list)

    def replaced(self, node: Any, path: KeyPath) -> Any:
        if isinstance(node, str):
            try:
                return self._text(node, path)
            except InterpolationError as error:
                self.failed.append(error)
                return node
        if not isinstance(node, (dict, list)):
            self._note(node, path)
            return node
        if self.untouched(path):
            return node
        if isinstance(node, list):
            return [self.replaced(item, (*path, index)) for index, item in enumerate(node)]
        return {key: self.replaced(value, (*path, key)) for key, value in node.items()}

    def _text(self, text: str, path: KeyPath) -> str:
        def value(match: re.Match[str]) -> str:
            if match[0] == "$$":
                return "$"
            if not match[2]:
                raise InterpolationError(f'"{match[0]}" has no closing brace; write $$ for a dollar', path)
            return self._value(match[1], path)

        replaced = _REFERENCE.sub(value, text) if "$" in text else text
        self._note(replaced, path)
        return replaced

    def _note(self, scalar: object, path: KeyPath) -> None:
        if isinstance(scalar, (str, int, float)) and any(names_a_secret(str(part)) for part in path):
            self.secret(str(scalar))

    def _value(self, reference: str, path: KeyPath) -> str:
        if reference.startswith("file:"):
            file = self.base / Path(reference.removeprefix("file:")).expanduser()
            if (why := self.refused(file)) is not None:
                raise InterpolationError(why, path)
            text = _file(file, path)
            self.secret(text)
            return text
        try:
            name, text = _variable(reference, path, self.environment)
        except InterpolationError:
            raise
        except DefinitionError as error:
            # Raised by an environment that does not allow this variable (`--no-code`).
            raise InterpolationError(str(error), path) from error
        if names_a_secret(name):
            self.secret(text)
        return text


def _variable(reference: str, path: KeyPath, environment: Mapping[str, str]) -> tuple[str, str]:
    match = _VARIABLE.fullmatch(reference)
    if match is None or "${" in reference:
        raise InterpolationError(
            f'"${{{reference}}}" is not a reference; write ${{VAR}}, ${{VAR:-default}} or ${{file:PATH}}, '
            "and $$ for a dollar",
            path,
        )
    name, default = match[1], match[2]
    if default is not None:
        return name, environment.get(name) or default
    if name not in environment:
        hint = nearest(name, environment) or f"; set it, or write ${{{name}:-default}}"
        raise InterpolationError(f"the environment variable {name} is not defined{hint}", path)
    return name, environment[name]


def _file(file: Path, path: KeyPath) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise InterpolationError(f"{file} is larger than {MAX_FILE_BYTES} bytes", path)
        text = content.decode()
    except OSError as error:
        raise InterpolationError(f"{file} cannot be read: {error.strerror or error}", path) from error
    except UnicodeDecodeError as error:
        raise InterpolationError(f"{file} is not UTF-8 text", path) from error
    return text.removesuffix("\n").removesuffix("\r")
