"""Checks of a service that need connections: the topics of its buses, codecs, and opening the pipeline."""

from __future__ import annotations

from functools import partial

from connectors.browser import Browser
from connectors.codecs.config import CodecConfig
from connectors.config import ConnectorConfig, SinkConfig, SourceConfig
from pipelines.definitions.walk import walk
from pipelines.errors import ConnectorError, DefinitionError, nearest
from pipelines.plugins.requirements import required
from pipelines.steps.base import Step
from streamer.cli.findings import Finding, finding
from streamer.definition.connectors.listed import connectors_of
from streamer.definition.openedpipeline import opened_pipeline
from streamer.definition.service import Service
from streamer.definition.settings import StateTopicSettings


def reached(service: Service) -> list[Finding]:
    """Look for the topics of connectors on their buses, as far as buses can list them, and open the pipeline."""
    findings = []
    # Errors of buses that do not answer, by address, so that each is waited for only once.
    silent: dict[str, ConnectorError] = {}
    joins = any(isinstance(each.what, Step) and each.what.joined_topics for each in walk(service.sequence()))
    for connector in connectors_of(service):
        config = connector.config
        part = f"dead letter {config.label}" if connector.role == "dead_letter" else connector.part
        if (browser := config.browser()) is not None:
            findings.append(finding(part, partial(_topics, browser, _names(config), silent)))
            if joins and isinstance(config, SourceConfig) and findings[-1].ok and len(config.topic_names) > 1:
                findings.append(finding(f"joined topics of {part}", partial(_alike, browser, config.topic_names)))
            state = service.state
            if isinstance(state, StateTopicSettings) and isinstance(config, SourceConfig) and findings[-1].ok:
                findings.append(finding("state", partial(_state, config, state.topic)))
        findings += _codecs(part, config)
    findings.append(finding("pipeline", partial(_opened, service)))
    return findings


def _alike(browser: Browser, topics: tuple[str, ...]) -> str:
    """Records of these topics are joined by partition."""
    if browser.checked(topics) is not None:
        return "have no partitions"
    known = browser.topics()
    counts = {
        name: known[name]
        for topic in topics
        for name in (browser.matching(topic, known) if topic.startswith("^") else [topic])
    }
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise DefinitionError(
            f"records are joined by partition, and these topics have different numbers of them: {said}; give them as "
            "many each, and write the records by the same key"
        )
    return "have as many partitions each"


def _state(source: SourceConfig, topic: str) -> str:
    """The state of the steps is in a topic beside those of the source."""
    return source.build_state(topic).checked()


def _codecs(part: str, config: ConnectorConfig) -> list[Finding]:
    """Checks of the codecs of a connector that depend on a server, such as a schema registry."""
    topic = config.addressing.topic if isinstance(config, SinkConfig) and config.addressing is not None else None
    findings: list[Finding] = []
    for key, codec in config.codecs.items():
        asked = codec.with_sink_topic(topic)
        if type(asked).ask is not CodecConfig.ask:
            what = "codec of keys" if key.startswith("key") else "codec"
            result = finding(f"{what} of {part}", partial(_asked, asked))
            if result.text or not result.ok:
                findings.append(result)
    return findings


def _asked(codec: CodecConfig) -> str:
    required(codec.needs).check(f"the codec {codec.type}")
    return codec.ask() or ""


def _opened(service: Service) -> str:
    with opened_pipeline(service):
        return "opens"


def _names(config: ConnectorConfig) -> tuple[str, ...]:
    if isinstance(config, SourceConfig):
        return config.topic_names
    addressing = config.addressing if isinstance(config, SinkConfig) else None
    if addressing is None:
        return ()
    # A topic made from values is one of the allowed `topics`, which are names or regular expressions.
    return (addressing.topic, *addressing.topics) if "{" in addressing.topic else (addressing.topic,)


def _topics(browser: Browser, wanted: tuple[str, ...], silent: dict[str, ConnectorError]) -> str:
    if browser.address in silent:
        raise silent[browser.address]
    try:
        said = browser.checked(wanted)
        known = {} if said is not None else browser.topics()
    except ConnectorError as error:
        if error.retriable:
            silent[browser.address] = error
        raise
    if said is not None:
        return said
    notes = []
    for topic in wanted:
        if topic.startswith("^"):
            notes.append(f"{len(browser.matching(topic, known))} topics match {topic}")
        elif "{" in topic:
            notes.append(f"{topic} is made from values")
        elif topic in known:
            notes.append(f"{topic} has {known[topic]} partition{'' if known[topic] == 1 else 's'}")
        else:
            raise ConnectorError(f'{browser.address} has no topic "{topic}"{nearest(topic, known)}; create it')
    return f"{browser.address}: {', '.join(notes)}"
