"""Paths of models: `/v2/models/NAME` and `/v2/models/NAME/versions/VERSION`; a name may hold any character."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connectors.http.endpoint.model import ServedModel
from connectors.http.endpoint.request import Answer
from pipelines.errors import nearest

MODELS: Final = "/v2/models/"
INFER: Final = "/infer"
VERSIONS: Final = "/versions/"


def found_model(models: Mapping[str, ServedModel], named: str) -> ServedModel | Answer:
    """The model of this name, or `NAME/versions/VERSION`; the answer 404 if there is none."""
    model = models.get(named)
    if model is not None:
        return model
    name, versions, version = named.rpartition(VERSIONS)
    return of_version(models, name, version) if versions else of_version(models, named, "")


def of_version(models: Mapping[str, ServedModel], name: str, version: str) -> ServedModel | Answer:
    """The model of this name in this version, the current one if it is empty; the answer 404 if there is none."""
    model = models.get(name)
    if model is None:
        known = f"there is {', '.join(models)}" if models else "there is none"
        return Answer.refusal(404, f'there is no model "{name}"{nearest(name, models)}; {known}')
    if version not in ("", model.version):
        return Answer.refusal(404, f'the model "{name}" has no version "{version}"; there is {model.version}')
    return model
