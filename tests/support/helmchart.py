"""The chart in `deploy/helm/streamer` as Helm renders it, and the files of its container in a folder."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "streamer"
NEWEST = "1.37.0"
"""The Kubernetes that is rendered for: what Helm assumes without a cluster depends on how it was built."""
EXAMPLES = sorted(CHART.glob("ci/*-values.yaml"))


class HelmError(Exception):
    """Helm has refused the values; the text is what it says."""


@dataclass(frozen=True)
class Helm:
    """Runs Helm, which needs no cluster for what is done here."""

    program: str

    def run(self, *arguments: str) -> str:
        """The output of a command. Raises `HelmError` if it fails."""
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise HelmError(done.stderr + done.stdout)
        return done.stdout

    def text(self, *arguments: str, values: dict[str, Any] | None = None, folder: Path | None = None) -> str:
        """What `helm template fans` renders. `values` are written into `folder`."""
        if values is not None:
            assert folder is not None
            file = folder / "values.yaml"
            file.write_text(yaml.safe_dump(values))
            arguments = ("--values", str(file), *arguments)
        return self.run("template", "fans", str(CHART), "--namespace", "ml", "--kube-version", NEWEST, *arguments)

    def objects(self, *arguments: str, values: dict[str, Any] | None = None, folder: Path | None = None) -> Objects:
        """The objects that `helm template fans` renders."""
        documents = yaml.safe_load_all(self.text(*arguments, values=values, folder=folder))
        return Objects([document for document in documents if document])


class Objects(list[dict[str, Any]]):
    """Objects of Kubernetes."""

    def of(self, *kinds: str) -> dict[str, Any]:
        """The only object of these kinds."""
        (chosen,) = [item for item in self if item["kind"] in kinds]
        return chosen

    @property
    def pod(self) -> dict[str, Any]:
        """The specification of the pod of the Deployment or the StatefulSet."""
        spec: dict[str, Any] = self.of("Deployment", "StatefulSet")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> dict[str, Any]:
        """The container that runs the service."""
        (container,) = [item for item in self.pod["containers"] if item["name"] == "streamer"]
        return dict(container)


class Mounted:
    """A pod's files in a folder: each of its mounts is a folder below `root`, and paths in it are changed to these."""

    def __init__(self, objects: Objects, root: Path) -> None:
        self._objects = objects
        self.root = root
        mounts = {mount["mountPath"]: mount for mount in objects.container["volumeMounts"]}
        longest_first = sorted(mounts, key=len, reverse=True)
        self._paths = re.compile(rf"(?<![\w./])({'|'.join(map(re.escape, longest_first))})(?=[/\"'\s,}}]|$)")
        self.writable = [root / path.lstrip("/") for path, mount in mounts.items() if not mount.get("readOnly")]
        for path in mounts:
            (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        for volume in objects.pod["volumes"]:
            if volume["name"] == "service" and "configMap" in volume:
                (path,) = [path for path, mount in mounts.items() if mount["name"] == "service"]
                for name, text in objects.of("ConfigMap")["data"].items():
                    (root / path.lstrip("/") / name).write_text(self.here(text))

    def here(self, text: str) -> str:
        """A text in which paths of the container are those of this machine."""
        return self._paths.sub(lambda match: f"{self.root}{match[1]}", text)

    def path(self, path: str) -> Path:
        """Where a file of the container is."""
        return self.root / path.lstrip("/")

    @property
    def arguments(self) -> list[str]:
        """The container's command and arguments."""
        return [self.here(text) for text in (*self._objects.container["command"], *self._objects.container["args"])]

    def environment(self, pod: str, secrets: dict[str, str] | None = None) -> dict[str, str]:
        """The container's variables in a pod of this name; `secrets` are those that come from Secrets, by variable."""
        variables = {"HOSTNAME": pod}
        for variable in self._objects.container["env"]:
            name, source = variable["name"], variable.get("valueFrom")
            match source:
                case None:
                    variables[name] = self.here(variable["value"])
                case {"fieldRef": {"fieldPath": "metadata.name"}}:
                    variables[name] = pod
                case {"secretKeyRef": _}:
                    variables[name] = (secrets or {})[name]
                case _:
                    raise AssertionError(f"{name}: {source}")
        return variables
