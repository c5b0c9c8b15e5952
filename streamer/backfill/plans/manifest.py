"""`Manifest`: which pieces of a backfill are done, in files beside its outputs that only the driver writes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pipelines.errors import StreamerError
from streamer.backfill.pieces import Outcome, Piece
from streamer.backfill.places import Place, StoredFile

FOLDER: Final = "_manifest"
"""The folder below that of outputs."""
_END: Final = ".jsonl"
_MOST_PARTS: Final = 64
"""More files than these are put together when a backfill begins."""

Key = tuple[tuple[tuple[str, int, str], ...], tuple[int, int] | None]
"""What tells pieces apart: path, size and stamp of each file, and which part of it."""


@dataclass(frozen=True, slots=True)
class Head:
    """What all entries have in common."""

    fingerprint: Mapping[str, str]
    """By what it is of: what results depend on besides inputs."""
    format: str
    """The format of results."""
    schema: Any | None
    """The `pyarrow.Schema` of results; `None`: not known, or the format needs none."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        schema = None if self.schema is None else base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        return {"fingerprint": dict(self.fingerprint), "format": self.format, "schema": schema}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Head:
        """The reverse of `to_dict`."""
        from pipelines.arrow.library import pa

        schema = document["schema"]
        read = None if schema is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))
        return cls({str(key): str(value) for key, value in document["fingerprint"].items()}, document["format"], read)


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece that is done."""

    files: tuple[StoredFile, ...]
    part: tuple[int, int] | None
    of: int
    """How many pieces its file is."""
    output: str
    errors: str | None
    counts: Mapping[str, int]
    """Its `rows`, `results` and `errors`."""
    seconds: float

    @classmethod
    def of_outcome(cls, outcome: Outcome) -> Entry:
        """The entry of a piece without a failure."""
        piece = outcome.piece
        counts = {"rows": outcome.rows, "results": outcome.results, "errors": outcome.errors}
        assert outcome.output is not None
        return cls(
            piece.files, piece.part, piece.of, outcome.output, outcome.error_output, counts, round(outcome.seconds, 3)
        )

    @property
    def key(self) -> Key:
        """What tells it from others."""
        return _key(self.files, self.part)

    @property
    def outputs(self) -> list[str]:
        """Its files below the folder of outputs."""
        return [self.output, *([] if self.errors is None else [self.errors])]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Entry:
        """The reverse of `dataclasses.asdict`."""
        files = tuple(
            StoredFile(str(file["path"]), str(file["relative"]), int(file["size"]), str(file["stamp"]))
            for file in document["files"]
        )
        part = None if document["part"] is None else (int(document["part"][0]), int(document["part"][1]))
        counts = {name: int(document["counts"][name]) for name in ("rows", "results", "errors")}
        errors = None if document["errors"] is None else _below(document["errors"])
        seconds = float(document["seconds"])
        return cls(files, part, int(document["of"]), _below(document["output"]), errors, counts, seconds)


class Manifest:
    """The entries of a folder of outputs. The folder is locked by its owner."""

    def __init__(self, place: Place, output: str) -> None:
        """Reads them. Raises `StreamerError` for files that are no manifest."""
        self._place = place
        self._folder = place.child(output, FOLDER)
        self.head: Head | None = None
        """`None`: nothing was ever begun there."""
        self.entries: dict[Key, Entry] = {}
        self._by_path: dict[str, set[Key]] = {}
        self._parts = [name for name in place.names(self._folder) if name.endswith(_END)]
        for name in self._parts:
            self._read(name)

    def begin(self, head: Head) -> None:
        """From now on entries have this in common. Many files are put together, while nobody waits."""
        before = list(self._parts) if len(self._parts) > _MOST_PARTS else []
        if not before and head == self.head:
            return
        self.head = head
        self._write([head.to_dict(), *(map(asdict, self.entries.values()) if before else ())])
        for name in before:
            self._place.remove(self._place.child(self._folder, name))
            self._parts.remove(name)

    def add(self, entries: Iterable[Entry]) -> None:
        """Note pieces that are done; their files are there."""
        new = list(entries)
        if new:
            self._write([asdict(entry) for entry in new])
            for entry in new:
                self._enter(entry)

    def forget(self) -> None:
        """Remove all of it, but not the outputs."""
        for name in self._parts:
            self._place.remove(self._place.child(self._folder, name))
        self.head, self._parts = None, []
        self.entries.clear()
        self._by_path.clear()

    def _enter(self, entry: Entry) -> None:
        """An entry takes the place of those of its files as they were before."""
        key = entry.key
        for path, *_ in key[0]:
            keys = self._by_path.setdefault(path, set())
            for other in [other for other in keys if other[0] != key[0]]:
                keys.discard(other)
                self.entries.pop(other, None)
            keys.add(key)
        self.entries[key] = entry

    def _write(self, documents: Iterable[Mapping[str, Any]]) -> None:
        last = int(self._parts[-1].removesuffix(_END)) if self._parts else 0
        name = f"{last + 1:08d}{_END}"
        lines = [json.dumps(document, ensure_ascii=False) for document in documents]
        self._place.write(self._place.child(self._folder, name), ("\n".join(lines) + "\n").encode())
        self._parts.append(name)

    def _read(self, name: str) -> None:
        path = self._place.child(self._folder, name)
        try:
            int(name.removesuffix(_END))
            for line in self._place.read(path).decode().splitlines():
                document = json.loads(line)
                if "fingerprint" in document:
                    self.head = Head.of(document)
                else:
                    self._enter(Entry.read(document))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise StreamerError(
                f"{path} is no part of a manifest ({type(error).__name__}: {error}): choose another --output"
            ) from error


def key_of(piece: Piece) -> Key:
    """What tells a piece from others."""
    return _key(piece.files, piece.part)


def _below(name: str) -> str:
    """A path below the folder of outputs: it may be removed."""
    if name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name!r} is not below the folder")
    return name


def _key(files: Iterable[StoredFile], part: tuple[int, int] | None) -> Key:
    return tuple(file.version for file in files), part
