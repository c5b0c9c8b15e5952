"""The checks of a source's or sink's fields that its own model cannot make."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from connectors.codecs.registry import codec_config
from connectors.config import ConnectorConfig, SinkConfig, SourceConfig
from connectors.metadata.typedfields import TypedKeys
from pipelines.conditions.condition import condition, singly
from pipelines.data.data import Data
from pipelines.errors import DefinitionError
from streamer.routing.sinkroute import check_topics


def checks(config: ConnectorConfig, sources: Sequence[SourceConfig] | None = None) -> dict[str, Callable[[], object]]:
    """Checks by field that a connector's model cannot make; each raises `StreamerError` if the field is invalid.

    `sources` are the service's sources, whose records a sink's topic may be made from; `None`: not known.
    """
    field_checks: dict[str, Callable[[], object]] = {"codec": config.check_codec}
    if isinstance(config, SourceConfig):
        field_checks["into"] = lambda: _check_into(config)
        field_checks["where"] = lambda: _check_where(config)
        if isinstance(config, TypedKeys):
            field_checks["key"] = config.check_key
    if isinstance(config, SinkConfig):
        field_checks["outbox"] = config.check_outbox
        if config.when is not None:
            described = config.when
            field_checks["when"] = lambda: condition(described)
        names = None if sources is None else record_names(sources)
        if sources is not None:
            field_checks["sources"] = lambda: config.check_sources([source.label for source in sources])
        field_checks["topic"] = lambda: check_topics(config, names)
    return field_checks


def shadow_checks(config: SinkConfig, sources: Sequence[SourceConfig] | None = None) -> dict[str, Callable[[], object]]:
    """The same for the sink of a shadow's results, which nobody waits for."""
    return {
        "type": lambda: _check_type(config),
        "errors": lambda: _check_no(config.errors, "a shadow answers nobody"),
        "when_full": lambda: _check_no(config.when_full == "wait", "nothing ever waits for the results of a shadow"),
        **({} if config.answers else checks(config, sources)),
    }


def record_names(sources: Sequence[SourceConfig]) -> list[str]:
    """Names of metadata that these sources declare besides those of all records; topics may use them."""
    return [name for source in sources for name in source.record_names]


def _check_type(config: SinkConfig) -> None:
    if config.answers:
        raise DefinitionError(
            f"a sink of type {config.type} answers clients, which get the results of the service, and not those of its "
            "shadow; choose a topic or a file"
        )


def _check_no(given: bool, why: str) -> None:
    if given:
        raise DefinitionError(f"{why}; remove it")


def _check_into(config: SourceConfig) -> None:
    config.check_into()
    Data(dict.fromkeys(config.into.values(), ""))


def _check_where(config: SourceConfig) -> None:
    of_payload = sorted(condition(singly(config.where)).names - config.undecoded_keys)
    if of_payload and any(codec.several for codec in codec_config(config.codec).layers):
        raise DefinitionError(
            f'"{of_payload[0]}" is a value of the payload, which holds several records (each: true), and only whole '
            "payloads can pass by; name metadata that into makes values of, or have a step drop the records: a MAP by "
            "its where, or a FUNCTION that returns None"
        )
