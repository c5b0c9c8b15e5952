"""`streamer run`: runs services until they end, a signal stops them, or one fails."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from streamer.cli.options import (
    AsJson,
    Env,
    Files,
    LogJson,
    LogLevel,
    Runners,
    WithoutCode,
    no_code_given,
    runners_given,
)
from streamer.observe.logchoice import Level, from_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.config import ConnectorConfig
    from streamer.agent.agent import Agent
    from streamer.agent.summary import Summary
    from streamer.definition.nocode import NoCode
    from streamer.definition.service import Service
    from streamer.models.repository.repository import ModelRepository
    from streamer.workers.plan import Asked

_MOST_WORKERS: Final = 256
"""The shared file has some megabytes for each."""


def run(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Service files; each YAML document in them is a service.")
    ],
    start_from: Annotated[
        str | None,
        typer.Option(
            "--from", help="Set the consumer groups to this first: earliest, latest or a time (2026-01-31T12:00:00Z)."
        ),
    ] = None,
    runner: Runners = None,
    no_code: WithoutCode = False,
    env: Env = None,
    allowed: Files = None,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", metavar="PATH", help="A file for the times of stages and steps, for a trace viewer."),
    ] = None,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace", help="Results carry a trace of each step; the log has that of the first record of each batch."
        ),
    ] = False,
    log_level: LogLevel = None,
    log_json: LogJson = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            max=_MOST_WORKERS,
            help="Run N worker processes, which share the partitions. One that dies or hangs is started again, and a "
            "record that kills workers becomes a dead letter; 1 is for that alone.",
        ),
    ] = None,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="A service that fails leaves the others running; the exit code is 1 then."),
    ] = False,
    engine: Annotated[
        Literal["streamer", "faust", "spark"],
        typer.Option(
            "--engine",
            help="What reads and writes Kafka: streamer's own client, a Faust worker, or a streaming query of Spark.",
        ),
    ] = "streamer",
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="For --engine spark: the folder, or a URL such as s3a://bucket/digits, where Spark keeps positions.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run services, in this process or in workers, until SIGTERM, SIGHUP, Ctrl-C or the end of their sources.

    After the first signal no more records are read, those in flight are finished, and the exit code is 0. A second
    signal ends the process at once, with 130. If one service fails, the others finish their records in flight,
    unless they are to keep going, and the exit code is 1. It is 2 if a step cannot be opened with the fields of the
    file (a missing model, for instance), or the saved state is not that of the source's position.
    """
    from pipelines.errors import StreamerError

    try:
        level, form = from_environment(os.environ)
    except StreamerError as error:
        raise typer.BadParameter(str(error)) from error
    log_json = form if log_json is None else log_json
    in_json = not sys.stderr.isatty() if log_json is None else log_json
    logged: Level = log_level or level or ("info" if in_json or trace else "warning")
    if (engine == "spark") != (checkpoint is not None):
        lacking = "needs --checkpoint DIR, where Spark keeps positions" if engine == "spark" else "has no --checkpoint"
        raise typer.BadParameter(f"--engine {engine} {lacking}")
    if workers is not None:
        if engine != "streamer":
            instead = "start several processes" if engine == "faust" else "Spark has executors"
            raise typer.BadParameter(f"--engine {engine} is not possible with --workers; {instead} instead")
        if profile is not None and workers > 1:
            raise typer.BadParameter(
                "--profile is one file, which several workers cannot write; name one for each in the service file, "
                "profile: {file: profile-${STREAMER_WORKER}.json}"
            )
        from streamer.workers.parent.anew import begin_anew
        from streamer.workers.plan import Asked

        texts = list(map(str, files))
        listed_files = list(map(str, allowed or []))
        asked = Asked(workers, texts, start_from, runner or [], no_code, env or [], listed_files, in_json)
        flags = {"--trace": trace, "--keep-going": keep_going, "--json": as_json}
        arguments = _of_workers(asked, {"--profile": profile, "--log-level": log_level}, flags, in_json=in_json)
        debug = "--debug" in sys.argv
        begin_anew(asked, arguments, logged, in_json=in_json, summaries=as_json, debug=debug)
    from streamer.agent.agent import Agent
    from streamer.cli.folder import import_from_here
    from streamer.cli.process import collect_less_often
    from streamer.cli.terminal import FAILED, WRONG, complain, json_lines, remark, say_json
    from streamer.observe.logs import configure
    from streamer.workers.worker import Worker

    json_lines(bool(log_json))
    collect_less_often()
    configure(logged, as_json=in_json)
    listed = no_code_given(not import_from_here(*files, no_code=no_code), env, allowed)
    services = _observed(loaded(files, runners_given(runner), listed), profile, trace)
    if engine == "faust":
        return _in_faust(files, services, start_from, log_level or level or "warning", as_json=as_json)
    if checkpoint is not None:
        return _on_spark(files, services, start_from, checkpoint, as_json=as_json)
    worker = Worker.of_environment()
    if worker is not None:
        services = [worker.share_of(service) for service in services]
    agents = [Agent(service, start_from=start_from) for service in services]

    def say(text: str) -> None:
        # A log in JSON has the same events at level info.
        if not in_json:
            remark(text)

    def started(agent: Agent) -> None:
        if worker is not None:
            worker.tell_address(agent.service.name, agent.endpoint)
        say(_started(agent, with_address=worker is None))

    summaries = run_agents(
        agents,
        started,
        "" if in_json else "stopping: finishing the records in flight (once more to end at once)",
        keep_going=keep_going,
    )
    for summary in summaries:
        say(ended(summary))
        if summary.error is not None and not in_json:
            complain(" ".join(summary.error.splitlines()[:2]))
        if as_json:
            say_json(summary.to_dict())
    if worker is not None and any(agent.out_of_memory for agent in agents):
        sys.stdout.flush()
        worker.die()
    if any(agent.wrong for agent in agents):
        return WRONG
    return FAILED if any(summary.reason == "failed" for summary in summaries) else 0


def _of_workers(asked: Asked, options: dict[str, object], flags: dict[str, bool], *, in_json: bool) -> list[str]:
    """The arguments of this command for each worker."""
    return [
        *asked.arguments,
        *(word for name, value in options.items() if value is not None for word in (name, str(value))),
        *(name for name, given in flags.items() if given),
        "--log-json" if in_json else "--no-log-json",
        "--",
        *asked.files,
    ]


def run_agents(agents: list[Agent], started: Callable[[Agent], None], note: str, *, keep_going: bool) -> list[Summary]:
    """The summaries of all agents, when they have ended.

    Raises `DefinitionError` for a step that does not open, unless it only cannot connect, or the others keep going.
    """
    from streamer.cli.together import run_together

    return _opened(lambda: run_together(agents, started=started, note=note, keep_going=keep_going))


def run_repository(repository: ModelRepository, note: str) -> list[Summary]:
    """The summaries of all models of a repository, when a signal has stopped it. Raises as `run_agents`."""
    from streamer.cli.process import pass_over_what_stays
    from streamer.cli.signals import draining

    repository.start()
    # Its models are loaded beside this, and may be unloaded: what they leave behind is to be collected.
    pass_over_what_stays()
    with draining(repository.stop, note):
        return _opened(repository.join)


def _opened(run: Callable[[], list[Summary]]) -> list[Summary]:
    from pipelines.errors import ConnectorError, DefinitionError, StepError

    try:
        return run()
    except StepError as error:
        if isinstance(error.__cause__, ConnectorError):
            raise
        raise DefinitionError(str(error)) from error


def _in_faust(
    files: list[Path], services: list[Service], start_from: str | None, log_level: str, *, as_json: bool
) -> int:
    from pipelines.errors import DefinitionError
    from streamer.cli.terminal import remark, say_json

    if len(services) != 1:
        raise DefinitionError(
            f"--engine faust runs one service in a process, and {', '.join(map(str, files))} "
            f"define {len(services)}; attach several to one app in a module of your own: streamer.faust.attach"
        )
    if start_from is not None:
        raise DefinitionError("--from is not possible with --engine faust; reset the group with the brokers' own tools")
    from streamer.cli.signals import drain_at_hangup
    from streamer.definition.connectors.written import Written
    from streamer.faust.worker import run as run_worker

    drain_at_hangup()
    code, summary = run_worker(services[0], Written.of(files[0]), log_level=log_level)
    if summary is not None:
        remark(ended(summary))
        if as_json:
            say_json(summary.to_dict())
    return code


def _on_spark(
    files: list[Path], services: list[Service], start_from: str | None, checkpoint: str, *, as_json: bool
) -> int:
    from pipelines.errors import DefinitionError
    from streamer.cli.terminal import FAILED, complain, remark, say_json

    if len(services) != 1:
        raise DefinitionError(
            f"--engine spark runs one service in a session, and {', '.join(map(str, files))} define {len(services)}; "
            "start several in a session of your own: streamer.spark.start"
        )
    if start_from is not None:
        raise DefinitionError("--from is not possible with --engine spark, whose checkpoint has the positions")
    import streamer.spark

    # Named first, as it says how to install what is missing.
    _ = streamer.spark.start
    from streamer.cli.signals import draining
    from streamer.definition.connectors.written import Written
    from streamer.spark.running import SparkRun

    service = services[0]
    run = SparkRun(service, Written.of(files[0]), checkpoint)
    with draining(run.stop, "stopping: finishing the micro-batch that runs (once more to end at once)"):
        run.start()
        source, sinks = described(service.sources[0]), ", ".join(map(described, service.sinks))
        remark(f"{service.name}: running on Spark, {source} -> {sinks}, checkpoint {checkpoint}")
        summary = run.join()
        remark(ended(summary))
        if summary.error is not None:
            complain(" ".join(summary.error.splitlines()[:2]))
        if as_json:
            say_json(summary.to_dict())
        run.close()
    return FAILED if summary.error is not None else 0


def loaded(files: list[Path], runners: dict[str, str], no_code: NoCode | None) -> list[Service]:
    """The services of these files. Raises `DefinitionError`, also for two of one name."""
    from pipelines.errors import DefinitionError
    from streamer.definition.loading import load_all

    by_name: dict[str, tuple[Path, Service]] = {}
    for file in files:
        for service in load_all(file, no_code=no_code):
            if service.name in by_name:
                raise DefinitionError(
                    f'{file}: {by_name[service.name][0]} has a service "{service.name}" too; '
                    "their metrics and logs need names of their own"
                )
            by_name[service.name] = (file, service.with_runners(runners))
    return [service for _, service in by_name.values()]


def _observed(services: list[Service], profile: Path | None, trace: bool) -> list[Service]:
    from streamer.definition.settings import Profile

    if trace:
        services = [service.model_copy(update={"debug": True}) for service in services]
    if profile is None:
        return services
    # A file has one writer.
    files = {service.name: profile for service in services}
    if len(services) > 1:
        files = {name: profile.with_name(f"{profile.stem}-{name}{profile.suffix}") for name in files}
    observed = []
    for service in services:
        file = files[service.name]
        kept = (service.profile or Profile(file=file)).model_copy(update={"file": file})
        changed = service.model_copy(update={"profile": kept})
        # Giving the path on the command line also allows it.
        listed = service.no_code
        observed.append(changed if listed is None else changed.without_code(listed.with_files(file)))
    return observed


def _started(agent: Agent, *, with_address: bool) -> str:
    from connectors.http.listening import url_of

    service = agent.service
    sources = ", ".join(map(described, service.sources))
    sinks = ", ".join(map(described, service.sinks))
    group = "".join(f", group {name}" for name in dict.fromkeys(service.groups.values()))
    at = "" if agent.endpoint is None or not with_address else f", metrics on {url_of(agent.endpoint)}/metrics"
    return f"{service.name}: running, {sources} -> {sinks}{group}{at}"


def ended(summary: Summary) -> str:
    """A line about a service that has ended: why, after how long, and with how many records."""
    counts = f"{summary.ok:,} ok, {summary.dead:,} dead, {summary.dropped:,} dropped"
    if summary.passed:
        counts += f", {summary.passed:,} passed"
    if summary.failed:
        counts += f", {summary.failed:,} failed and lost"
    if summary.waits is not None:
        counts += f"; left for the next run: {summary.waits}"
    return f"{summary.service}: {summary.reason} after {summary.seconds:.1f} s, {counts}"


def described(config: ConnectorConfig) -> str:
    """The type of a source or sink, with its topics or path, as text."""
    return f"{config.type} {config.place}".rstrip()
