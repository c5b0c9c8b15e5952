"""The JSON schema of service files, for editors and linters: from the models of the service and of every connector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

import pipelines
from connectors.codecs.registry import CODECS
from connectors.registry import SINKS, SOURCES
from pipelines.errors import DISTRIBUTION
from pipelines.plugins.catalog import Catalog
from streamer.batching.registry import BATCHERS
from streamer.definition.konduit import InferenceConfiguration, konduit_keys
from streamer.definition.service import Service
from streamer.definition.settings import BatcherSettings, BatchSettings
from streamer.models.settings import Variant

SCHEMA_ID: Final = f"urn:{DISTRIBUTION}:service"
"""`$id` of the schema."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE: Final = {"$ref": "#/$defs/reference"}
_DEFS: Final = "#/$defs/{model}"
_NOTES: Final = ("title", "description", "default", "examples")


def service_schema() -> dict[str, Any]:
    """The schema of one YAML document of a service file, with every connector and pipeline step that is installed.

    Titles and descriptions are those of the models' fields. Where a number, boolean or fixed word stands, a text with
    a `${VAR}` may stand too.
    """
    service = Service.model_json_schema(ref_template=_DEFS)
    defs: dict[str, Any] = {
        "reference": {"type": "string", "pattern": r"\$\{[^}]+\}", "description": "A text with a ${VAR} in it."},
        **{name: _with_references(model) for name, model in service.pop("$defs").items()},
    }
    source, sink, codec = (_one_of(catalog, defs) for catalog in (SOURCES, SINKS, CODECS))
    named = {"enum": sorted(CODECS.load_all())}
    for key, model in defs.items():
        if key.startswith(("source-", "sink-", "codec-")) and "codec" in model["properties"]:
            described = {name: note for name, note in model["properties"]["codec"].items() if name != "anyOf"}
            model["properties"]["codec"] = {**described, "anyOf": [named, codec, _REFERENCE]}
    properties = {
        key: value if key in ("source", "pipeline", "sink", "dead_letter") else _with_reference(value)
        for key, value in service["properties"].items()
    }
    properties["source"] |= _or_list_of(source)
    properties["pipeline"] |= _pipeline(defs)
    properties["sink"] |= _or_list_of(sink)
    defs[Variant.__name__]["properties"]["sink"] |= {"anyOf": [sink, {"type": "null"}]}
    del defs[BatcherSettings.__name__]
    properties["batch"] = _batch(properties["batch"], defs)
    properties["dead_letter"] |= {"anyOf": [sink, {"type": "null"}]}
    for key in properties.keys() - set(service["required"]):
        # A key whose section is commented out has the value null, which is ignored. This is not written with anyOf, for
        # which editors do not show the place of a mistake inside.
        notes, kept = _apart(properties[key])
        properties[key] = {**notes, "if": {"not": {"type": "null"}}, "then": kept}
    konduit = InferenceConfiguration.model_json_schema(ref_template=_DEFS)
    defs |= konduit.pop("$defs", {})
    konduit["properties"]["pipeline"] = properties["pipeline"]
    defs["konduit"] = konduit
    return {
        "$schema": _DIALECT,
        "$id": SCHEMA_ID,
        "title": "Service",
        "description": service["description"].partition("\n\n")[0],
        "type": "object",
        "properties": properties,
        "if": {
            "anyOf": [{"required": [key]} for key in sorted(konduit_keys())],
            "not": {"anyOf": [{"required": ["source"]}, {"required": ["sink"]}]},
        },
        "then": {"$ref": "#/$defs/konduit"},
        "else": {
            "required": service["required"],
            "properties": dict.fromkeys(properties, True),
            "additionalProperties": False,
        },
        "$defs": defs,
    }


def _one_of(catalog: Catalog[Any], defs: dict[str, Any]) -> dict[str, Any]:
    """The schema of the connectors or codecs of one kind, with `type` as discriminator; their models go into `defs`."""
    references = []
    for name, model in catalog.load_all().items():
        key = f"{catalog.kind}-{name}"
        defs[key] = _connector(model, name, defs)
        references.append({"$ref": f"#/$defs/{key}"})
    defs[catalog.kind] = {"oneOf": references, "discriminator": {"propertyName": "type"}}
    return {"$ref": f"#/$defs/{catalog.kind}"}


def _connector(model: type[BaseModel], name: str, defs: dict[str, Any]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=_DEFS)
    defs.update({inner: _with_references(inner_schema) for inner, inner_schema in schema.pop("$defs", {}).items()})
    schema = _with_references(schema)
    described = schema["properties"]["type"].get("description", f"Which {name} this is.")
    schema["properties"]["type"] = {"const": name, "description": described}
    schema["required"] = ["type", *(key for key in schema.get("required", []) if key != "type")]
    return schema


def _batch(field: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """The field `batch`: the model that `type` chooses, that of our batchers without one."""
    defs.update(_models(BatchSettings, BatchSettings.__name__))
    chosen: dict[str, Any] = {"$ref": f"#/$defs/{BatchSettings.__name__}"}
    for name, batcher in BATCHERS.load_all().items():
        if batcher.settings is not BatchSettings:
            key = f"batcher-{name}"
            defs[key] = _connector(batcher.settings, name, defs)
            is_chosen = {"required": ["type"], "properties": {"type": {"const": name}}}
            chosen = {"if": is_chosen, "then": {"$ref": f"#/$defs/{key}"}, "else": chosen}
    return {**_apart(field)[0], **chosen}


def _models(model: type[BaseModel], name: str) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=_DEFS)
    inner = schema.pop("$defs", {})
    return {key: _with_references(value) for key, value in {**inner, name: schema}.items()}


def _pipeline(defs: dict[str, Any]) -> dict[str, Any]:
    schema = pipelines.pipeline_schema()
    # `${VAR}` is not replaced within steps, so these models get no references.
    defs.update(schema.pop("$defs"))
    defs["pipeline"] = schema
    steps = {"$ref": "#/$defs/sequence/properties/steps"}
    return {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/pipeline"}, steps]}


def _or_list_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "array", "items": schema, "minItems": 1}]}


def _with_references(schema: dict[str, Any]) -> dict[str, Any]:
    if "properties" not in schema:
        return schema
    return {**schema, "properties": {key: _with_reference(value) for key, value in schema["properties"].items()}}


def _with_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """The field's schema, which also accepts a text with a reference where the field would not accept any text."""
    if any(_takes_any_text(choice) for choice in (schema, *schema.get("anyOf", ()))):
        return schema
    notes, kept = _apart(schema)
    if kept.get("type") in ("array", "object") or not kept or "$ref" in str(kept):
        return schema
    choices = kept["anyOf"] if list(kept) == ["anyOf"] else [kept]
    return {**notes, "anyOf": [*choices, _REFERENCE]}


def _apart(schema: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The annotations of a schema, for people, and its constraints on values."""
    notes = {key: value for key, value in schema.items() if key in _NOTES}
    return notes, {key: value for key, value in schema.items() if key not in notes}


def _takes_any_text(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "string" and not schema.keys() & {"enum", "const", "pattern", "format"}
