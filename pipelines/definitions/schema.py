"""JSON schemas of pipeline definitions, for editors."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from pipelines.batching import BATCH_KEY, batch_schema
from pipelines.plugins.registry import TYPE_GROUPS, Registry, default_registry
from pipelines.steps import CombineFunction, GraphStep, Step, SwitchFunction, Trigger, Typed
from pipelines.steps.base import TYPE_KEY

_TEXT = {"type": "string"}
_INPUTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}


def pipeline_schema(registry: Registry | None = None) -> dict[str, Any]:
    """The schema of a definition: of a sequence, whose steps are a list, or of a graph, whose steps are a mapping.

    Its `$defs` are `sequence`, `graph` and the models of all types that the registry knows.
    """
    definitions, references = _models(registry or default_registry())
    labels = {"id": _TEXT, "name": _TEXT, BATCH_KEY: batch_schema(), "@AsyncTrigger": {"oneOf": references[Trigger]}}
    sequence = {
        "type": "object",
        "title": "Sequence",
        "properties": {"steps": {"type": "array", "items": {"oneOf": references[Step]}}, **labels},
        "required": ["steps"],
    }
    node = {
        "oneOf": [*references[Step], *references[GraphStep]],
        "properties": {"@input": _INPUTS, "@inputs": _INPUTS},
        "anyOf": [{"required": ["@input"]}, {"required": ["@inputs"]}],
    }
    steps = {"type": "object", "additionalProperties": node, "minProperties": 1}
    graph = {
        "type": "object",
        "title": "Graph",
        "properties": {"outputStep": _TEXT, "steps": steps, **labels},
        "required": ["steps"],
    }
    return {
        "title": "Pipeline",
        "anyOf": [{"$ref": "#/$defs/sequence"}, {"$ref": "#/$defs/graph"}],
        "$defs": {"sequence": sequence, "graph": graph, **definitions},
    }


def _models(registry: Registry) -> tuple[dict[str, Any], dict[type[Typed], list[Any]]]:
    known = {base: list(registry.types(base).values()) for base in TYPE_GROUPS.values()}
    models = [(model, "validation") for models in known.values() for model in models]
    named, schema = models_json_schema(models)  # type: ignore[arg-type]
    references = {base: [named[model, "validation"] for model in models] for base, models in known.items()}
    definitions: dict[str, Any] = schema.get("$defs", {})
    for model, _ in models:
        definition = definitions[named[model, "validation"]["$ref"].rpartition("/")[2]]
        parts = {
            model.key(field): {"oneOf": references[base]}
            for field, kind in model.parts.items()
            for base in (SwitchFunction, CombineFunction)
            if base.kind == kind
        }
        definition["properties"] = {
            TYPE_KEY: {"const": model.type_name},
            **definition.get("properties", {}),
            **parts,
        }
        definition["required"] = [TYPE_KEY, *definition.get("required", [])]
        definition["additionalProperties"] = True
    return definitions, references
