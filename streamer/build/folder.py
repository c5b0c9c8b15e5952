"""Writes the folder of `streamer build`, from which a container of the service is made."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.definitions.document import Document
from pipelines.definitions.documents import read_documents
from pipelines.errors import DISTRIBUTION, StreamerError
from streamer.build.closure import Pin, closure, distributions_of, extra_installed
from streamer.build.layout import Layout, copied, laid_out
from streamer.build.modules import Modules, followed
from streamer.build.texts import MARK, SERVICE, WHEELS, docker_text, ignore_text, requirements_text
from streamer.build.uses import FileUsed, Uses, used_by
from streamer.build.wheels import on_an_index, put_wheel
from streamer.definition.connectors.listed import connectors_of
from streamer.definition.loading import load_all
from streamer.definition.service import Service

_VARIABLE = re.compile(r"(?<!\$)\$\{(file:)?([^}:]+)")


@dataclass(slots=True)
class Built:
    """The result of a build: the files written, and the reasons for them."""

    folder: Path
    services: list[str]
    extras: list[str]
    """The extras of streamer-inference that the services need."""
    requirements: list[str]
    """Every distribution with its version, streamer-inference first."""
    why: dict[str, str]
    """Each extra and each further distribution, with a part of the service that needs it, or `--with`."""
    wheels: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    """Environment variables that the service reads."""
    notes: list[str] = field(default_factory=list)
    """Files that are not in the folder, each with a hint what to do."""


def build(
    file: Path,
    out: Path,
    *,
    also: Iterable[str] = (),
    wheelhouse: bool = False,
    folders: Iterable[Path] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> Built:
    """Write all that the services of a file need into the folder `out`, which must be empty or hold an earlier result.

    `also` names distributions that the definition does not show; with `wheelhouse` a wheel of every distribution is
    put beside them, as it is installed here; modules are looked for in `folders` after the file's own. Raises
    `DefinitionError` and `MissingPackageError` for a service that is wrong, `StreamerError` if writing fails.
    """
    services = load_all(file)
    documents = read_documents(file)
    uses = [used_by(service) for service in services]
    modules = _modules(uses, [file.absolute().parent, *folders])
    why, wanted = _wanted(uses, modules, also)
    pins = closure(wanted)
    used = [file for use in uses for file in use.files]
    used += [FileUsed("pipeline", name, file.absolute().parent) for name in _definitions(documents)]
    layout = laid_out(file, used, modules.local)
    _cleared(out)
    for service in services:
        progress(f"{service.name}: {len(pins)} distributions, {len(layout.files)} files")
    wheels = _wheels(pins, out / WHEELS, wheelhouse, progress)
    files = copied(layout, out / SERVICE)
    names = " and ".join(service.name for service in services)
    _write(out / "requirements.txt", requirements_text(names, pins, wheels=bool(wheels), offline=wheelhouse))
    _write(out / ".dockerignore", ignore_text(wheels=bool(wheels)))
    dockerfile = docker_text(layout.folder, file.name, names, wheels=bool(wheels), ports=_ports(services))
    _write(out / "Dockerfile", dockerfile)
    return Built(
        out,
        [service.name for service in services],
        sorted(wanted[DISTRIBUTION]),
        [str(pin) for pin in pins],
        why,
        wheels,
        [f"{SERVICE}/{name}" for name in files],
        *_surroundings(documents, services, layout, modules),
    )


def _modules(uses: Iterable[Uses], folders: list[Path]) -> Modules:
    wanted = [(module, part) for use in uses for module, part in use.modules.items()]
    code = [item for use in uses for item in use.code]
    for use in uses:
        for file in use.files:
            path = file.base / file.name
            if path.suffix == ".py" and path.is_file():
                code.append((file.part, path.read_text(encoding="utf-8", errors="replace")))
    return followed(wanted, code, folders)


def _wanted(uses: Iterable[Uses], modules: Modules, also: Iterable[str]) -> tuple[dict[str, str], dict[str, set[str]]]:
    """The reason for each extra and distribution, and the distributions with their extras."""
    why: dict[str, str] = {}
    wanted: dict[str, set[str]] = {DISTRIBUTION: set()}

    def add(name: str, part: str) -> None:
        wanted.setdefault(name, set())
        why.setdefault(name, part)

    for use in uses:
        for package, part in use.packages.items():
            # Another distribution with the same import name serves too.
            extras = () if package.extra is None else package.extra.split(",")
            if extras and all(map(extra_installed, extras)):
                wanted[DISTRIBUTION].update(extras)
                for extra in extras:
                    why.setdefault(f"{DISTRIBUTION}[{extra}]", part)
                continue
            for name in distributions_of(package.name):
                add(name, part)
        for name, part in use.distributions.items():
            add(name, part)
    for name, by in modules.distributions.items():
        add(name, by)
    for name in also:
        add(name, "--with")
    return why, wanted


def _wheels(pins: list[Pin], folder: Path, wheelhouse: bool, progress: Callable[[str], None]) -> list[str]:
    needed = [pin.name for pin in pins if wheelhouse or not on_an_index(pin.name)]
    made = []
    for name in needed:
        progress(f"{name}: makes a wheel of the installed files")
        folder.mkdir(parents=True, exist_ok=True)
        made.append(put_wheel(name, folder).name)
    return sorted(made)


def _definitions(documents: Iterable[Document]) -> list[str]:
    return [document.data["pipeline"] for document in documents if isinstance(document.data.get("pipeline"), str)]


def _ports(services: Iterable[Service]) -> list[int]:
    listens = [service.control.listen for service in services if service.control is not None]
    ports = [int(listen.rpartition(":")[2]) for listen in listens]
    return [port for port in ports if port]


def _surroundings(
    documents: Iterable[Document], services: Iterable[Service], layout: Layout, modules: Modules
) -> tuple[list[str], list[str]]:
    """Environment variables that are read, and notes."""
    connectors = [connector.config for service in services for connector in connectors_of(service)]
    variables = {name for config in connectors for name in config.variables}
    secrets: set[str] = set()
    for document in documents:
        for text in _texts({key: value for key, value in document.data.items() if key != "pipeline"}):
            for secret, name in _VARIABLE.findall(text):
                (secrets if secret else variables).add(name)
    notes = [*layout.notes]
    notes += [f"{name} is read when the service starts; mount it" for name in sorted(secrets)]
    notes += [f"{by} imports {name}, which is not installed here; left out" for name, by in modules.unknown.items()]
    return sorted(variables), notes


def _texts(node: Any) -> Iterable[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from _texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value)


def _cleared(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()):
        marked = out / "requirements.txt"
        if not (marked.is_file() and marked.read_text(encoding="utf-8", errors="replace").startswith(MARK)):
            raise StreamerError(f"{out} holds other files; choose an empty folder with --out")
        for name in (WHEELS, SERVICE):
            shutil.rmtree(out / name, ignore_errors=True)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StreamerError(f"{out} cannot be written: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
