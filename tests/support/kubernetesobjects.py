"""Whether Kubernetes, KEDA and the Prometheus operator take objects: unknown fields and wrong types are refused."""

from __future__ import annotations

from typing import Any

import jsonschema
import kubernetes_validate

VERSIONS = ("1.27", "1.37")
"""The oldest Kubernetes that the chart allows, and the newest whose schemas the package `kubernetes-validate` has."""

_TEXT = {"type": "string"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_METADATA = {"type": "object"}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(required),
    }


def _whole(kind: str, version: str, spec: dict[str, Any]) -> dict[str, Any]:
    head = {"apiVersion": {"const": version}, "kind": {"const": kind}, "metadata": _METADATA}
    return _object(("apiVersion", "kind", "metadata", "spec"), **head, spec=spec)


_SELECTOR = _object(("matchLabels",), matchLabels=_TEXTS)
_KEY = _object(("name", "key"), name=_TEXT, key=_TEXT)
_ENDPOINTS = {
    "type": "array",
    "minItems": 1,
    "items": _object(
        ("port",),
        port=_TEXT,
        path=_TEXT,
        interval={"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"},
        authorization=_object(type=_TEXT, credentials=_KEY),
    ),
}
_RULE = _object(
    ("expr",),
    alert=_TEXT,
    record=_TEXT,
    expr=_TEXT,
    **{"for": _TEXT, "keep_firing_for": _TEXT},
    labels=_TEXTS,
    annotations=_TEXTS,
)
_RULES = _object(("name", "rules"), name=_TEXT, interval=_TEXT, rules={"type": "array", "items": _RULE})
_COUNT = {"type": "integer", "minimum": 0}
_TRIGGER = _object(
    ("type", "metadata"), type=_TEXT, metadata=_TEXTS, authenticationRef=_object(("name",), name=_TEXT), name=_TEXT
)
_KAFKA = {
    "if": {"properties": {"type": {"const": "kafka"}}},
    "then": {
        "properties": {
            "metadata": _object(
                ("bootstrapServers", "consumerGroup"),
                **dict.fromkeys(
                    ("bootstrapServers", "consumerGroup", "topic", "lagThreshold", "activationLagThreshold"), _TEXT
                ),
                offsetResetPolicy={"enum": ["earliest", "latest"]},
                sasl={"enum": ["none", "plaintext", "scram_sha256", "scram_sha512", "gssapi", "oauthbearer"]},
                tls={"enum": ["enable", "disable"]},
            )
        }
    },
}
_BEHAVIOR = _object(
    stabilizationWindowSeconds=_COUNT,
    policies={
        "type": "array",
        "items": _object(
            ("type", "value", "periodSeconds"), type={"enum": ["Pods", "Percent"]}, value=_COUNT, periodSeconds=_COUNT
        ),
    },
)
_CUSTOM = {
    "PodMonitor": _whole(
        "PodMonitor",
        "monitoring.coreos.com/v1",
        _object(
            ("selector", "podMetricsEndpoints"), jobLabel=_TEXT, selector=_SELECTOR, podMetricsEndpoints=_ENDPOINTS
        ),
    ),
    "ServiceMonitor": _whole(
        "ServiceMonitor",
        "monitoring.coreos.com/v1",
        _object(("selector", "endpoints"), jobLabel=_TEXT, selector=_SELECTOR, endpoints=_ENDPOINTS),
    ),
    "PrometheusRule": _whole(
        "PrometheusRule",
        "monitoring.coreos.com/v1",
        _object(("groups",), groups={"type": "array", "minItems": 1, "items": _RULES}),
    ),
    "ScaledObject": _whole(
        "ScaledObject",
        "keda.sh/v1alpha1",
        _object(
            ("scaleTargetRef", "triggers"),
            scaleTargetRef=_object(("name",), apiVersion=_TEXT, kind=_TEXT, name=_TEXT),
            minReplicaCount=_COUNT,
            maxReplicaCount=_COUNT,
            pollingInterval=_COUNT,
            cooldownPeriod=_COUNT,
            advanced=_object(
                horizontalPodAutoscalerConfig=_object(behavior=_object(scaleDown=_BEHAVIOR, scaleUp=_BEHAVIOR))
            ),
            triggers={"type": "array", "minItems": 1, "items": {"allOf": [_TRIGGER, _KAFKA]}},
        ),
    ),
}
"""The fields of custom resources that the chart may use, from the documents of KEDA 2 and the Prometheus operator."""


def mistakes(item: dict[str, Any]) -> list[str]:
    """What is wrong with an object, in words; nothing if it is valid for each of `VERSIONS`."""
    if item["kind"] in _CUSTOM:
        return [error.message for error in jsonschema.Draft202012Validator(_CUSTOM[item["kind"]]).iter_errors(item)]
    wrong = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(item, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            wrong.append(f"{version}: {'.'.join(map(str, error.path))}: {error.message}")
    return wrong
