"""The checks of a source's or sink's fields that its own model cannot make."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from connectors.config import ConnectorConfig, SinkConfig, SourceConfig
from pipelines.conditions.condition import condition
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
