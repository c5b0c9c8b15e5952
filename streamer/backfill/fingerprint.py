"""The fingerprint of a backfill: what its results depend on besides the inputs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pipelines.definitions.walk import walk
from pipelines.errors import DISTRIBUTION, DefinitionError
from pipelines.plugins.modelfiles import is_remote
from pipelines.runners.runner import OpenContext
from streamer.backfill.formats.letters import decoding_of
from streamer.backfill.payloads import IMAGES, JSON, codec_setting, source_for
from streamer.backfill.plans.deadletters import LETTERS
from streamer.definition.service import Service


def fingerprint(service: Service, versions: Mapping[Path, int], inputs: Sequence[str]) -> dict[str, str]:
    """What results depend on, each with its version or a digest.

    `versions`: of models in version folders, by folder; of `inputs` it counts whether they are dead letters. Files that
    steps name count by their content, but for those behind URLs; the code of functions does not.
    """
    sources = [source_for(service, codecs) for codecs in (JSON, IMAGES)]
    if LETTERS in inputs:
        sources = list(service.sources)
    decoding = [[*map(repr, decoding_of(source))] for source in sources]
    return {
        DISTRIBUTION: _version(),
        "pipeline": _digest(_definition(service), service.runners, service.batch.max_records),
        "keep": json.dumps(service.keep),
        "codecs": _digest(decoding, codec_setting(service)),
        **{f"file {path}": digest for path, digest in _files(service, versions)},
    }


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names of what is not the same in both."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _definition(service: Service) -> str:
    pipeline = service.sequence()
    try:
        return pipeline.to_json()
    except DefinitionError:
        # It has functions that are no text.
        return repr(pipeline)


def _files(service: Service, versions: Mapping[Path, int]) -> Iterator[tuple[str, str]]:
    for part in walk(service.sequence()):
        for name in (*part.what.files, *part.what.data_files):
            if is_remote(name):
                continue
            path = OpenContext(base=part.base).path(name)
            if path in versions:
                path = path / str(versions[path])
            yield name, _content(path)


def _content(path: Path) -> str:
    """The digest of a file, or of all files of a folder."""
    if not path.is_dir():
        return _of_file(path) if path.is_file() else "none"
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(path, followlinks=True):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            digest.update(f"{file.relative_to(path)}\0{_of_file(file)}\n".encode())
    return digest.hexdigest()


def _of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "from a folder"
