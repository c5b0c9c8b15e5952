"""The texts of the files: requirements, the Dockerfile, and .dockerignore."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import PurePosixPath

from streamer.build.closure import Pin

MARK = "# Written by `streamer build`"
"""First line of the written files, by which a later build recognises the folder of an earlier one."""
WHEELS = "wheels"
SERVICE = "service"


def requirements_text(names: str, pins: Iterable[Pin], *, wheels: bool, offline: bool) -> str:
    """`requirements.txt`: `pip install -r` installs exactly these versions."""
    lines = [f"{MARK}: the requirements of {names}, and no others."]
    if offline:
        lines.append("--no-index")
    if wheels:
        lines.append(f"--find-links {WHEELS}")
    return "\n".join([*lines, *map(str, pins)]) + "\n"


def ignore_text(*, wheels: bool) -> str:
    """`.dockerignore`: the build sees the requirements, the wheels and the service."""
    kept = ["requirements.txt", *([WHEELS] if wheels else []), SERVICE]
    return "\n".join([MARK, "*", *(f"!{name}" for name in kept), "**/__pycache__"]) + "\n"


def docker_text(folder: PurePosixPath, file: str, names: str, *, wheels: bool, ports: Iterable[int]) -> str:
    """The Dockerfile of a service whose file lies in this folder below `service/`."""
    image = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim-bookworm"
    ports = sorted(set(ports))
    lines = [
        f"{MARK} for {names}: docker build -t NAME . && docker run NAME",
        f"FROM {image} AS build",
        "",
        "WORKDIR /build",
        "RUN python -m venv /opt/streamer",
        "ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1",
        "COPY requirements.txt ./",
        *([f"COPY {WHEELS} {WHEELS}"] if wheels else []),
        "RUN /opt/streamer/bin/python -m pip install --requirement requirements.txt",
        "",
        f"FROM {image}",
        "",
        "COPY --from=build /opt/streamer /opt/streamer",
        "ENV PATH=/opt/streamer/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1",
        "RUN useradd --uid 10001 --create-home streamer",
        f"COPY {SERVICE} /srv/{SERVICE}",
        "USER streamer",
        f"WORKDIR {PurePosixPath('/srv', SERVICE, folder)}",
        "",
    ]
    if ports:
        probe = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{ports[0]}/live', timeout=5)"
        lines += [
            f"EXPOSE {' '.join(map(str, ports))}",
            "HEALTHCHECK --interval=10s --timeout=10s --start-period=20s \\",
            f"    CMD {json.dumps(['python', '-c', probe])}",
            "",
        ]
    lines += [
        "# Drains and commits on SIGTERM.",
        "STOPSIGNAL SIGTERM",
        'ENTRYPOINT ["streamer"]',
        f"CMD {json.dumps(['run', file])}",
    ]
    return "\n".join(lines) + "\n"
