"""Where models are: paths, `file:` URIs, and URLs that fetchers of other packages bring to this machine.

The core fetches nothing itself. A fetcher is an object like `ModelFetcher`: ours are in modules named `download` of the
package `connectors`, those of plug-ins are named by entry points of the group `streamer.model_fetchers`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol, cast

from pipelines.errors import StreamerError
from pipelines.plugins.catalog import Catalog
from pipelines.plugins.versionfolders import model_in, versions_in
from pipelines.runners.runner import OpenContext

FETCHER_GROUP = "streamer.model_fetchers"


class ModelFetcher(Protocol):
    """Brings models to this machine and keeps them.

    One that needs packages that may be missing says so by an attribute `requires`, a
    `pipelines.plugins.requirements.Requirement`: `streamer build` takes them along. One that logs in as the machine or
    user that runs it, not with credentials of the URL, says so by an attribute `uses_identity`: `--no-code` refuses it.
    """

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes of the URLs that it can fetch, in lower case: `("http", "https")`."""

    def cached(self, uri: str) -> Path | None:
        """The cached file, or `None` if it can be downloaded; does not use the network.

        Raises `StreamerError` if it is not cached and cannot be downloaded, because a package is missing.
        """

    def fetch(self, uri: str, progress: Callable[[str], None] | None = None) -> Path:
        """The file, downloaded unless it is in the cache. Raises `StreamerError`."""


def model_path(uri: str | None, context: OpenContext, *, folder: bool = False) -> Path:
    """The file of a model, or its folder if `folder` allows one; one behind a URL is fetched first.

    Of a folder with version folders it is the version that `context.versions` names, else the highest with a model.

    Raises `StreamerError` if there is no such file, no fetcher for the URL's scheme, or fetching failed.
    """
    if not uri:
        raise StreamerError('the step has no model; set "modelUri" to its path')
    if is_remote(uri):
        return _fetcher(uri).fetch(uri, context.progress)
    path = context.path(uri)
    if path.is_dir() and (numbers := versions_in(path)):
        return _of_version(path, numbers, context, folder=folder)
    if path.is_file() or (folder and path.is_dir()):
        return path
    what = "is a folder, not a model file" if path.is_dir() else "is not there"
    raise StreamerError(f'the model {path} {what}; relative paths start at {context.base}, set "modelUri" to it')


def _of_version(path: Path, numbers: Sequence[int], context: OpenContext, *, folder: bool) -> Path:
    chosen = context.versions.get(path)
    for number in numbers if chosen is None else (chosen,):
        model = model_in(path / str(number), folder=folder)
        if model is not None:
            return model
    named = f"versions {', '.join(map(str, numbers))}" if chosen is None else f"version {chosen}"
    raise StreamerError(
        f"the model {path} has no model in {named}: a version is a folder with one file, or with one named model.*, "
        "such as 1/model.onnx"
    )


def is_remote(uri: str) -> bool:
    """Whether a model has to be fetched."""
    return "://" in uri and not uri.lower().startswith("file:")


def shortened(uri: str) -> str:
    """A model's URL for messages: without user, password, query and fragment, which may be secrets."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return uri
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def uses_identity(uri: str) -> bool:
    """Whether the model is fetched with credentials of this machine or user. URLs that nothing can fetch are not."""
    registered = fetchers().known.get(_scheme(uri)) if is_remote(uri) else None
    return registered is not None and bool(getattr(registered.part, "uses_identity", False))


def is_here(uri: str) -> bool:
    """Whether the model's fetcher has it in its cache. Raises `StreamerError` if no fetcher knows the URL's scheme."""
    return _fetcher(uri).cached(uri) is not None


def _fetcher(uri: str) -> ModelFetcher:
    scheme = _scheme(uri)
    registered = fetchers().find(scheme)
    if registered is None or registered.part is None:
        schemes = ", ".join(sorted({"file", *fetchers().known}))
        raise StreamerError(
            f'nothing can fetch the model "{shortened(uri)}" (there are {schemes}); download it and set "modelUri" '
            f"to its path, or install a plug-in for {scheme} (group {FETCHER_GROUP})"
        )
    return registered.part


def _scheme(uri: str) -> str:
    return uri.partition("://")[0].lower()


@cache
def fetchers() -> Catalog[ModelFetcher]:
    """The fetchers of this process by the schemes of their URLs."""
    return Catalog(
        "model fetcher", FETCHER_GROUP, _checked, lambda fetcher: fetcher.schemes, "connectors", _may_hold_fetchers
    )


def _may_hold_fetchers(module: str) -> bool:
    return module.endswith(".download")


def _checked(value: object) -> ModelFetcher:
    wanted = ("schemes", "cached", "fetch")
    if isinstance(value, type) or not all(hasattr(value, name) for name in wanted):
        raise TypeError(f"the entry point must name an object with {', '.join(wanted)}")
    return cast(ModelFetcher, value)
