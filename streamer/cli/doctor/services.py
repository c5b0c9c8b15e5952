"""A service file on the page of `streamer doctor`: findings of `streamer check --connect`, in short, and needs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from connectors.config import ConnectorConfig
from connectors.http.endpoint.config import HttpSourceConfig
from connectors.mqtt.endpoint.config import MqttEndpointSourceConfig
from pipelines.errors import ConnectorError, DefinitionError
from streamer.build.uses import used_by
from streamer.cli.doctor.asking import asked
from streamer.cli.doctor.clock import newest_record
from streamer.cli.doctor.line import Line, Section
from streamer.cli.doctor.machine import disk, open_file_limit, raise_open_files
from streamer.cli.findings import Finding, examined, finding
from streamer.cli.reach import reached
from streamer.definition.connectors.listed import connectors_of, sinks_of
from streamer.definition.loading import load_all
from streamer.definition.nocode import NoCode
from streamer.definition.refusals import refused
from streamer.definition.service import Service

_WAIT: Final = 60.0
"""Seconds for each of three looks at a service: its parts, its servers, the clock."""
_NAMED: Final = re.compile(r"(?<!\$)\$\{([A-Za-z_]\w*)")
_LONGEST: Final = 1 << 20
_FILES: Final = 40
"""Open files of a process that runs a service, without most of those of its connectors: a service from topic to topic
on one broker was measured with 31."""
_EACH: Final = 20
"""Open files of a connector: connections to brokers, of which a client of Kafka has one to each and some more."""


def sections(file: Path, no_code: NoCode | None) -> Iterator[Section]:
    """The sections of a file, one for each of its services, as they are done.

    Args:
        file: The service file.
        no_code: The exceptions for a file that may run no code; `None` where it may.
    """
    try:
        services = load_all(file, no_code=no_code)
    except DefinitionError as error:
        yield Section(str(file), [Line("file", "wrong", problem, of_file=True) for problem in error.problems])
        return
    for service in services:
        yield Section(f"{file}: service {service.name}", _service(file, service))


def variables_in(file: Path) -> list[str]:
    """The names of the environment variables that stand in a service file as `${NAME}`, sorted; none if it cannot be
    read."""
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return sorted(set(_NAMED.findall(stream.read(_LONGEST))))
    except OSError:
        return []


def _service(file: Path, service: Service) -> list[Line]:
    lines = asked("check", partial(_examined, service), _WAIT)
    lines += [_packages(service), *_variables(file, service), _open_files(service), *_disks(service)]
    if refused(service):
        # Connecting might run the refused code.
        return lines
    answers: list[Finding] = []
    lines += asked("brokers", partial(_reached, service, answers), _WAIT)
    # A bus that does not answer is not asked again.
    silent = {answer.part for answer in answers if not answer.ok}
    lines += asked("clock", partial(_clocks, service, silent), _WAIT)
    return lines


def _examined(service: Service) -> list[Line]:
    findings = examined(service).findings
    wrong = [finding for finding in findings if not finding.ok]
    noted = [finding for finding in findings if finding.ok and "; note: " in finding.text]
    lines = [Line("check", "ok", f"{len(findings) - len(wrong)} of {len(findings)} parts are right")]
    lines += [Line(finding.part, "wrong", finding.text, of_file=True) for finding in wrong]
    return lines + [Line(finding.part, "warning", finding.text) for finding in noted]


def _reached(service: Service, answers: list[Finding]) -> list[Line]:
    answers += reached(service)
    first: dict[str, str] = {}
    lines = []
    for answer in answers:
        part = first.setdefault(answer.text, answer.part)
        text = answer.text if part == answer.part else f"as {part}"
        lines.append(Line(answer.part, "ok" if answer.ok else "wrong", text))
    return lines


def _packages(service: Service) -> Line:
    """The extras that a service needs; what lacks is in the findings of the check."""

    def needed() -> str:
        uses = used_by(service)
        extras = sorted({package.extra for package in uses.packages if package.extra})
        plugins = sorted(uses.distributions)
        return f"{', '.join(extras) or 'none'}" + (f"; and the plug-ins {', '.join(plugins)}" if plugins else "")

    answer = finding("extras needed", needed)
    return Line(answer.part, "ok" if answer.ok else "wrong", answer.text, of_file=not answer.ok)


def _variables(file: Path, service: Service) -> Iterator[Line]:
    """Whether the variables of a file are set; never their values."""
    names = {name for each in connectors_of(service) for name in each.config.variables} | set(variables_in(file))
    if names:
        states = [f"{name} is {'set' if os.environ.get(name) else 'not set'}" for name in sorted(names)]
        yield Line("variables", "ok", ", ".join(states))


def _open_files(service: Service) -> Line:
    needed = _FILES + sum(_EACH + _connections(each.config) for each in connectors_of(service))
    limit = open_file_limit()
    text = f"it needs about {needed:,}"
    if limit is None or limit[0] < 0 or limit[0] >= needed:
        return Line("open files", "ok", text)
    return Line("open files", "wrong", f"{text}, and may have {limit[0]:,}", raise_open_files(2 * needed))


def _connections(config: ConnectorConfig) -> int:
    """Connections that a connector may have besides those to brokers."""
    if isinstance(config, (HttpSourceConfig, MqttEndpointSourceConfig)):
        return config.connections
    cameras: object = getattr(config, "cameras", None)
    # RTSP over UDP has a socket for control and two for pictures.
    return 4 * len(cameras) if isinstance(cameras, Mapping) else 0


def _disks(service: Service) -> Iterator[Line]:
    """Room where the service writes: outboxes, and files of sinks."""
    for config in sinks_of(service):
        folders = {path.parent for path in config.file_keys.values()}
        yield from (disk(f"disk of {config.label}", folder) for folder in sorted(folders))


def _clocks(service: Service, silent: set[str]) -> list[Line]:
    lines = []
    for config in service.sources:
        browser = None if f"source {config.label}" in silent else config.browser()
        topics = [topic for topic in config.topic_names if not topic.startswith("^")]
        if browser is None or not browser.topics_end or not topics:
            continue
        try:
            line = newest_record(browser, topics[0])
        except ConnectorError as error:
            line = Line(f"clock, {topics[0]}", "warning", f"not compared with records: {error}")
        if line is not None:
            lines.append(line)
    return lines
