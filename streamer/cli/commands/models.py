"""`streamer models`: the models of a running server: which there are, and loading, unloading and weighing them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamer.cli.options import AsJson, token_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamer.cli.serving.modelserver import ListedModel


def models(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="The server's address, http://host:port; for weight that of `control`."),
    ],
    action: Annotated[
        Literal["load", "unload", "reload", "weight"] | None,
        typer.Argument(metavar="ACTION", help="What to do; by default models are listed."),
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The model: its name in the repository, or its service's.")
    ] = None,
    variant: Annotated[str | None, typer.Argument(metavar="VARIANT", help="With weight: the variant.")] = None,
    weight: Annotated[
        float | None, typer.Argument(metavar="WEIGHT", help="With weight: its new weight, such as 25.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="STEP.FIELD=VALUE",
            help="With load: a field of a step, as `set` of a service file has it; may be repeated.",
        ),
    ] = None,
    share: Annotated[
        bool,
        typer.Option(
            "--share/--no-share", help="With load: whether one more worker is wanted where the model is loaded."
        ),
    ] = True,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="PATH", help="A file with the token that the server wants.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """List the models of a running server with their versions and states, or load, unload, reload and weigh them.

    The server is one of `streamer serve FOLDER`; load and unload need its --model-control. A load answers with the
    name by which requests reach the model: its own, or NAME-0, NAME-1, ... where it is loaded with other fields
    already. reload looks for new files. weight is for services with variants, at the address of their `control`,
    which also lists and reloads the models of a service of `streamer run`.
    """
    if action is None and name is not None:
        raise typer.BadParameter("say what to do with it: load, unload, reload or weight, before the name")
    if action is not None and not name:
        raise typer.BadParameter(f"{action} needs the name of a model: streamer models {url} {action} NAME")
    if (action == "weight") != (weight is not None):
        raise typer.BadParameter("weight needs a variant and a number: streamer models URL weight NAME VARIANT 25")
    if action != "load" and (given or not share):
        raise typer.BadParameter("--set and --no-share are for load")
    from streamer.cli.serving.modelserver import ModelServer
    from streamer.cli.terminal import say, say_json

    with ModelServer(url, None if token_file is None else token_of(token_file)) as server:
        done: dict[str, Any] = {"action": action, "name": name}
        match action:
            case None:
                _list(server.models(), as_json=as_json)
                return 0
            case "load":
                parameters = {**_fields(given or ()), **({} if share else {"share": False})}
                done["name"] = server.load(str(name), parameters)
                text = f"{done['name']}: loaded"
            case "unload":
                server.unload(str(name))
                text = f"{name}: unloaded"
            case "reload":
                server.reload(str(name))
                text = f"{name}: looked for new files"
            case "weight":
                assert variant is not None
                assert weight is not None
                server.weigh(str(name), variant, weight)
                done |= {"variant": variant, "weight": weight}
                text = f"{name}: {variant} has the weight {weight:g}"
    if as_json:
        say_json(done)
    else:
        say(text)
    return 0


def _fields(given: Iterable[str]) -> dict[str, Any]:
    """`["ONNX.maxBatch=8"]` as a mapping; values are read as YAML. Raises `typer.BadParameter`."""
    import yaml

    fields: dict[str, Any] = {}
    for text in given:
        field, separator, value = text.partition("=")
        if not separator or "." not in field:
            raise typer.BadParameter(f"--set takes STEP.FIELD=VALUE, like ONNX.maxBatch=8, not {text!r}")
        try:
            fields[field] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            reason = " ".join(str(error).split())
            raise typer.BadParameter(f"--set {field}: {value!r} is no value: {reason}") from None
    return fields


def _list(listed: Iterable[ListedModel], *, as_json: bool) -> None:
    from dataclasses import asdict

    from streamer.cli.terminal import cell, output, say_json

    if as_json:
        say_json({"models": [asdict(model) for model in listed]})
        return
    from rich.table import Table

    table = Table("model", "version", "state", "reason", box=None, header_style="bold", pad_edge=False)
    for model in listed:
        state = cell(model.state.lower(), "green" if model.state == "READY" else "yellow")
        table.add_row(cell(model.name), cell(model.version or "-"), state, cell(model.reason))
    output().print(table)
