"""Which files the inputs of a backfill are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pipelines.errors import DefinitionError, nearest
from streamer.backfill.formats.inputformat import InputFormat
from streamer.backfill.formats.registry import FORMATS, format_of
from streamer.backfill.locations import place_of
from streamer.backfill.patterns import Pattern
from streamer.backfill.places import StoredFile

_ALL: Final = ("**", "*")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of an input, and its format; or a partition of dead letters."""

    file: StoredFile
    format: InputFormat
    offsets: tuple[int, int] | None = None
    """Of a partition the first offset that it has, and that after the last, now; `None`: it is a file."""


def listed(inputs: Sequence[str], output: str, progress: Callable[[int], None]) -> list[InputFile]:
    """The files that these patterns, paths and folders stand for, each once, in the order of the inputs.

    Args:
        inputs: Of a folder all files below it that are of a known format.
        output: The absolute location of the outputs.
        progress: Called with the number of files that are known so far.

    Raises:
        DefinitionError: An input matches no file or one of an unknown format, or would match outputs.
    """
    files: dict[str, InputFile] = {}
    for text in inputs:
        before = len(files)
        empty = True
        for entry in _matching(text, output):
            empty = False
            files.setdefault(entry.file.path, entry)
            if len(files) % 1000 == 0:
                progress(len(files))
        if empty:
            raise DefinitionError(f"--input {text}: {_why_empty(text)}")
        progress(max(before, len(files)))
    return list(files.values())


def _matching(text: str, output: str) -> Iterator[InputFile]:
    place = place_of(text)
    path = place.absolute(text)
    is_folder = place.is_folder(path)
    pattern = Pattern(path, _ALL) if is_folder else Pattern.of(path)
    _check_output(text, pattern, output)
    try:
        pattern.plain()
    except ValueError as error:
        raise DefinitionError(f"--input {text}: {error}") from None
    for file in place.matching(pattern):
        known = format_of(file.path)
        if known is not None:
            yield InputFile(file, known)
        elif not is_folder:
            raise DefinitionError(f"--input {text}: the format of {file.path} is not known by its name; {_KNOWN}")


def _why_empty(text: str) -> str:
    place = place_of(text)
    path = place.absolute(text)
    if place.is_folder(path):
        return f"no file of it has a known format; {_KNOWN}"
    pattern = Pattern.of(path)
    if pattern.wild:
        folders = f"; if it is of folders, name their files: '{text.rstrip('/')}/*'" if format_of(path) is None else ""
        return f"no file matches{folders}"
    return f"no such file or folder{nearest(pattern.rest[-1], place.names(pattern.base))}"


def _check_output(text: str, pattern: Pattern, output: str) -> None:
    base = pattern.base.removesuffix("/")
    if (output == base or output.startswith(f"{base}/")) and pattern.may_match_below(output[len(base) :]):
        raise DefinitionError(
            f"--output {output} is where --input {text} looks for inputs, so that results would become inputs of the "
            "next run; choose another folder"
        )


_KNOWN: Final = f"files end with {', '.join(suffix for each in FORMATS.values() for suffix in each.suffixes)}"
