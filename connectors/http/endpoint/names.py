"""Paths of models: `/v2/models/NAME` and `/v2/models/NAME/versions/VERSION`; a name may hold any character."""

from __future__ import annotations

from typing import Final, NamedTuple

from connectors.http.endpoint.model import ServedModel
from connectors.http.endpoint.repository.models import Models
from connectors.http.endpoint.request import Answer

MODELS: Final = "/v2/models/"
INFER: Final = "/infer"
VERSIONS: Final = "/versions/"


class Named(NamedTuple):
    """What a request is for."""

    model: ServedModel
    version: str = ""
    """The version that it names, where there are several; empty: any."""


def named_model(models: Models, named: str) -> Named | Answer:
    """The model of this name, or `NAME/versions/VERSION`; the answer if there is none."""
    model = models.get(named)
    if model is not None:
        return Named(model)
    name, versions, version = named.rpartition(VERSIONS)
    return of_version(models, name, version) if versions else of_version(models, named, "")


def of_version(models: Models, name: str, version: str) -> Named | Answer:
    """The model of this name in this version, or variant, any if it is empty; the answer if there is none."""
    model = models.get(name)
    if model is None:
        return models.absent(name)
    names = model.served.names()
    if version and version in names:
        return Named(model, version)
    # A version folder that has had other contents before has the label NUMBER.OPENING, and its number still names it.
    if version not in ("", model.version, model.version.partition(".")[0]):
        there = ", ".join(names) or model.version
        return Answer.refusal(404, f'the model "{name}" has no version "{version}"; there is {there}')
    return Named(model)
