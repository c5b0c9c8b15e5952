"""Makes wheels of installed distributions, for those that no package index has.

A wheel is a zip file of the files to install, with a list of them (`RECORD`) that an installer keeps: from that list
the wheel is put together again. Format: the binary distribution format of the Python packaging specifications.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib
import io
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pipelines.errors import DISTRIBUTION, StreamerError

PACKAGES = ("protos", "pipelines", "connectors", "streamer", "streamer_native")
"""The packages of streamer, for the wheel of a checkout."""
OURS = ("*.py", "*.pyi", "*.proto", "py.typed", "page/*")
"""Patterns of the files in these packages that the wheel contains."""


def on_an_index(name: str) -> bool:
    """Whether the distribution came from a package index, where others can get it too."""
    return distribution(name).read_text("direct_url.json") is None


def put_wheel(name: str, folder: Path) -> Path:
    """A wheel of the distribution, as it is installed here, in the folder.

    A distribution that is installed from a checkout is built from it (ours is put together from its files). Raises
    `StreamerError` if that fails, or there is no list of the files that were installed.
    """
    installed = distribution(name)
    editable = _editable(installed)
    if editable is None:
        return _repacked(installed, folder)
    return _of_checkout(installed, folder) if installed.metadata["Name"] == DISTRIBUTION else _built(editable, folder)


def _editable(installed: Distribution) -> Path | None:
    text = installed.read_text("direct_url.json")
    origin: dict[str, Any] = json.loads(text) if text else {}
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(url2pathname(urlsplit(origin["url"]).path))


def _repacked(installed: Distribution, folder: Path) -> Path:
    name = installed.metadata["Name"]
    if installed.files is None or (wheel := installed.read_text("WHEEL")) is None:
        raise StreamerError(f"{name} was not installed from a wheel; install it with pip")
    tags = [line.partition(":")[2].strip() for line in wheel.splitlines() if line.startswith("Tag:")]
    contents = {place: Path(str(file)) for place, file in _files(installed)}
    return _written(folder, installed, _compressed(tags), contents)


def _files(installed: Distribution) -> Iterator[tuple[str, os.PathLike[str]]]:
    scripts = {point.name for point in installed.entry_points if point.group in ("console_scripts", "gui_scripts")}
    prefix, bin_folder = Path(sys.prefix).resolve(), Path(sysconfig.get_path("scripts")).resolve()
    stem = _stem(installed)
    for file in installed.files or ():
        place = Path(str(file.locate()))
        if file.suffix == ".pyc" or (file.name in _OF_INSTALLERS and file.parent.suffix == ".dist-info"):
            continue
        if ".." not in file.parts:
            yield file.as_posix(), place
        elif (whole := place.resolve()).parent == bin_folder:
            # Scripts of entry points are written anew when the wheel is installed.
            if whole.stem not in scripts:
                yield f"{stem}.data/scripts/{whole.name}", whole
        elif whole.is_relative_to(prefix):
            yield f"{stem}.data/data/{whole.relative_to(prefix).as_posix()}", whole


_CARRIED = frozenset({".yaml", ".onnx", ".npz", ".md", ".jpg", ".txt", ".py"})
"""The files of an example that a wheel contains, by their endings."""
_OF_INSTALLERS = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})


def _of_checkout(installed: Distribution, folder: Path) -> Path:
    from streamer.demo import examples

    contents: dict[str, Path] = {}
    for package in PACKAGES:
        (root,) = importlib.import_module(package).__path__
        files = {file for pattern in OURS for file in Path(root).rglob(pattern)}
        contents |= {f"{package}/{file.relative_to(root).as_posix()}": file for file in files}
    for name in examples.NAMES:
        demo = [file for file in examples.folder(name).iterdir() if file.suffix in _CARRIED]
        contents |= {f"streamer/demo/{name}/{file.name}": file for file in demo}
    info = f"{_stem(installed)}.dist-info"
    for file in installed.files or ():
        if file.parts[0].endswith(".dist-info") and file.name not in {*_OF_INSTALLERS, "WHEEL"}:
            contents[f"{info}/{Path(*file.parts[1:]).as_posix()}"] = Path(str(file.locate()))
    compiled = _compiled()
    contents |= {f"streamer_native/{file.name}": file for file in compiled}
    return _written(folder, installed, _tag() if compiled else "py3-none-any", contents)


def _compiled() -> list[Path]:
    """The compiled hot path, where it was built and a container can run it, which is Linux."""
    if sys.platform != "linux":
        return []
    (root,) = importlib.import_module("streamer_native").__path__
    return sorted(Path(root).glob(f"*{EXTENSION_SUFFIXES[0]}"))


def _tag() -> str:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def _built(source: Path, folder: Path) -> Path:
    before = set(folder.glob("*.whl"))
    with tempfile.TemporaryDirectory() as scratch:
        # Setuptools would put its intermediate files into the checkout.
        config = Path(scratch, "build.cfg")
        config.write_text(f"[build]\nbuild_base={scratch}/build\n[egg_info]\negg_base={scratch}\n")
        environment = {**os.environ, "DIST_EXTRA_CONFIG": str(config)}
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
        for isolation in (["--no-build-isolation"], []):
            # First with the build tools that are installed here, which needs no network.
            ended = subprocess.run(  # noqa: S603 - pip, on a folder that is installed here
                [*command, *isolation, str(source)], env=environment, capture_output=True, text=True, check=False
            )
            if ended.returncode == 0:
                (made,) = set(folder.glob("*.whl")) - before
                return made
    reason = " ".join(ended.stderr.split())[-400:]
    raise StreamerError(f"no wheel can be built of {source}: {reason}")


def _written(folder: Path, installed: Distribution, tag: str, contents: dict[str, Path]) -> Path:
    stem = _stem(installed)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{stem}-{tag}.whl"
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as wheel:

        def put(place: str, content: bytes, mode: int = 0o644) -> None:
            # A fixed time, so that the same files make the same wheel.
            entry = zipfile.ZipInfo(place, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = mode << 16
            wheel.writestr(entry, content, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.writerow([place, f"sha256={digest}", len(content)])

        for place, file in sorted(contents.items()):
            put(place, file.read_bytes(), 0o755 if os.access(file, os.X_OK) else 0o644)
        if f"{stem}.dist-info/WHEEL" not in contents:
            pure = str(tag.endswith("-any")).lower()
            text = f"Wheel-Version: 1.0\nGenerator: {DISTRIBUTION}\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
            put(f"{stem}.dist-info/WHEEL", text.encode())
        rows.writerow([f"{stem}.dist-info/RECORD", "", ""])
        wheel.writestr(f"{stem}.dist-info/RECORD", record.getvalue())
    return target


def _compressed(tags: list[str]) -> str:
    """The wheel's tags, such as `cp311-cp311-manylinux_2_17_x86_64`, as the compressed tag of its file name."""
    columns = zip(*(tag.split("-") for tag in tags), strict=True)
    return "-".join(".".join(sorted(set(column))) for column in columns)


def _stem(installed: Distribution) -> str:
    """`name-version` as the folder of its metadata spells them."""
    infos = {file.parts[0] for file in installed.files or () if file.parts[0].endswith(".dist-info")}
    return infos.pop().removesuffix(".dist-info")
