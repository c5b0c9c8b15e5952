"""The OpenAPI document of a listener, made from its models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from connectors.http.endpoint import metadata
from connectors.http.endpoint.model import ServedModel
from connectors.http.endpoint.repository.requests import COMMANDS, INDEX
from pipelines.runners.models.model import Port

_TEXT: Final = {"type": "string"}
_ERROR: Final = {
    "description": "what was wrong",
    "content": {
        "application/json": {"schema": {"type": "object", "required": ["error"], "properties": {"error": _TEXT}}}
    },
}
_NAME: Final = {"type": "string", "minLength": 1}
_PARAMETERS: Final = {
    "type": "object",
    "additionalProperties": {"anyOf": [_TEXT, {"type": "number"}, {"type": "boolean"}]},
}
_DATATYPES: Final = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "BF16", "BYTES"),
)
_PROPERTIES: Final[dict[str, Any]] = {
    "name": _NAME,
    "shape": {"type": "array", "items": {"type": "integer"}},
    "datatype": {"type": "string", "enum": list(_DATATYPES)},
    "parameters": _PARAMETERS,
    "data": {"type": "array", "items": {}},
}
_TENSOR: Final = {"type": "object", "required": ["name", "shape", "datatype"], "properties": _PROPERTIES}
_SENT: Final = {**_TENSOR, "required": ["name", "shape", "datatype", "data"]}
_ENTRY: Final = ("name", "version", "state", "reason")
"""What there is about a model in the index."""
_ANSWER: Final = {
    "type": "object",
    "required": ["model_name", "outputs"],
    "properties": {
        "model_name": _TEXT,
        "model_version": _TEXT,
        "id": _TEXT,
        "parameters": _PARAMETERS,
        "outputs": {"type": "array", "items": _TENSOR},
    },
}


def document(models: Sequence[ServedModel], *, controlled: bool = False) -> dict[str, Any]:
    """OpenAPI 3.0: the paths of the protocol, and for each model its path with the names of its tensors.

    `controlled`: whether requests may load and unload models.
    """
    server = metadata.server()
    paths: dict[str, Any] = {
        "/v2": {"get": _read("the server", _object("name", "version", "extensions"))},
        "/v2/health/live": {"get": _read("whether the process makes progress", _object("live"), 503)},
        "/v2/health/ready": {"get": _read("whether all models answer", _object("ready"), 503)},
        "/v2/models": {"get": _read("the models", _object("models"))},
        INDEX: {"post": _index()},
    }
    if controlled:
        paths |= {f"{COMMANDS}{{name}}/{verb}": {"post": _command(verb)} for verb in ("load", "unload")}
    for model in models:
        path = f"/v2/models/{quote(model.name)}"
        paths[path] = {"get": _read("inputs and outputs", _object("name", "versions", "platform", "inputs", "outputs"))}
        paths[f"{path}/ready"] = {"get": _read("whether the model answers", _object("name", "ready"), 503)}
        if model.speaks_inference:
            paths[f"{path}/infer"] = {"post": _inference(model)}
    return {
        "openapi": "3.0.3",
        "info": {"title": server["name"], "version": server["version"]},
        "paths": paths,
    }


def _read(text: str, schema: dict[str, Any], *statuses: int) -> dict[str, Any]:
    content = {"description": text, "content": {"application/json": {"schema": schema}}}
    return {"summary": text, "responses": {"200": content, **{str(status): content for status in statuses}}}


def _index() -> dict[str, Any]:
    entry = {"type": "object", "required": ["name", "state"], "properties": dict.fromkeys(_ENTRY, _TEXT)}
    answer = {"type": "array", "items": entry}
    request = {"type": "object", "properties": {"ready": {"type": "boolean"}}}
    return _sent("all models with their states", request, answer, 400, 408, 413, 415)


def _command(verb: str) -> dict[str, Any]:
    values = {"anyOf": [_TEXT, {"type": "number"}, {"type": "boolean"}, {"type": "object"}]}
    parameters = {"type": "object", "additionalProperties": values}
    request = {"type": "object", "properties": {"parameters": parameters}}
    answer = {**_object("name"), "properties": {"name": _TEXT}}
    about = _sent(f"{verb} a model", request, answer, 400, 401, 408, 409, 413, 415, 503)
    return {**about, "parameters": [{"name": "name", "in": "path", "required": True, "schema": _NAME}]}


def _sent(text: str, request: dict[str, Any], answer: dict[str, Any], *wrong: int) -> dict[str, Any]:
    """A request whose body may be left out."""
    content = {"description": text, "content": {"application/json": {"schema": answer}}}
    return {
        "summary": text,
        "requestBody": {"content": {"application/json": {"schema": request}}},
        "responses": {"200": content, **{str(status): _ERROR for status in wrong}},
    }


def _object(*names: str) -> dict[str, Any]:
    return {"type": "object", "required": list(names)}


def _inference(model: ServedModel) -> dict[str, Any]:
    inputs = model.served.ports.inputs
    tensor: dict[str, Any] = _SENT
    if inputs:
        tensor = {"anyOf": [_input(port) for port in (*inputs, *model.served.ports.optional)]}
    request = {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": _TEXT,
            "parameters": _PARAMETERS,
            "inputs": {"type": "array", "items": tensor, "minItems": 1},
            "outputs": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": _NAME, "parameters": _PARAMETERS},
                },
            },
        },
    }
    answer = {"description": "the outputs", "content": {"application/json": {"schema": _ANSWER}}}
    wrong = {str(status): _ERROR for status in (400, 408, 413, 415, 422, 500, 501, 503, 504)}
    return {
        "summary": "run the model",
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": {"200": answer, **wrong},
    }


def _input(port: Port) -> dict[str, Any]:
    """The tensor that a request has for this input."""
    lengths = metadata.shape_of(port)
    shape: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    if port.shape is not None:
        # One sample may come without the axis of samples.
        shape |= {
            "minItems": max(0, len(lengths) - 1),
            "maxItems": len(lengths),
            "example": [max(1, length) for length in lengths],
        }
    named = {
        "name": {**_TEXT, "enum": [port.name]},
        "datatype": {**_TEXT, "enum": [metadata.datatype_of(port.dtype)]},
        "shape": shape,
    }
    return {**_SENT, "properties": {**_PROPERTIES, **named}}
