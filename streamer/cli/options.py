"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import typer

LOCAL: Final = "localhost:9092"
"""Where a broker is looked for when nobody says where."""

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap", "-b", envvar="KAFKA_BOOTSTRAP_SERVERS", help="Brokers as host:port, separated by commas."
    ),
]
Client = Annotated[
    list[str] | None,
    typer.Option("--client", "-X", help="A librdkafka property as NAME=VALUE, for TLS or SASL; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines: JSON on standard output.")]
CodecName = Annotated[
    str, typer.Option("--codec", help="How payloads and values become each other: a codec's name, or its JSON form.")
]


NoCode = Annotated[
    bool,
    typer.Option(
        "--no-code",
        help="Refuse services that run code which their files hold or name: PYTHON and FUNCTION steps, functions of "
        "switches, combine steps and `when`, `oauth_cb`, native libraries, models of TensorFlow and TVM. "
        "STREAMER_NO_CODE=1 does the same.",
    ),
]
Runners = Annotated[
    list[str] | None,
    typer.Option("--runner", help="Which runner runs a type of step, TYPE=NAME; may be repeated. `steps` lists them."),
]


def runners_given(given: list[str] | None) -> dict[str, str]:
    """`["ONNX=onnxruntime"]` as a mapping. Raises `typer.BadParameter` for one without a name, `DefinitionError` for a
    type or name that there is not.
    """
    found = {}
    for one in given or ():
        kind, _, name = one.partition("=")
        if not kind or not name:
            raise typer.BadParameter(f"--runner takes TYPE=NAME, like ONNX=onnxruntime, not {one!r}")
        found[kind] = name
    if found:
        from pipelines.registry import default_registry

        default_registry().check_runners(found)
    return found


def client_properties(given: list[str] | None) -> dict[str, str]:
    """`["security.protocol=SSL"]` as a mapping. Raises `typer.BadParameter` for one without a name."""
    found = {}
    for one in given or ():
        name, separator, value = one.partition("=")
        if not name or not separator:
            raise typer.BadParameter(f"--client takes NAME=VALUE, not {one!r}")
        found[name] = value
    return found


def codec_setting(given: str) -> str | dict[str, object]:
    """A codec as service files say it. Raises `typer.BadParameter` for JSON that is no mapping."""
    if not given.lstrip().startswith("{"):
        return given
    import json

    try:
        found = json.loads(given)
    except ValueError as error:
        raise typer.BadParameter(f"--codec {given!r} is no JSON: {error}") from None
    return dict(found)


def position(given: str) -> Literal["earliest", "latest"] | int:
    """Where to begin: earliest, latest, or milliseconds since 1970 from a time. Raises `typer.BadParameter`."""
    from pydantic import TypeAdapter, ValidationError

    from connectors.kafka.config import Position

    try:
        found: Literal["earliest", "latest"] | int = TypeAdapter(Position).validate_python(given)
    except ValidationError as error:
        raise typer.BadParameter(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    return found
