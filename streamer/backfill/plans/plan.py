"""Which pieces of the inputs are to be run: planned from files, less what a manifest says is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from pipelines.errors import RAISED, DefinitionError
from streamer.backfill.formats.inputformat import Planned
from streamer.backfill.locations import place_of
from streamer.backfill.pieces import Piece
from streamer.backfill.plans.deadletters import pieces_left
from streamer.backfill.plans.listing import InputFile
from streamer.backfill.plans.manifest import Entry, Manifest, key_of

_THREADS: Final = 8
"""How many files are looked at at the same time: object stores take their time to answer."""


@dataclass(slots=True)
class Plan:
    """What is to be done."""

    pieces: list[Piece] = field(default_factory=list)
    schemas: list[tuple[str, Any]] = field(default_factory=list)
    """The different `pyarrow.Schema`s of files with columns, each with the path of the first file that has it."""
    before: int = 0
    """How many pieces are done already."""
    changed: int = 0
    """How many pieces were done of files that have changed since; they are done again."""
    stale: list[str] = field(default_factory=list)
    """Their files below the folder of outputs."""


def planned(files: Sequence[InputFile], manifest: Manifest, progress: Callable[[int], None]) -> Plan:
    """The pieces of these files that are not done.

    `progress` is called with the number of files that were looked at. Raises `DefinitionError` if two inputs would have
    the same output.
    """
    now = {entry.file.path: entry.file for entry in files}
    plan = Plan()
    current: list[Entry] = []
    stale: list[Entry] = []
    for entry in manifest.entries.values():
        changed = any(now.get(file.path, file).version != file.version for file in entry.files)
        (stale if changed else current).append(entry)
    plan.changed = len(stale)
    valid = {name for entry in current for name in entry.outputs}
    plan.stale = [name for entry in stale for name in entry.outputs if name not in valid]
    finished = {entry.key for entry in current}
    plan.pieces += _of_partitions(files, current)
    todo = list(_without(files, _done(current)))
    plan.before = sum(1 for entry in current if any(file.path in now for file in entry.files))
    known: set[bytes] = set()
    looked = 0
    for group, made in _all_planned(todo):
        plan.pieces += [piece for piece in made.pieces if key_of(piece) not in finished]
        looked += len(group)
        progress(looked)
        if made.schema is None:
            continue
        if (schema := made.schema.serialize().to_pybytes()) not in known:
            known.add(schema)
            plan.schemas.append((group[0].file.path, made.schema))
    _check_outputs(plan.pieces, current)
    return plan


def _of_partitions(files: Iterable[InputFile], current: Iterable[Entry]) -> Iterator[Piece]:
    done: dict[str, list[tuple[int, int]]] = {}
    for entry in current:
        if entry.part is not None:
            done.setdefault(entry.files[0].path, []).append(entry.part)
    for file in files:
        if file.offsets is not None:
            yield from pieces_left(file, done.get(file.file.path, ()))


def _done(entries: Iterable[Entry]) -> set[str]:
    """The paths of the files of which all pieces are done."""
    counts: Counter[str] = Counter()
    pieces: dict[str, int] = {}
    for entry in entries:
        for file in entry.files:
            counts[file.path] += 1
            pieces[file.path] = entry.of
    return {path for path, count in pieces.items() if counts[path] >= count}


def _without(files: Iterable[InputFile], done: set[str]) -> Iterator[InputFile]:
    return (entry for entry in files if entry.file.path not in done)


def _all_planned(files: Sequence[InputFile]) -> Iterator[tuple[list[InputFile], Planned]]:
    by_folder: dict[tuple[str, str], list[InputFile]] = {}
    for entry in files:
        place = _folder(entry) if entry.format.together else entry.file.path
        by_folder.setdefault((entry.format.name, place), []).append(entry)
    groups = list(by_folder.values())
    with ThreadPoolExecutor(_THREADS) as threads:
        yield from zip(groups, threads.map(_planned, groups), strict=True)


def _planned(group: Sequence[InputFile]) -> Planned:
    kind, files = group[0].format, [entry.file for entry in group]
    try:
        return kind.planned(place_of(files[0].path), files)
    except RAISED:  # It is a failure of the piece, when that is run.
        return Planned([Piece(kind.name, tuple(files), kind.stem(files[0]))])


def _folder(entry: InputFile) -> str:
    path, relative = entry.file.path, entry.file.relative
    # Of two inputs folders may have the same relative path.
    return path[: len(path) - len(relative)] + relative.rpartition("/")[0]


def _check_outputs(pieces: Sequence[Piece], current: Sequence[Entry]) -> None:
    owners: Mapping[str, str] = {_stem(entry.output): entry.files[0].path for entry in current}
    new: dict[str, Piece] = {}
    for piece in pieces:
        other = new.setdefault(piece.output, piece)
        path = other.files[0].path if other is not piece else owners.get(piece.output)
        if path is not None:
            raise DefinitionError(
                f"{piece.files[0].path} and {path} would have the same output, {piece.output}: give a pattern whose "
                "wildcards begin at a folder above both, or another --output for each"
            )


def _stem(output: str) -> str:
    head, _, _ = output.rpartition(".")
    return head
