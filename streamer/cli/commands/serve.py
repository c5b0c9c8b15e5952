"""`streamer serve`: models and pipelines answer requests over HTTP and gRPC, without a service file."""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli.options import (
    AsJson,
    Env,
    Files,
    LogJson,
    LogLevel,
    Runners,
    WithoutCode,
    codec_setting,
    no_code_given,
    runners_given,
    token_of,
)
from streamer.observe.logchoice import Level, from_environment

if TYPE_CHECKING:
    from streamer.agent.agent import Agent


def serve(
    targets: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL|FOLDER|FILE",
            help="Models (.onnx, .keras, .h5, .engine, .plan), pipeline files, folders with such files, service files.",
        ),
    ],
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", help="The address of HTTP, host:port; by default 127.0.0.1:8000. Port 0 is any free one."
        ),
    ] = None,
    grpc: Annotated[
        str | None, typer.Option("--grpc", help="The address of gRPC, host:port; by default there is none.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The name of the only model; by default that of its file.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="PATH", help="A file with the token that clients have to send."),
    ] = None,
    cert: Annotated[
        Path | None,
        typer.Option("--cert", metavar="PATH", help="Accept encrypted connections only, with this certificate (PEM)."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="PATH", help="The certificate's private key (PEM); by default it is in --cert."),
    ] = None,
    parallel: Annotated[
        int | None, typer.Option("--parallel", min=1, help="How many batches of a model run at the same time.")
    ] = None,
    control: Annotated[
        str | None, typer.Option("--control", help="The address of metrics, host:port; by default there is none.")
    ] = None,
    control_token_file: Annotated[
        Path | None,
        typer.Option(
            "--control-token-file",
            metavar="PATH",
            help="A file with the token of --control: who sends it may give commands, as to set weights.",
        ),
    ] = None,
    follow: Annotated[
        str | None,
        typer.Option("--follow", help="How often to look for new versions of the models, 5s; by default not."),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option(
            "--codec", help="How bodies become values: a codec's name, as json, or its fields, '{type: NAME, ...}'."
        ),
    ] = None,
    model_control: Annotated[
        bool,
        typer.Option(
            "--model-control",
            help="Of one folder: clients with the token may load and unload models. Needs --token-file.",
        ),
    ] = False,
    runner: Runners = None,
    no_code: WithoutCode = False,
    env: Env = None,
    allowed: Files = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
    as_json: AsJson = False,
) -> int:
    """Answer requests with models over HTTP and gRPC (Open Inference Protocol), until SIGTERM or Ctrl-C.

    Each model is a service of its own at the same address, named after its file; requests that wait are run together.
    When it answers, its URL is printed with its inputs and outputs, and a line of curl that asks it. It is the service
    file {source: {type: http}, pipeline: ..., sink: {type: http}}; write one for anything that has no option here.

    A folder holds models (NAME.onnx, NAME/model.onnx, or NAME/1/model.onnx, of which the highest number counts),
    pipeline files (NAME.pipeline.yaml, which go before a model of the same name) and services (NAME/service.yaml).
    Served alone it is a repository: a model that cannot be loaded does not keep the others from answering, and with
    --model-control clients load and unload models.
    """
    from pipelines.errors import StreamerError

    try:
        level, form = from_environment(os.environ)
    except StreamerError as error:
        raise typer.BadParameter(str(error)) from error
    log_json = form if log_json is None else log_json
    in_json = not sys.stderr.isatty() if log_json is None else log_json
    logged: Level = log_level or level or ("info" if in_json else "warning")
    from streamer.agent.agent import Agent
    from streamer.cli.commands.run import ended, run_agents, run_repository
    from streamer.cli.folder import import_from_here
    from streamer.cli.process import collect_less_often
    from streamer.cli.terminal import complain, json_lines, remark, say_json, warn
    from streamer.definition.serving import Serving, services_of
    from streamer.observe.logs import configure

    json_lines(bool(log_json))
    collect_less_often()
    configure(logged, as_json=in_json)
    # Services of a folder's sub-folders import from the folder: all of them share one process.
    homes = [target / "service.yaml" if target.is_dir() else target for target in targets]
    listed = no_code_given(not import_from_here(*homes, no_code=no_code), env, allowed)
    source = {
        "listen": _with_port(listen),
        "grpc": _with_port(grpc),
        "codec": None if codec is None else codec_setting(codec),
    }
    service = {
        "limits": None if parallel is None else {"parallel": parallel},
        "control": _controlled(control, control_token_file),
        "models": None if follow is None else {"follow": follow},
    }
    alone = len(targets) == 1 and targets[0].is_dir() and name is None
    if model_control and not alone:
        raise typer.BadParameter("--model-control is for one folder of models: streamer serve FOLDER --model-control")
    if model_control and token_file is None:
        raise typer.BadParameter(
            "with --model-control everybody could load and unload models; give clients a token by --token-file"
        )
    serving = Serving(_given({**source, **_guarded(token_file, cert, key)}), _given(service), name)
    token = "$TOKEN" if token_file is None else f"$(cat {shlex.quote(str(token_file))})"
    show = partial(_show, token=token, as_json=as_json)
    stopping = "" if in_json else "stopping: answering the requests that were accepted (once more to end at once)"
    if alone:
        from streamer.models.repository.loading import Loader
        from streamer.models.repository.repository import ModelRepository

        loader = Loader(targets[0], serving, no_code=listed, runners=runners_given(runner))
        for note in loader.address.notes:
            warn(note)
        repository = ModelRepository(loader, controlled=model_control, loaded=show)
        summaries = run_repository(repository, stopping)
    else:
        services = [service.with_runners(runners_given(runner)) for service in services_of(targets, serving, listed)]
        for note in dict.fromkeys(note for service in services for source in service.sources for note in source.notes):
            warn(note)
        summaries = run_agents([Agent(service) for service in services], show, stopping, keep_going=False)
    for summary in summaries:
        if not in_json:
            remark(ended(summary))
            if summary.error is not None:
                complain(" ".join(summary.error.splitlines()[:2]))
        if as_json:
            say_json(summary.to_dict())
    return 1 if any(summary.reason == "failed" for summary in summaries) else 0


def _with_port(listen: str | None) -> str | None:
    """The address with a free port in place of port 0: all models have the same."""
    if listen is None or not listen.endswith(":0"):
        return listen
    import socket

    host = listen.removesuffix(":0").strip("[]")
    try:
        with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
            return f"{listen.removesuffix('0')}{server.getsockname()[1]}"
    except OSError as error:
        raise typer.BadParameter(f"{listen}: {error.strerror or error}; choose another address") from None


def _controlled(control: str | None, token_file: Path | None) -> dict[str, Any] | None:
    """The field `control` of the services."""
    if control is None:
        if token_file is not None:
            raise typer.BadParameter("--control-token-file is the token of the address of --control; name that, too")
        return None
    return {
        "listen": control,
        **({} if token_file is None else {"token": token_of(token_file, "--control-token-file")}),
    }


def _guarded(token_file: Path | None, cert: Path | None, key: Path | None) -> dict[str, Any]:
    """The fields of the source that say who may ask, and by which connections."""
    fields: dict[str, Any] = {}
    if token_file is not None:
        fields["token"] = token_of(token_file)
    if cert is not None:
        fields["tls"] = {"cert": str(cert.absolute()), **({} if key is None else {"key": str(key.absolute())})}
    elif key is not None:
        raise typer.BadParameter("--key is the private key of a certificate; name that with --cert")
    return fields


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


def _show(agent: Agent, token: str, *, as_json: bool) -> None:
    """Tell where a service answers, what it takes, and how to ask it."""
    from connectors.http.endpoint.config import HttpSourceConfig
    from connectors.http.endpoint.source import HttpSource
    from streamer.cli.serving.example import curl, ports_in_words, url_of
    from streamer.cli.terminal import say, say_json

    for source in agent.sources:
        if not isinstance(source, HttpSource):
            continue
        config: HttpSourceConfig = source.config
        name, ports = agent.service.name, source.served.ports
        url = url_of(config, name, source.address)
        grpc = None if source.grpc_address is None else "{}:{}".format(*source.grpc_address)
        line = curl(config, url, ports, token)
        if as_json:
            say_json({"service": name, "url": url, "grpc": grpc, "curl": line})
            continue
        say(f"{name}: {url}" + ("" if grpc is None else f", gRPC {grpc}"))
        if words := ports_in_words(ports):
            say(f"  {words}")
        say(f"  {line}")
